// SPDX-License-Identifier: Apache-2.0

// Scripted Requesters that send a Call twice, over one connection or two: what runs again, and what they are told.

#include "engine/test_pair.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::bytes_of;
using test::joined;
using test::Octets;
using test::Pair;
using test::RawPeer;
using test::Words;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
enum Procedures : std::uint32_t { kCount = 1, kForgotten, kWide, kLater, kRefuse, kPush, kVoid, kBad };

/// What the handlers did.
struct Service {
  std::uint32_t runs = 0;
  std::vector<DeferredCall> later;
};

/// The first argument, and how many Calls have run so far.
void count(Call& call, void* context) noexcept {
  XdrWriter& results = call.results();
  results.u32(call.arguments().u32());
  results.u32(++static_cast<Service*>(context)->runs);
  call.reply();
}
/// So many octets, of a pattern that depends on the run.
void wide(Call& call, void* context) noexcept {
  const std::uint32_t length = call.arguments().u32();
  const std::uint32_t run = ++static_cast<Service*>(context)->runs;
  call.results(length + 8).opaque(test::pattern(length, run));
  call.reply();
}
void later(Call& call, void* context) noexcept {
  auto& service = *static_cast<Service*>(context);
  call.results().u32(++service.runs);
  service.later.push_back(call.defer());
}
void refuse(Call& call, void* context) noexcept {
  ++static_cast<Service*>(context)->runs;
  call.reject(AcceptStat::kSystemErr);
}
void push(Call& call, void* context) noexcept {
  ++static_cast<Service*>(context)->runs;
  const RegisteredBytes source = call.keep(call.make_buffer(64));
  call.push(source.first(64));
  call.reply();
}
void nothing(Call& call, void* context) noexcept {
  ++static_cast<Service*>(context)->runs;
  call.reply();
}
void bad(Call&, void* context) noexcept { ++static_cast<Service*>(context)->runs; }

struct Rig {
  explicit Rig(std::size_t entries = 64) : pair(program(), config(entries)) {}
  ~Rig() {
    for (DeferredCall& call : service.later) call.reply();
  }

  [[nodiscard]] static Config config(std::size_t entries) {
    Config made = test::small_config();
    made.remembered_replies = entries;
    made.remembered_bytes = 2048;
    return made;
  }
  [[nodiscard]] Program program() {
    Program made{.number = kProgram, .version = 1, .name = "test", .procedures = {}};
    const auto add = [&](std::uint32_t number, Handler handler, bool remember) {
      made.procedures.push_back(
          {.number = number, .name = "P", .handler = handler, .context = &service, .remember_replies = remember});
    };
    add(kCount, count, true);
    add(kForgotten, count, false);
    add(kWide, wide, true);
    add(kLater, later, true);
    add(kRefuse, refuse, true);
    add(kPush, push, true);
    add(kVoid, nothing, true);
    add(kBad, bad, true);
    return made;
  }
  [[nodiscard]] static Octets call(std::uint32_t xid, std::uint32_t procedure, const Words& arguments,
                                   const Words& lists = {0, 0, 0}, std::uint32_t uid = 7) {
    const Words sys{1, 24, 0, 4, 0x686f7374, uid, 0, 0, 0, 0};
    return bytes_of(joined({{xid, 1, 8, 0}, lists, {xid, 0, 2, kProgram, 1, procedure}, sys, arguments}));
  }
  /// The results of a plain Reply.
  static Octets ask(RawPeer& peer, const Octets& message) {
    peer.send(message);
    const Octets reply = peer.receive();
    EXPECT_GE(reply.size(), kMinHeaderBytes + kAcceptedReplyBytes);
    if (reply.size() < kMinHeaderBytes + kAcceptedReplyBytes) return {};
    EXPECT_EQ(load_be32(reply.data()), load_be32(message.data()));
    return {reply.begin() + kMinHeaderBytes + kAcceptedReplyBytes, reply.end()};
  }

  Service service;
  Pair pair;
};

