// SPDX-License-Identifier: Apache-2.0

// Credits and XIDs, against scripted peers of both roles: what is granted and kept, what shrinks while Calls are out,
// and which Reply belongs to which Call when XIDs come again.

#include <algorithm>
#include <deque>
#include <memory>
#include <random>
#include <set>

#include "engine/raw_responder.h"
#include "engine/test_words.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::bytes_of;
using test::Octets;
using test::Pair;
using test::RawPeer;
using test::RawResponder;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kMost = 16;  // credits of small_config()

/// Mostly few, now and then any number.
[[nodiscard]] std::uint32_t some_credits(std::mt19937& random) {
  const auto value = static_cast<std::uint32_t>(random());
  return value % 8 == 0 ? value : value % 20;
}

// A scripted Requester.

std::deque<DeferredCall> held;
int served = 0;

/// 0 answers with its argument, 1 does so when the test says.
[[nodiscard]] Program program() {
  const Handler echo = [](Call& call, void*) noexcept {
    ++served;
    call.results().u32(call.arguments().u32());
    call.reply();
  };
  const Handler hold = [](Call& call, void*) noexcept {
    ++served;
    call.results().u32(call.arguments().u32());
    held.push_back(call.defer());
  };
  return {
      .number = kProgram,
      .version = 1,
      .name = "test",
      .procedures = {{.number = 0, .name = "ECHO", .handler = echo}, {.number = 1, .name = "HOLD", .handler = hold}}};
}

struct RequesterSide {
  explicit RequesterSide(Pair& engines) : pair(engines), peer(engines) {}

  void send(std::uint32_t asked, std::uint32_t procedure = 0) {
    ++xid;
    send_as(xid, xid, asked, procedure);
  }
  void send_as(std::uint32_t as_xid, std::uint32_t argument, std::uint32_t asked, std::uint32_t procedure) {
    peer.send(bytes_of({as_xid, 1, asked, 0, 0, 0, 0, as_xid, 0, 2, kProgram, 1, procedure, 0, 0, 0, 0, argument}));
  }
  /// The XID, or 0 when nothing comes. `granted` and `result` become those of the Reply.
  std::uint32_t receive(int turns = 2000) {
    const Octets reply = peer.receive(turns);
    if (reply.size() != kMinHeaderBytes + kAcceptedReplyBytes + 4) return 0;
    granted = load_be32(reply.data() + kCreditOffset);
    result = load_be32(reply.data() + kMinHeaderBytes + kAcceptedReplyBytes);
    return load_be32(reply.data());
  }
  void answer_held(bool newest_first = false) {
    DeferredCall call = newest_first ? std::move(held.back()) : std::move(held.front());
    newest_first ? held.pop_back() : held.pop_front();
    call.reply();
  }
  /// How many of `count` Calls find a receive while the Responder has no turn; all are answered in the end.
  std::uint64_t find_receives(std::uint32_t count, std::uint32_t asked) {
    const std::uint64_t before = peer.delivered();
    for (std::uint32_t i = 0; i < count; ++i) send(asked);
    const std::uint64_t found = peer.delivered() - before;
    for (std::uint32_t i = 0; i < count; ++i) EXPECT_NE(receive(), 0U);
    return found;
  }

  Pair& pair;
  RawPeer peer;
  std::uint32_t xid = 100;
  std::uint32_t granted = 0;
  std::uint32_t result = 0;
};

TEST(ConformanceCredits, AGrantShrinksBelowWhatIsOutstandingWithoutCancellingReceives) {
  proves("ENG-CR-3", "ENG-CR-4", "R8166-3.3-5", "R8166-3.3-7");
  if (test::shared_receives()) proves("F37");
  constexpr std::uint32_t kHeld = 10;
  Pair pair(program());
  RequesterSide side(pair);
  side.send(kMost);
  ASSERT_NE(side.receive(), 0U);
  ASSERT_EQ(side.granted, kMost);
  for (std::uint32_t i = 0; i < kHeld; ++i) side.send(kMost, 1);
  pair.until([] { return held.size() == kHeld; });
  // Another one asks for less, and those that may follow it under the old grant are in the pipe before its Reply is.
  const std::uint64_t before = side.peer.delivered();
  for (std::uint32_t i = kHeld; i < kMost; ++i) side.send(2);
  EXPECT_EQ(side.peer.delivered(), before + kMost - kHeld);
  for (std::uint32_t i = kHeld; i < kMost; ++i) {
    ASSERT_NE(side.receive(), 0U);
    EXPECT_EQ(side.granted, 2U);
  }
  while (!held.empty()) {
    side.answer_held();
    ASSERT_NE(side.receive(), 0U);
    EXPECT_EQ(side.granted, 2U);
  }
  // No more are posted than are granted now, and never less.
  EXPECT_EQ(side.find_receives(6, 2), 2U);
  // It grows again: a Reply that says so comes when the receives are there.
  side.send(kMost);
  ASSERT_NE(side.receive(), 0U);
  EXPECT_EQ(side.granted, kMost);
  EXPECT_EQ(side.find_receives(kMost, kMost), kMost);
  EXPECT_FALSE(side.peer.disconnected());
}

