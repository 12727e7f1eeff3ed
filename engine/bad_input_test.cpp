// SPDX-License-Identifier: Apache-2.0

// A peer that sends raw octets to our Responder. Every expectation is about what that peer sees.

#include <cstring>
#include <random>

#include "engine/golden_messages.h"
#include "engine/test_pair.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::Pair;
using test::RawPeer;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;

[[nodiscard]] Program program() {
  return {.number = kProgram,
          .version = 1,
          .name = "test",
          .procedures = {{.number = 0, .name = "NULL", .handler = [](Call& call, void*) noexcept { call.reply(); }}}};
}

[[nodiscard]] std::vector<std::byte> null_call(std::uint32_t xid, std::uint32_t credit = 8) {
  return test::bytes_of({xid, 1, credit, 0, 0, 0, 0, xid, 0, 2, kProgram, 1, 0, 0, 0, 0, 0});
}

void expect_served(RawPeer& peer, std::uint32_t xid) {
  proves("R8166-2.2-2", "R8166-3.3-3");
  peer.send(null_call(xid));
  const auto reply = peer.receive();
  ASSERT_EQ(reply.size(), kMinHeaderBytes + kAcceptedReplyBytes);
  EXPECT_EQ(load_be32(reply.data()), xid);
  EXPECT_GE(load_be32(reply.data() + kCreditOffset), 1U);
}

void expect_err_chunk(RawPeer& peer, std::span<const std::byte> message) {
  proves("R8166-4.2.4-4", "R8166-4.5-2", "R8166-4.5-4", "R8166-4.5-6");
  peer.send(message);
  const auto reply = peer.receive();
  ASSERT_EQ(reply.size(), kErrChunkBytes);
  EXPECT_EQ(load_be32(reply.data()), load_be32(message.data()));
  EXPECT_EQ(load_be32(reply.data() + 4), 1U);
  EXPECT_GE(load_be32(reply.data() + 8), 1U);
  EXPECT_EQ(load_be32(reply.data() + 12), 4U);
  EXPECT_EQ(load_be32(reply.data() + 16), 2U);
}

TEST(BadInput, MessagesShorterThanAHeaderAreDiscardedInSilence) {
  proves("R8166-4.5-1", "ENG-CR-11");
  Pair pair(program());
  RawPeer peer(pair);
  for (std::size_t length = 0; length < kMinHeaderBytes; ++length) {
    const auto whole = null_call(7);
    peer.send(std::span(whole).first(length));
    EXPECT_TRUE(peer.receive(20).empty()) << length;
  }
  EXPECT_FALSE(peer.disconnected());
  expect_served(peer, 8);
  EXPECT_EQ(Pair::counter(*pair.server, "too_short"), kMinHeaderBytes);
}

TEST(BadInput, OtherVersionsGetErrVers) {
  proves("R8166-4.5.1-1", "R8166-4.5-5", "R8166-7-1");
  Pair pair(program());
  RawPeer peer(pair);
  for (const std::uint32_t version : {0U, 2U, 99U, 0xffffffffU}) {
    auto message = null_call(11);
    store_be32(message.data() + 4, version);
    peer.send(message);
    const auto reply = peer.receive();
    ASSERT_EQ(reply.size(), kErrVersBytes);
    EXPECT_EQ(load_be32(reply.data()), 11U);
    EXPECT_EQ(load_be32(reply.data() + 4), version);
    EXPECT_EQ(load_be32(reply.data() + 12), 4U);
    EXPECT_EQ(load_be32(reply.data() + 16), 1U);
    EXPECT_EQ(load_be32(reply.data() + 20), 1U);
    EXPECT_EQ(load_be32(reply.data() + 24), 1U);
  }
  expect_served(peer, 12);
}

TEST(BadInput, MalformedHeadersGetErrChunk) {
  proves("R8166-4.5.2-1", "R8166-4.5.2-2", "R8166-4.5.2-3", "R8166-4.6-2");
  Pair pair(program());
  RawPeer peer(pair);
  expect_err_chunk(peer, test::bytes_of({1, 1, 8, 2, 0, 0, 0, 0, 0}));           // RDMA_MSGP
  expect_err_chunk(peer, test::bytes_of({2, 1, 8, 7, 0, 0, 0}));                 // no such proc
  expect_err_chunk(peer, test::bytes_of({3, 1, 8, 1, 0, 0, 0}));                 // NOMSG without a chunk
  expect_err_chunk(peer, test::bytes_of({4, 1, 8, 0, 2, 0, 0, 4, 0, 2, 3}));     // discriminator 2
  expect_err_chunk(peer, test::bytes_of({5, 1, 8, 0, 0, 1, 0x10000000, 0, 0}));  // a count beyond the message
  expect_err_chunk(peer, test::bytes_of({6, 1, 8, 0, 0, 0, 0, 99, 0, 2, kProgram, 1, 0, 0, 0, 0, 0}));  // XID differs
  expect_err_chunk(peer, test::bytes_of({9, 1, 8, 0, 0, 0, 0, 9, 0}));  // no whole RPC header
  expect_served(peer, 7);
}

