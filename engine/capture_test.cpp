// SPDX-License-Identifier: Apache-2.0
// The codecs against recorded traffic of another implementation: every message decodes, and every header encodes back
// to the octets that were on the wire.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/capture_reader.h"
#include "engine/private_data.h"
#include "engine/read_list.h"
#include "engine/rpc_message.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using Octets = std::span<const std::byte>;

std::filesystem::path captures_folder() {
  const char* chosen = std::getenv("RODEO_CAPTURES");
  return chosen != nullptr ? chosen : RODEO_CAPTURES_FOLDER;
}

/// One recording and what its description says is in it; that counts retransmissions as well.
struct Recording {
  const char* file;
  unsigned inline_messages;
  unsigned read_list_calls;
  unsigned write_list_calls;
  unsigned reply_chunk_calls;
};

struct Counts {
  unsigned inline_messages = 0;
  unsigned read_list_calls = 0;
  unsigned write_list_calls = 0;
  unsigned write_list_replies = 0;
  unsigned reply_chunk_calls = 0;
  unsigned long_replies = 0;
};

class CaptureTest : public testing::TestWithParam<Recording> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(captures_folder())) GTEST_SKIP() << "no recordings in " << captures_folder();
    auto read = capture::read_messages(captures_folder() / GetParam().file);
    ASSERT_TRUE(read.has_value()) << read.error().message();
    messages_ = std::move(*read);
  }

  void take_call(Octets octets, const capture::Route& route) {
    TransportHeader header;
    ChunkLists lists;
    ASSERT_EQ(decode_call_header(octets, header, lists), HeaderOutcome::kOk);
    TransportHeader plain;
    EXPECT_EQ(is_plain_msg(octets.data(), octets.size(), plain), lists.empty());
    std::vector<std::byte> again(header.header_bytes);
    ASSERT_EQ(encode_header(again, header.xid, header.credit, header.proc, lists), again.size());
    EXPECT_TRUE(std::ranges::equal(again, octets.first(again.size())));

    CallHeader call;
    const Octets payload = octets.subspan(header.header_bytes);
    ASSERT_EQ(decode_call(payload, call), CallOutcome::kOk);
    EXPECT_EQ(call.xid, header.xid);
    AuthSys sys;
    if (call.cred.flavor == AuthFlavor::kSys) {
      EXPECT_TRUE(decode_auth_sys(call.cred.body, sys));
    }
    ReadChunks chunks;
    group_read_chunks(lists, chunks);
    StreamLayout layout;
    EXPECT_EQ(plan_stream(chunks, payload.size(), call.args_offset, layout), HeaderOutcome::kOk);
    EXPECT_GE(layout.total, payload.size() + lists.read_total);

    counts_.inline_messages += lists.empty() ? 1U : 0U;
    counts_.read_list_calls += lists.read_count != 0 ? 1U : 0U;
    counts_.write_list_calls += lists.write_chunk_count != 0 ? 1U : 0U;
    counts_.reply_chunk_calls += lists.reply_present ? 1U : 0U;
    calls_[{route.destination, header.xid}] = lists;
  }

  void take_reply(Octets octets, const capture::Route& route) {
    TransportHeader header;
    ChunkLists lists;
    ASSERT_EQ(decode_reply_header(octets, header, lists), HeaderOutcome::kOk);
    const auto call = calls_.find({route.source, header.xid});
    ASSERT_NE(call, calls_.end()) << "a Reply without its Call";
    EXPECT_EQ(check_returned_lists(call->second, lists), HeaderOutcome::kOk);
    // Encoded from what the Call offered and what came back, as a Responder does it.
    ReturnedLengths returned;
    returned.clear(call->second);
    for (std::size_t i = 0; i < lists.write_chunk_count; ++i) {
      ASSERT_TRUE(returned.fill_write(call->second, i, lists.write_chunks()[i].capacity));
    }
    ASSERT_TRUE(returned.fill_reply(call->second, lists.reply_capacity));
    std::vector<std::byte> again(header.header_bytes);
    ASSERT_EQ(encode_reply_header(again, header.xid, header.credit, header.proc, call->second, returned), again.size());
    EXPECT_TRUE(std::ranges::equal(again, octets.first(again.size())));
    if (header.proc == Proc::kMsg) {
      ReplyHeader reply;
      ASSERT_EQ(decode_reply(octets.subspan(header.header_bytes), reply), ReplyOutcome::kOk);
      EXPECT_EQ(reply.xid, header.xid);
    }
    counts_.inline_messages += lists.empty() ? 1U : 0U;
    counts_.write_list_replies += lists.write_chunk_count != 0 ? 1U : 0U;
    counts_.long_replies += header.proc == Proc::kNomsg ? 1U : 0U;
  }

  std::vector<capture::Message> messages_;
  Counts counts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, ChunkLists> calls_;  // by Responder's address and XID
};