TEST(ConformanceCredits, WhateverIsAskedForThereIsAReceiveForEachCreditGranted) {
  proves("R8166-3.3-3", "R8166-3.3-6", "R8166-3.3-7", "ENG-CR-4", "ENG-CR-11");
  if (test::shared_receives()) proves("F37");
  Pair pair(program());
  RequesterSide side(pair);
  std::mt19937 random(4);
  side.send(1);
  ASSERT_NE(side.receive(), 0U);
  for (int round = 0; round < 500 && !HasFailure(); ++round) {
    const std::uint32_t granted = side.granted;
    const std::uint32_t asked = some_credits(random);
    EXPECT_EQ(side.find_receives(granted, asked), granted) << round;
    EXPECT_GE(side.granted, 1U);
    EXPECT_LE(side.granted, kMost);
    EXPECT_EQ(side.granted, std::clamp(asked, 1U, kMost)) << round;
  }
}

TEST(ConformanceCredits, WhoIgnoresItsGrantFindsNoReceivesAndHarmsNobodyElse) {  // F02, F16
  proves("F02", "F16");
  Pair pair(program());
  RequesterSide beside(pair);
  beside.send(1);
  ASSERT_NE(beside.receive(), 0U);
  for (int round = 0; round < 20 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    RequesterSide side(pair);
    side.send(0xffffffff);
    ASSERT_NE(side.receive(), 0U);
    ASSERT_EQ(side.granted, kMost);
    // The odd rounds as many again as there are receives, and all of them at once.
    const std::uint32_t count = side.granted + (round % 2 == 0 ? 8U : kMost);
    const std::uint64_t before = side.peer.delivered();
    for (std::uint32_t i = 0; i < count; ++i) side.send(0xffffffff);
    EXPECT_EQ(side.peer.delivered(), before + side.granted) << "a receive for each credit, and no more";
    // The rest waits at the sender until there are receives again; nobody beside waits.
    beside.send(1);
    EXPECT_EQ(beside.receive(), beside.xid);
    for (std::uint32_t i = 0; i < count; ++i) EXPECT_NE(side.receive(), 0U) << i;
    EXPECT_EQ(side.peer.delivered(), before + count);
    // And within its grant it is served as before.
    EXPECT_EQ(side.find_receives(kMost, kMost), kMost);
  }
  pair.until([&] { return pair.server->connection_count() == 1; });
  EXPECT_EQ(beside.find_receives(1, 1), 1U);
  EXPECT_FALSE(beside.peer.disconnected());
}

TEST(ConformanceCredits, WhereBuffersAreShortNoMoreIsGrantedThanReceivesArePosted) {
  proves("R8166-3.3-7", "ENG-CR-4");
  constexpr std::uint32_t kPeers = 4;
  Config config = test::small_config();
  config.small_buffers = kPeers * kMost - 8;
  Pair pair(program(), config);
  std::vector<std::unique_ptr<RequesterSide>> sides;
  std::vector<std::uint32_t> granted;
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    RequesterSide& side = *sides.emplace_back(std::make_unique<RequesterSide>(pair));
    side.send(kMost);
    const Octets reply = side.peer.receive();  // SYSTEM_ERR, where there is no buffer for its results either
    ASSERT_GE(reply.size(), kMinHeaderBytes + kAcceptedReplyBytes);
    granted.push_back(load_be32(reply.data() + kCreditOffset));
  }
  EXPECT_EQ(granted.front(), kMost);
  EXPECT_GE(granted.back(), 1U);
  EXPECT_LT(granted.back(), kMost);
  for (std::uint32_t i = 0; i < kPeers; ++i) {
    const std::uint64_t before = sides[i]->peer.delivered();
    for (std::uint32_t sent = 0; sent < granted[i]; ++sent) sides[i]->send(kMost);
    EXPECT_EQ(sides[i]->peer.delivered(), before + granted[i]) << i;
  }
}