TEST(ConformanceDuplicates, ACallThatComesAgainGetsItsFirstReplyAndDoesNotRun) {
  proves("ENG-RT-4", "ENG-RT-6", "R8166-4.5.5-1", "R5531-9-5");
  Rig rig;
  RawPeer first(rig.pair);
  const Octets call = Rig::call(1, kCount, {5});
  EXPECT_EQ(Rig::ask(first, call), bytes_of({5, 1}));
  EXPECT_EQ(Rig::ask(first, call), bytes_of({5, 1}));
  RawPeer second(rig.pair);  // another connection, another port
  EXPECT_EQ(Rig::ask(second, call), bytes_of({5, 1}));
  EXPECT_EQ(rig.service.runs, 1U);
  EXPECT_EQ(Pair::counter(*rig.pair.server, "calls_replayed"), 2U);
  // Nothing else is the same Call.
  EXPECT_EQ(Rig::ask(second, Rig::call(2, kCount, {5})), bytes_of({5, 2}));
  EXPECT_EQ(Rig::ask(second, Rig::call(1, kCount, {6})), bytes_of({6, 3}));
  EXPECT_EQ(Rig::ask(second, Rig::call(1, kCount, {5, 0})), bytes_of({5, 4}));
  EXPECT_EQ(Rig::ask(second, Rig::call(1, kCount, {5}, {0, 0, 0}, 8)), bytes_of({5, 5}));
  EXPECT_EQ(Rig::ask(second, Rig::call(1, kForgotten, {5})), bytes_of({5, 6}));
  EXPECT_EQ(Rig::ask(second, Rig::call(1, kForgotten, {5})), bytes_of({5, 7}));
  EXPECT_EQ(Rig::ask(second, call), bytes_of({5, 1}));
  // One without results is remembered as well.
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(Rig::ask(first, Rig::call(9, kVoid, {})).empty());
  EXPECT_EQ(rig.service.runs, 8U);
}

TEST(ConformanceDuplicates, TheReplayGoesTheWayThatTheDuplicateAsksFor) {
  proves("ENG-RT-3");
  Rig rig;
  RawPeer peer(rig.pair, {.send_size = 4096, .receive_size = 1024});
  const auto segment = [&](std::uint32_t at, std::uint32_t length) {
    const std::uint64_t offset = peer.offset() + at;
    return Words{peer.handle(), length, static_cast<std::uint32_t>(offset >> 32U), static_cast<std::uint32_t>(offset)};
  };
  constexpr std::uint32_t kLength = 1500;
  const Octets expected = [] {
    Octets out = bytes_of({kLength});
    const Octets octets = test::pattern(kLength, 1);
    out.insert(out.end(), octets.begin(), octets.end());
    return out;
  }();
  // A Reply chunk first, another one elsewhere then; and a Call that has room for nothing.
  for (const std::uint32_t at : {0U, 8192U}) {
    peer.send(Rig::call(1, kWide, {kLength}, joined({{0, 0, 1, 1}, segment(at, 4096)})));
    const Octets reply = peer.receive();
    ASSERT_EQ(reply.size(), kMinHeaderBytes + 4 + 16);
    EXPECT_EQ(load_be32(reply.data() + kProcOffset), static_cast<std::uint32_t>(Proc::kNomsg));
    const std::byte* results = peer.memory() + at + kAcceptedReplyBytes;
    EXPECT_EQ(Octets(results, results + expected.size()), expected);
  }
  peer.send(Rig::call(1, kWide, {kLength}));
  EXPECT_EQ(peer.receive().size(), kErrChunkBytes);
  // The same Call as a Long Call.
  const Octets whole = Rig::call(1, kWide, {kLength});
  const Octets payload(whole.begin() + kMinHeaderBytes, whole.end());
  std::ranges::copy(payload, peer.memory() + 16384);
  peer.send(bytes_of(joined({{1, 1, 8, 1, 1, 0},
                             segment(16384, static_cast<std::uint32_t>(payload.size())),
                             {0, 0, 1, 2},
                             segment(24576, 1000),
                             segment(25576, 1000)})));
  const Octets reply = peer.receive();
  ASSERT_EQ(reply.size(), kMinHeaderBytes + 4 + 32);
  const std::byte* results = peer.memory() + 24576 + kAcceptedReplyBytes;
  EXPECT_EQ(Octets(results, results + expected.size()), expected);
  EXPECT_EQ(rig.service.runs, 1U);
}

TEST(ConformanceDuplicates, ADuplicateOfWhatStillRunsWaitsForItsReply) {
  proves("ENG-RT-2", "ENG-RT-6", "R8166-3.3-9");
  for (const bool first_goes : {false, true}) {
    Rig rig;
    auto first = std::make_unique<RawPeer>(rig.pair);
    RawPeer second(rig.pair);
    const Octets call = Rig::call(3, kLater, {});
    first->send(call);
    EXPECT_TRUE(first->receive(20).empty());
    second.send(call);
    EXPECT_TRUE(second.receive(200).empty());
    EXPECT_EQ(rig.service.runs, 1U);
    if (first_goes) first.reset();  // its Reply is nobody's any more, but for the duplicate
    for (int i = 0; i < 2000; ++i) rig.pair.server->step();
    ASSERT_EQ(rig.service.later.size(), 1U);
    rig.service.later[0].reply();
    rig.service.later.clear();
    const Octets reply = second.receive();
    ASSERT_EQ(reply.size(), kMinHeaderBytes + kAcceptedReplyBytes + 4);
    EXPECT_EQ(load_be32(reply.data() + reply.size() - 4), 1U);
    if (!first_goes) {
      EXPECT_EQ(first->receive().size(), reply.size());
    }
    EXPECT_EQ(Rig::ask(second, call), bytes_of({1}));
    EXPECT_EQ(rig.service.runs, 1U);
  }
}

