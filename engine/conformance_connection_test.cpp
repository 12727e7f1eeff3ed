// SPDX-License-Identifier: Apache-2.0

// What holds for connections: who opens them, how large messages may be, what they share, and when they end.

#include "engine/raw_responder.h"
#include "engine/test_words.h"
#include "engine/transport_header.h"
#include "engine/xdr_pad.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::bytes_of;
using test::joined;
using test::Octets;
using test::Pair;
using test::pattern;
using test::RawPeer;
using test::Seen;
using test::Words;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kMaxData = 100000;

/// 0 NULL, 1 gives an opaque<> back, 2 as many octets as its argument says.
[[nodiscard]] Program program(std::uint32_t number = kProgram) {
  const Handler null = [](Call& call, void*) noexcept { call.reply(); };
  const Handler echo = [](Call& call, void*) noexcept {
    XdrReader reader = call.arguments();
    const auto data = reader.opaque(kMaxData);
    if (!reader.ok()) return call.reject(AcceptStat::kGarbageArgs);
    call.results(4 + xdr_padded(data.size())).opaque(data);
    call.reply();
  };
  const Handler give = [](Call& call, void*) noexcept {
    static const std::vector<std::byte> kOctets(kMaxData);
    const std::uint32_t length = call.arguments().u32();
    call.results(length).opaque_fixed(std::span(kOctets).first(length));
    call.reply();
  };
  return {.number = number,
          .version = 1,
          .name = "test",
          .procedures = {{.number = 0, .name = "NULL", .handler = null},
                         {.number = 1, .name = "ECHO", .handler = echo},
                         {.number = 2, .name = "GIVE", .handler = give}}};
}

[[nodiscard]] Octets call_of(std::uint32_t xid, std::uint32_t procedure, const Words& arguments,
                             const Words& reply_chunk = {0}, std::uint32_t number = kProgram) {
  return bytes_of(
      joined({{xid, 1, 8, 0, 0, 0}, reply_chunk, {xid, 0, 2, number, 1, procedure, 0, 0, 0, 0}, arguments}));
}

TEST(ConformanceConnection, OnlyTheRequesterOpensOne) {
  proves("R8166-2.2-1");
  Pair pair(program());
  for (int i = 0; i < 2000; ++i) pair.turn();
  EXPECT_EQ(Pair::counter(*pair.server, "connections_opened"), 0U);
  EXPECT_EQ(Pair::counter(*pair.client, "connections_opened"), 0U);
  RawPeer peer(pair);
  peer.send(call_of(1, 0, {}));
  EXPECT_EQ(peer.receive().size(), kMinHeaderBytes + kAcceptedReplyBytes);
  EXPECT_EQ(Pair::counter(*pair.server, "connections_opened"), 1U);
}

TEST(ConformanceConnection, AnErrorThatCannotBeSentClosesIt) {
  proves("R8166-4.5.4-3", "R8166-3.3-13");
  Pair pair(program());
  RawPeer bystander(pair);
  RawPeer peer(pair);
  peer.send(call_of(1, 0, {}));
  EXPECT_FALSE(peer.receive().empty());
  // A peer that sends what must be answered by an error, and never takes one.
  std::size_t sent = 0;
  for (; sent < 1000 && !peer.disconnected(); ++sent) {
    peer.send(bytes_of({2, 99, 8, 0, 0, 0, 0}));
    peer.fall_silent();
  }
  EXPECT_TRUE(peer.disconnected());
  EXPECT_GT(sent, RawPeer::kReceives);
  bystander.send(call_of(1, 0, {}));
  EXPECT_EQ(bystander.receive().size(), kMinHeaderBytes + kAcceptedReplyBytes);
  pair.until([&] { return pair.server->connection_count() == 1; });
}

TEST(ConformanceConnection, WithoutPrivateDataRepliesHave1024OctetsAtMost) {
  proves("R8166-3.3.2-3", "R8166-3.3.2-4", "R8166-4.6-6", "R8797-1-1", "R8797-5.1-1", "R8797-5.2-2");
  constexpr std::uint32_t kFits = 1024 - kMinHeaderBytes - kAcceptedReplyBytes - 4;
  for (const Octets& private_data : {Octets{}, bytes_of({0x12345678, 0x9abcdef0, 1}), bytes_of({0xf6ab0e18})}) {
    Pair pair(program());
    RawPeer peer(pair, private_data);
    for (const std::uint32_t length : {kFits, kFits + 4}) {
      for (const bool chunk : {false, true}) {
        const std::uint64_t offset = peer.offset();
        const Words reply_chunk = {
            1, 1, peer.handle(), 8192, static_cast<std::uint32_t>(offset >> 32U), static_cast<std::uint32_t>(offset)};
        Words arguments(1 + length / 4);
        arguments[0] = length;
        // Our Receives are no larger than what we announce; that is what a Call may have.
        peer.send(call_of(7, 1, arguments, chunk ? reply_chunk : Words{0}));
        const Octets reply = peer.receive();
        ASSERT_GE(reply.size(), kErrChunkBytes);
        EXPECT_LE(reply.size(), 1024U);
        const std::uint32_t proc = load_be32(reply.data() + kProcOffset);
        // The header of the Reply has the chunk, too.
        const bool fits = length + (chunk ? 20 : 0) <= kFits;
        EXPECT_EQ(proc, fits ? 0U : chunk ? 1U : 4U) << length << chunk;
      }
    }
  }
}