TEST(ConformanceCredits, HeldCallsCountAsLongAsTheyAreNotAnswered) {
  proves("R8166-3.3-5", "R8166-3.3-7", "R5531-9-5");
  if (test::shared_receives()) proves("F37");
  Pair pair(program());
  RequesterSide side(pair);
  std::mt19937 random(5);
  side.send(kMost);
  ASSERT_NE(side.receive(), 0U);
  std::multiset<std::uint32_t> out;
  for (int round = 0; round < 1000 && !HasFailure(); ++round) {
    if (out.size() < side.granted && random() % 2 == 0) {
      // As many more as the grant allows, all at once.
      const std::uint64_t before = side.peer.delivered();
      const std::uint64_t more = 1 + random() % (side.granted - out.size());
      for (std::uint64_t i = 0; i < more; ++i) {
        side.send(kMost, 1);
        out.insert(side.xid);
      }
      EXPECT_EQ(side.peer.delivered(), before + more);
      pair.until([&] { return held.size() == out.size(); });
    } else if (!out.empty()) {
      side.answer_held(random() % 2 == 0);
      const std::uint32_t xid = side.receive();
      EXPECT_EQ(out.count(xid), 1U);
      EXPECT_EQ(side.result, xid);
      EXPECT_EQ(side.granted, kMost);
      out.erase(xid);
    }
  }
  while (!held.empty()) side.answer_held();
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NE(side.receive(), 0U);
}

TEST(ConformanceCredits, CallsWithTheSameXidAreCallsOfTheirOwn) {
  proves("R8166-2.2-2", "R8166-3.3-9");
  Pair pair(program());
  RequesterSide side(pair);
  RequesterSide other(pair);
  side.send(8);
  ASSERT_NE(side.receive(), 0U);
  const int before = served;
  // At the same time on one connection and on another, one after the other, and sent again.
  side.send_as(7, 1, 8, 1);
  side.send_as(7, 2, 8, 1);
  other.send_as(7, 3, 8, 1);
  pair.until([] { return held.size() == 3; });
  while (!held.empty()) side.answer_held();
  std::set<std::uint32_t> results;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(side.receive(), 7U);
    results.insert(side.result);
  }
  EXPECT_EQ(other.receive(), 7U);
  EXPECT_EQ(other.result, 3U);
  EXPECT_EQ(results, (std::set<std::uint32_t>{1, 2}));
  for (const std::uint32_t argument : {5U, 5U, 6U}) {
    side.send_as(7, argument, 8, 0);
    EXPECT_EQ(side.receive(), 7U);
    EXPECT_EQ(side.result, argument);
  }
  EXPECT_EQ(served, before + 6);
  EXPECT_EQ(side.receive(50), 0U);
  EXPECT_EQ(other.receive(50), 0U);
}

TEST(ConformanceCredits, ARequesterThatIsGoneLeavesItsRepliesToNobody) {
  proves("ENG-RT-2");
  Pair pair(program());
  RequesterSide bystander(pair);
  auto gone = std::make_unique<RequesterSide>(pair);
  gone->send(8, 1);
  pair.until([] { return held.size() == 1; });
  gone.reset();
  for (int i = 0; i < 1000; ++i) pair.server->step();
  RequesterSide next(pair);
  next.answer_held();
  EXPECT_EQ(next.receive(500), 0U);
  EXPECT_EQ(bystander.receive(500), 0U);
  next.send_as(101, 4, 8, 0);  // the XID of the Call before
  EXPECT_EQ(next.receive(), 101U);
  EXPECT_EQ(next.result, 4U);
  pair.until([&] { return pair.server->connection_count() == 2; });
  EXPECT_EQ(Pair::counter(*pair.server, "replies_dropped"), 1U);
}

// A scripted Responder.

const CallTarget kTarget(kProgram, 1, 1, Credential{});

struct ResponderSide {
  explicit ResponderSide(std::uint32_t asked) : connection(raw.connect(asked)) {}

  /// Submits whatever is taken, up to `most`, and takes what arrives.
  void flood(std::size_t most = 1000) {
    for (; most != 0; --most) {
      Seen& one = seen.emplace_back();
      if (connection->submit({.target = &kTarget, .on_reply = Seen::on_reply, .context = &one}) ==
          SubmitOutcome::kPosted) {
        continue;
      }
      seen.pop_back();
      break;
    }
    raw.turns(10);
    while (raw.waiting() != 0) out.push_back(load_be32(raw.receive().data()));
  }
  /// Sends when there is surely a receive for it, and lets the Requester take it.
  void deliver(const Octets& message) {
    raw.send(message);
    raw.until([&] { return raw.delivered() == raw.sent(); });
    raw.turns(5);
  }
  [[nodiscard]] static Octets reply(std::uint32_t xid, std::uint32_t granted) {
    return bytes_of({xid, 1, granted, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0});
  }
  [[nodiscard]] std::size_t completed() const {
    return static_cast<std::size_t>(std::ranges::count_if(seen, [](const Seen& one) { return one.times != 0; }));
  }