TEST_P(CaptureTest, EveryMessageDecodesAndEncodesBackToTheSameOctets) {
  proves("R8166-4-1", "R8166-4.2.4-2", "R8167-2-1");
  for (const auto& message : messages_) {
    if (message.management) continue;
    switch (classify(message.octets)) {
      case Direction::kCall:
        take_call(message.octets, message.route);
        break;
      case Direction::kReply:
        take_reply(message.octets, message.route);
        break;
      case Direction::kError:
      case Direction::kUnknown:
        ADD_FAILURE() << "a message that is neither Call nor Reply";
        break;
    }
    if (HasFatalFailure()) return;
  }
  EXPECT_EQ(counts_.inline_messages, GetParam().inline_messages);
  EXPECT_EQ(counts_.read_list_calls, GetParam().read_list_calls);
  EXPECT_EQ(counts_.write_list_calls, GetParam().write_list_calls);
  EXPECT_EQ(counts_.write_list_replies, GetParam().write_list_calls);
  EXPECT_EQ(counts_.reply_chunk_calls, GetParam().reply_chunk_calls);
  EXPECT_EQ(counts_.long_replies, GetParam().reply_chunk_calls);
}

TEST_P(CaptureTest, ThePayloadIsFoundBehindEachCombinationOfTheThreeLists) {  // F11
  proves("F11");
  TransportHeader header;
  ChunkLists lists;
  const auto first = std::ranges::find_if(messages_, [&](const capture::Message& message) {
    return !message.management && classify(message.octets) == Direction::kCall &&
           decode_call_header(message.octets, header, lists) == HeaderOutcome::kOk && lists.reply_present;
  });
  ASSERT_NE(first, messages_.end()) << "no Call with a Reply chunk";
  ASSERT_EQ(lists.read_count + lists.write_chunk_count, 0);
  const Octets payload = Octets(first->octets).subspan(header.header_bytes);
  CallHeader call;
  ASSERT_EQ(decode_call(payload, call), CallOutcome::kOk);
  for (unsigned combination = 0; combination < 8; ++combination) {
    SCOPED_TRACE(combination);
    const Segment& segment = lists.reply()[0];
    ChunkLists some;
    if ((combination & 1U) != 0) {
      ASSERT_TRUE(some.add_read(call.args_offset, segment));
    }
    if ((combination & 2U) != 0) {
      ASSERT_TRUE(some.add_write_chunk({&segment, 1}));
    }
    if ((combination & 4U) != 0) {
      ASSERT_TRUE(some.set_reply(lists.reply()));
    }
    std::vector<std::byte> message(header_size(some));
    ASSERT_EQ(encode_header(message, header.xid, header.credit, Proc::kMsg, some), message.size());
    const std::size_t header_bytes = message.size();
    message.insert(message.end(), payload.begin(), payload.end());
    TransportHeader found;
    ChunkLists decoded;
    ASSERT_EQ(decode_call_header(message, found, decoded), HeaderOutcome::kOk);
    EXPECT_EQ(found.header_bytes, header_bytes);
    EXPECT_EQ(decoded.read_count != 0, (combination & 1U) != 0);
    EXPECT_EQ(decoded.write_chunk_count != 0, (combination & 2U) != 0);
    EXPECT_EQ(decoded.reply_present, (combination & 4U) != 0);
    CallHeader again;
    ASSERT_EQ(decode_call(Octets(message).subspan(found.header_bytes), again), CallOutcome::kOk);
    EXPECT_EQ(again.xid, found.xid);
    EXPECT_EQ(again.program, call.program);
    EXPECT_EQ(again.procedure, call.procedure);
  }
}

TEST_P(CaptureTest, BothEndsSendPrivateDataWhenTheyConnect) {
  proves("R8797-4-1", "R8797-5.2-1");
  unsigned requests = 0;
  unsigned replies = 0;
  for (const auto& message : messages_) {
    const auto data = capture::connection_data(message);
    if (!data) continue;
    ++(data->request ? requests : replies);
    const PrivateData decoded = decode_private_data(data->octets);
    // This implementation's client allows remote invalidation and its server does not claim to.
    EXPECT_EQ(decoded, (PrivateData{4096, 4096, data->request}));
  }
  EXPECT_GE(requests, 1U);
  EXPECT_GE(replies, 1U);
}

INSTANTIATE_TEST_SUITE_P(Recordings, CaptureTest,
                         testing::Values(Recording{"nfs3-tour.pcap", 606, 10, 22, 7},
                                         Recording{"nfs42-tour.pcap", 474, 10, 22, 99}),
                         [](const auto& instance) {
                           const std::string file = instance.param.file;
                           return file.substr(0, file.find('-'));
                         });

}  // namespace
}  // namespace rodeo