TEST(ConformanceConnection, WithoutAReplyChunkNothingIsSentThatIsLongerThanThePeersReceive) {  // F08
  proves("F08");
  for (const std::uint32_t announced : {0U, 1024U, 2048U, 4096U}) {
    SCOPED_TRACE(announced);
    Pair pair(program());
    const auto own = encode_private_data({.send_size = 1024, .receive_size = std::max(announced, 1024U)});
    RawPeer peer(pair, announced == 0 ? std::span<const std::byte>{} : std::span<const std::byte>(own));
    const std::uint32_t threshold = std::max(announced, 1024U);
    const std::uint32_t fits = threshold - static_cast<std::uint32_t>(kMinHeaderBytes + kAcceptedReplyBytes);
    peer.send(call_of(1, 2, {fits}));
    EXPECT_EQ(peer.receive().size(), threshold);
    for (const std::uint32_t length : {fits + 4, 65536U}) {
      peer.send(call_of(2, 2, {length}));
      Octets answer = peer.receive();
      ASSERT_EQ(answer.size(), kErrChunkBytes);
      store_be32(answer.data() + kCreditOffset, 8);
      EXPECT_EQ(answer, bytes_of({2, 1, 8, 4, 2})) << length;
    }
    peer.send(call_of(3, 0, {}));
    EXPECT_EQ(peer.receive().size(), kMinHeaderBytes + kAcceptedReplyBytes);
    EXPECT_FALSE(peer.disconnected());
  }
}

TEST(ConformanceConnection, EachReceiveTakesTheLargestMessage) {
  proves("ENG-IN-1", "R8166-3.3.2-5", "ENG-CR-11");
  Pair pair(program());
  RawPeer peer(pair);
  const Words filler((4096 - kMinHeaderBytes - kMinCallHeaderBytes) / 4);
  peer.send(call_of(1, 0, filler));
  EXPECT_FALSE(peer.receive().empty());
  for (int round = 0; round < 4; ++round) {
    for (std::uint32_t i = 0; i < 8; ++i) peer.send(call_of(10 + i, 0, filler));
    for (std::uint32_t i = 0; i < 8; ++i) EXPECT_EQ(peer.receive().size(), kMinHeaderBytes + kAcceptedReplyBytes);
  }
}

TEST(ConformanceConnection, SeveralProgramsShareIt) {
  proves("R8166-6.3-2");
  Pair pair(program(kProgram), test::small_config(), test::small_config(), {program(kProgram + 1)});
  RawPeer peer(pair);
  for (const std::uint32_t number : {kProgram, kProgram + 1, kProgram + 2, kProgram}) {
    peer.send(call_of(5, 1, {4, number}, {0}, number));
    const Octets reply = peer.receive();
    const bool known = number != kProgram + 2;
    ASSERT_EQ(reply.size(), kMinHeaderBytes + kAcceptedReplyBytes + (known ? 8U : 0U));
    EXPECT_EQ(load_be32(reply.data() + kMinHeaderBytes + 20), known ? 0U : 1U);
    EXPECT_EQ(load_be32(reply.data() + reply.size() - 4), known ? number : 1U);
  }
}

/// Keeps as many echoes of growing sizes going as there are credits.
void echo_all(Pair& pair, std::uint32_t credits, std::size_t calls) {
  Connection* connection = pair.connect(credits);
  const CallTarget target(kProgram, 1, 1, Credential{});
  std::vector<Seen> seen(calls);
  std::size_t next = 0;
  const auto length_of = [](std::size_t call) { return (call * call * 13) % 60000; };
  const auto submit = [&] {
    for (; next < calls && connection->credits_left() != 0; ++next) {
      const std::size_t length = length_of(next);
      std::vector<std::byte> arguments(length + 8);
      XdrWriter writer(arguments);
      writer.opaque(pattern(length, next));
      if (connection->submit({.target = &target,
                              .arguments = writer.written(),
                              .max_results = length + 8,
                              .on_reply = Seen::on_reply,
                              .context = &seen[next]}) != SubmitOutcome::kPosted) {
        return;
      }
    }
  };
  pair.until([&] {
    submit();
    return next == calls && connection->in_flight() == 0;
  });
  pair.client->disconnect(connection);
  pair.until([&] { return pair.client->connection_count() + pair.server->connection_count() == 0; });
  for (std::size_t i = 0; i < calls; ++i) {
    EXPECT_EQ(seen[i].times, 1);
    ASSERT_EQ(seen[i].error, CallError::kNone) << i;
    EXPECT_EQ(seen[i].accept_stat, AcceptStat::kSuccess) << i;
    XdrReader reader(seen[i].results);
    EXPECT_TRUE(std::ranges::equal(reader.opaque(kMaxData), pattern(length_of(i), i))) << i;
  }
}

TEST(ConformanceConnection, AnyThresholdsAndCreditsDo) {
  proves("R8166-6.3-1", "R8166-3.3.2-1", "R8166-3.3.2-5", "R8797-4.2-2", "R8797-4.2-3");
  for (const std::uint32_t server_bytes : {1024U, 4096U, 65536U}) {
    for (const std::uint32_t client_bytes : {1024U, 4096U, 65536U}) {
      for (const std::uint32_t credits : {1U, 2U, 64U}) {
        Config server = test::small_config();
        Config client = test::small_config();
        server.inline_send_bytes = server.inline_receive_bytes = server_bytes;
        server.credits = credits;
        server.bulk_bytes = client.bulk_bytes = kMaxData;
        server.bulk_buffers = client.bulk_buffers = 2 * credits + 2;  // a Long Call and a Long Reply each
        client.inline_send_bytes = client.inline_receive_bytes = client_bytes;
        client.credits = credits;
        Pair pair(program(), server, client);
        SCOPED_TRACE(::testing::Message() << server_bytes << ' ' << client_bytes << ' ' << credits);
        echo_all(pair, credits, 70);
      }
    }
  }
}

}  // namespace
}  // namespace rodeo
