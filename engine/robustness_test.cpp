// SPDX-License-Identifier: Apache-2.0
// Whatever octets arrive, the decoders stay inside them and stay inside their own arrays. Every message is in heap
// memory of exactly its size, so that a sanitizer reports the first octet too far.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/golden_messages.h"
#include "engine/read_list.h"
#include "engine/rpc_message.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::Octets;

/// What must hold of lists that a decoder accepted, and what an engine would do with them next.
void check_accepted(const Octets& octets, const TransportHeader& header, const ChunkLists& lists) {
  ASSERT_LE(header.header_bytes, octets.size());
  ASSERT_LE(lists.read_count, kMaxReadSegments);
  ASSERT_LE(lists.write_segment_count, kMaxWriteSegments);
  ASSERT_LE(lists.reply_count, kMaxReplySegments);
  Octets again(header_size(lists));
  ASSERT_EQ(again.size(), header.header_bytes);
  ASSERT_EQ(encode_header(again, header.xid, header.credit, header.proc, lists), again.size());
  ASSERT_TRUE(std::equal(again.begin(), again.end(), octets.begin()));
}

void decode_every_way(const Octets& octets) {
  TransportHeader header;
  ChunkLists lists;
  if (is_plain_msg(octets.data(), octets.size(), header)) {
    ASSERT_TRUE(lists.empty());
    check_accepted(octets, header, lists);
  }
  if (decode_call_header(octets, header, lists) == HeaderOutcome::kOk) {
    check_accepted(octets, header, lists);
    const std::span<const std::byte> payload = std::span{octets}.subspan(header.header_bytes);
    CallHeader call;
    const auto outcome = decode_call(payload, call);
    AuthSys sys;
    if (outcome == CallOutcome::kOk) (void)decode_auth_sys(call.cred.body, sys);
    ReadChunks chunks;
    group_read_chunks(lists, chunks);
    StreamLayout layout;
    const std::size_t reduced = chunks.has_position_zero() ? chunks.position_zero_bytes() : payload.size();
    if (plan_stream(chunks, reduced, call.args_offset, layout) == HeaderOutcome::kOk) {
      ASSERT_LE(layout.count, kMaxStreamPieces);
      ASSERT_GE(layout.total, reduced);
    }
  }
  if (decode_reply_header(octets, header, lists) == HeaderOutcome::kOk && header.proc != Proc::kError) {
    check_accepted(octets, header, lists);
    ReplyHeader reply;
    (void)decode_reply(std::span{octets}.subspan(header.header_bytes), reply);
  }
  (void)classify(octets);
}

TEST(Robustness, EveryTruncationOfEveryGoldenMessageIsSafe) {
  proves("R8166-8.1-1");
  for (const auto& message : golden::kMessages) {
    const Octets whole = golden::wire(message.words);
    for (std::size_t length = 0; length <= whole.size(); ++length) decode_every_way(golden::cut(whole, length));
  }
}

TEST(Robustness, EveryWordReplacedByATellingValueIsSafe) {
  proves("R8166-8.1-1");
  for (const auto& message : golden::kMessages) {
    for (std::size_t word = 0; word < message.words.size(); ++word) {
      for (const std::uint32_t value : {0U, 1U, 2U, 3U, 16U, 17U, 64U, 65U, 0x0fffffffU, 0x10000000U, 0x10000001U,
                                        0x7fffffffU, 0x80000000U, 0xfffffff0U, 0xfffffffcU, 0xffffffffU}) {
        decode_every_way(golden::patched(message.words, {{word * 4, value}}));
      }
    }
  }
}

TEST(Robustness, RandomMutationsOfGoldenMessagesAreSafe) {
  proves("R8166-8.1-1");
  std::mt19937 random{5531};
  for (const auto& message : golden::kMessages) {
    const Octets whole = golden::wire(message.words);
    for (int round = 0; round < 4000; ++round) {
      Octets octets = golden::cut(whole, 1 + random() % whole.size());
      for (auto flips = 1 + random() % 4; flips > 0; --flips) {
        octets[random() % octets.size()] = static_cast<std::byte>(random() % 4 == 0 ? random() : random() % 3);
      }
      decode_every_way(octets);
    }
  }
}

TEST(Robustness, RandomWordsAfterAValidStartAreSafe) {
  proves("R8166-8.1-1");
  std::mt19937 random{8166};
  for (int round = 0; round < 40000; ++round) {
    Octets octets = golden::wire({7, 1, 8, static_cast<std::uint32_t>(random() % 2)});
    octets.resize(16 + (random() % 120) * 4);
    for (std::size_t at = 16; at < octets.size(); at += 4) {
      store_be32(octets.data() + at, static_cast<std::uint32_t>(random() % 8 == 0 ? random() : random() % 3));
    }
    decode_every_way(octets);
  }
}

}  // namespace
}  // namespace rodeo