  std::deque<Seen> seen;  // outlives the engine
  RawResponder raw;
  Connection* connection;
  std::vector<std::uint32_t> out;  // XIDs of Calls not answered
};

TEST(ConformanceCredits, WhateverIsGrantedTheRequesterNeverExceedsIt) {
  proves("R8166-3.3-2", "R8166-3.3-4", "R8166-3.3-6", "R8166-3.3-11", "R8166-3.3-12", "R5531-9-4", "ENG-CR-1",
         "ENG-CR-2");
  for (const std::uint32_t asked : {1U, 5U, 16U}) {
    ResponderSide side(asked);
    std::mt19937 random(asked);
    std::size_t limit = 1;
    for (int round = 0; round < 500 && !HasFailure(); ++round) {
      const std::size_t before = side.out.size();
      side.flood();
      EXPECT_EQ(side.out.size(), std::max(before, limit)) << round;
      EXPECT_EQ(std::set(side.out.begin(), side.out.end()).size(), side.out.size());
      // Some are answered, in any order; the latest grant counts.
      for (std::size_t left = 1 + random() % side.out.size(); left != 0; --left) {
        const auto which = side.out.begin() + static_cast<std::ptrdiff_t>(random() % side.out.size());
        const std::uint32_t granted = some_credits(random);
        side.raw.send(ResponderSide::reply(*which, granted));
        side.out.erase(which);
        limit = std::clamp(granted, 1U, asked);
      }
      side.raw.turns(10);
      EXPECT_EQ(side.connection->in_flight(), side.out.size());
    }
  }
}

TEST(ConformanceCredits, LateRepliesNeitherEndALaterCallNorGrantAnything) {
  proves("ENG-CR-5", "ENG-RT-5", "ENG-RX-4", "R8166-2.2-2");
  ResponderSide side(1);  // each Call takes the place of the one before
  std::vector<std::uint32_t> before;
  for (std::size_t call = 0; call < 64; ++call) {
    side.flood();
    ASSERT_EQ(side.out.size(), 1U);
    const std::uint32_t xid = side.out.front();
    EXPECT_EQ(std::ranges::count(before, xid), 0);
    for (std::size_t i = 0; i < std::min<std::size_t>(before.size(), 8); ++i) {
      const std::uint32_t old = before[before.size() - 1 - i];
      side.deliver(ResponderSide::reply(old, 1000));
      side.deliver(bytes_of({old, 1, 1000, 4, 2}));
    }
    EXPECT_EQ(side.completed(), call);
    EXPECT_EQ(side.connection->in_flight(), 1U);
    side.deliver(ResponderSide::reply(xid, 1));
    side.deliver(ResponderSide::reply(xid, 1000));  // and once more
    EXPECT_EQ(side.completed(), call + 1);
    side.out.clear();
    before.push_back(xid);
  }
  for (const Seen& one : side.seen) EXPECT_EQ(one.times, 1);
}

TEST(ConformanceCredits, ACallIsSentOnceHoweverLongItsReplyTakes) {
  proves("ENG-CR-8");
  ResponderSide side(4);
  side.flood();
  ASSERT_EQ(side.out.size(), 1U);
  side.raw.turns(20000);
  EXPECT_EQ(side.raw.waiting(), 0U);
  EXPECT_EQ(side.connection->in_flight(), 1U);
  side.raw.send(ResponderSide::reply(side.out.front(), 4));
  side.raw.turns(10);
  EXPECT_EQ(side.completed(), 1U);
}

TEST(ConformanceCredits, ANewConnectionStartsWithOneCreditAgain) {
  proves("R8166-3.3-11");
  ResponderSide side(8);
  for (int round = 0; round < 3; ++round) {
    side.flood();
    ASSERT_EQ(side.out.size(), 1U);
    side.raw.send(ResponderSide::reply(side.out.front(), 8));
    side.out.clear();
    side.raw.turns(10);
    side.flood();
    EXPECT_EQ(side.out.size(), 8U);
    for (const std::uint32_t xid : side.out) side.raw.send(ResponderSide::reply(xid, 8));
    side.raw.turns(20);
    side.out.clear();
    side.raw.client().disconnect(side.connection);
    side.raw.until([&] { return side.raw.client().connection_count() == 0; });
    side.connection = side.raw.connect(8);
  }
}

}  // namespace
}  // namespace rodeo