TEST(BadInput, BadReadPositionsGetErrChunkAndNoHandlerRuns) {  // F04
  proves("F04", "R8166-3.4.5-2", "ENG-RD-2");
  Pair pair(program());
  RawPeer peer(pair);
  const auto with_position = [&](std::uint32_t xid, std::uint32_t position) {
    return test::bytes_of({xid,
                           1,
                           8,
                           0,
                           1,
                           position,
                           peer.handle(),
                           64,
                           static_cast<std::uint32_t>(peer.offset() >> 32U),
                           static_cast<std::uint32_t>(peer.offset()),
                           0,
                           0,
                           0,
                           xid,
                           0,
                           2,
                           kProgram,
                           1,
                           0,
                           0,
                           0,
                           0,
                           0});
  };
  std::uint32_t xid = 20;
  for (const std::uint32_t position : {102U, 8U, 4000U, 0xfffffffcU})
    expect_err_chunk(peer, with_position(++xid, position));
  EXPECT_EQ(Pair::counter(*pair.server, "read_bytes_pulled"), 0U);
  expect_served(peer, 30);
}

TEST(BadInput, TooMuchReadDataIsRefusedBeforeAnythingIsPulled) {  // F05
  proves("F05", "R8166-3.4-6", "R8166-8.1-6", "ENG-SEG-2");
  Pair pair(program());
  RawPeer peer(pair);
  const auto long_call = [&](std::uint32_t xid, std::uint32_t length, std::uint32_t high) {
    return test::bytes_of({xid, 1, 8, 1, 1, 0, peer.handle(), length, high, 0xffffff00U, 0, 0, 0});
  };
  expect_err_chunk(peer, long_call(41, 0x60000000, 0));
  expect_err_chunk(peer, long_call(42, 0x1000, 0xffffffffU));
  EXPECT_EQ(Pair::counter(*pair.server, "read_bytes_pulled"), 0U);
  expect_served(peer, 43);
}

TEST(BadInput, ErrorsAndDoneAreDiscarded) {
  proves("R8166-4.2.4-6", "R8166-4.6-5", "ENG-RX-7");
  Pair pair(program());
  RawPeer peer(pair);
  peer.send_words({1, 1, 8, 4, 2, 0, 0});
  EXPECT_TRUE(peer.receive(20).empty());
  peer.send_words({1, 1, 8, 3, 0, 0, 0});
  EXPECT_TRUE(peer.receive(20).empty());
  peer.send_words({1, 1, 8, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0});  // a Reply to nobody
  EXPECT_TRUE(peer.receive(20).empty());
  expect_served(peer, 2);
}

TEST(BadInput, RpcLevelRefusals) {
  proves("R5531-9-1", "R5531-9-3", "R5531-A-1");
  Pair pair(program());
  RawPeer peer(pair);
  auto message = null_call(51);
  store_be32(message.data() + kMinHeaderBytes + 8, 3);  // rpcvers 3
  peer.send(message);
  auto reply = peer.receive();
  ASSERT_EQ(reply.size(), kMinHeaderBytes + kRpcMismatchBytes);
  EXPECT_EQ(load_be32(reply.data() + kMinHeaderBytes + 8), 1U);   // MSG_DENIED
  EXPECT_EQ(load_be32(reply.data() + kMinHeaderBytes + 12), 0U);  // RPC_MISMATCH
  message = null_call(52);
  store_be32(message.data() + kMinHeaderBytes + 28, 401);  // a credential above 400 octets
  peer.send(message);
  reply = peer.receive();
  ASSERT_GE(reply.size(), kErrChunkBytes);
  expect_served(peer, 53);
}

TEST(BadInput, ARemoteAccessErrorCostsOnlyItsOwnConnection) {
  proves("R8166-4.5.3-1", "R8166-8.1-3");
  Pair pair(program());
  RawPeer bystander(pair);
  RawPeer offender(pair);
  expect_served(offender, 60);
  offender.send_words({61, 1, 8, 1, 1, 0, offender.handle() ^ 0xff00U, 64, 0, 0x1000, 0, 0, 0});
  EXPECT_TRUE(offender.receive().empty());
  EXPECT_TRUE(offender.disconnected());
  expect_served(bystander, 62);
  pair.until([&] { return pair.server->connection_count() == 1; });
}

TEST(BadInput, RandomMessagesNeverHurtTheNextConnection) {
  proves("R8166-8.1-1");
  Pair pair(program());
  RawPeer good(pair);
  std::mt19937 random(20251);
  auto bad = std::make_unique<RawPeer>(pair);
  for (int i = 0; i < 3000; ++i) {
    auto message = golden::wire(golden::kMessages[random() % golden::kMessages.size()].words);
    const std::size_t flips = random() % 8;
    for (std::size_t f = 0; f < flips; ++f) message[random() % message.size()] = static_cast<std::byte>(random());
    message.resize(random() % (message.size() + 1));
    if (bad->disconnected()) bad = std::make_unique<RawPeer>(pair);
    bad->send(message);
    (void)bad->receive(3);
    if (i % 200 == 0) expect_served(good, 1000U + static_cast<std::uint32_t>(i));
  }
  expect_served(good, 99);
  bad.reset();
}

}  // namespace
}  // namespace rodeo