TEST(ConformanceDuplicates, TooManyThatWaitAreTurnedAway) {
  Rig rig;
  RawPeer peer(rig.pair);
  Rig::ask(peer, Rig::call(1, kCount, {1}));
  const Octets call = Rig::call(3, kLater, {});
  for (int i = 0; i < 6; ++i) peer.send(call);
  const Octets refused = peer.receive();
  ASSERT_EQ(refused.size(), kMinHeaderBytes + kAcceptedReplyBytes);
  EXPECT_EQ(load_be32(refused.data() + refused.size() - 4), static_cast<std::uint32_t>(AcceptStat::kSystemErr));
  EXPECT_TRUE(peer.receive(200).empty());
  ASSERT_EQ(rig.service.later.size(), 1U);
  rig.service.later[0].reply();
  rig.service.later.clear();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(peer.receive().size(), kMinHeaderBytes + kAcceptedReplyBytes + 4);
  EXPECT_EQ(rig.service.runs, 2U);
}

TEST(ConformanceDuplicates, WhatFailedOrCannotBeKeptRunsAgain) {
  Rig rig;
  RawPeer peer(rig.pair);
  std::uint32_t runs = 0;
  const auto twice = [&](const Octets& call) {
    for (int i = 0; i < 2; ++i) {
      peer.send(call);
      EXPECT_FALSE(peer.receive().empty());
      EXPECT_EQ(rig.service.runs, ++runs);
    }
  };
  const std::uint64_t offset = peer.offset();
  const Words chunk{1, peer.handle(), 64, static_cast<std::uint32_t>(offset >> 32U),
                    static_cast<std::uint32_t>(offset)};
  twice(Rig::call(1, kRefuse, {}));
  twice(Rig::call(2, kPush, {}, joined({{0, 1}, chunk, {0, 0}})));
  twice(Rig::call(3, kWide, {2500}));  // more than an entry holds
  twice(Rig::call(4, kBad, {}));       // the handler forgot to answer
  twice(Rig::call(5, kWide, {5000}));  // no room for the Reply: ERR_CHUNK
}

TEST(ConformanceDuplicates, TheCacheIsBoundedAndTheOldestMakesRoom) {
  Rig rig(16);
  RawPeer peer(rig.pair);
  for (std::uint32_t xid = 1; xid <= 200; ++xid) {
    EXPECT_EQ(Rig::ask(peer, Rig::call(xid, kCount, {1})), bytes_of({1, xid}));
    EXPECT_EQ(Rig::ask(peer, Rig::call(xid, kCount, {1})), bytes_of({1, xid}));
  }
  EXPECT_EQ(rig.service.runs, 200U);
  std::uint32_t kept = 0;
  for (std::uint32_t xid = 200; xid != 0; --xid) {
    const std::uint32_t before = rig.service.runs;
    static_cast<void>(Rig::ask(peer, Rig::call(xid, kCount, {1})));
    kept += rig.service.runs == before ? 1U : 0U;
  }
  EXPECT_GE(kept, 8U);
  EXPECT_LE(kept, 16U);
}

TEST(ConformanceDuplicates, OurRequesterIsServedOnceAcrossALoss) {
  proves("ENG-RT-1", "ENG-RT-6");
  Rig rig;
  Connection* connection = rig.pair.connect(4);
  const CallTarget target(kProgram, 1, kCount, {});
  const auto arguments = bytes_of({77});
  test::Seen seen;
  CallRequest request{.target = &target, .arguments = arguments, .on_reply = test::Seen::on_reply, .context = &seen};
  CallHandle handle;
  ASSERT_EQ(connection->submit(request, {}, handle), SubmitOutcome::kPosted);
  rig.pair.client->step();  // it leaves, and runs; the Reply finds nobody
  for (int i = 0; i < 100; ++i) rig.pair.server->step();
  EXPECT_EQ(rig.service.runs, 1U);
  rig.pair.client->disconnect(connection);
  rig.pair.until([&] { return rig.pair.client->connection_count() == 0; });
  ASSERT_EQ(seen.times, 1);
  connection = rig.pair.connect(4);
  test::Seen again;
  request.context = &again;
  ASSERT_EQ(connection->submit(request, {.xid = handle.xid}, handle), SubmitOutcome::kPosted);
  rig.pair.until([&] { return again.times == 1; });
  EXPECT_EQ(again.results, bytes_of({77, 1}));
  EXPECT_EQ(rig.service.runs, 1U);
}

}  // namespace
}  // namespace rodeo
