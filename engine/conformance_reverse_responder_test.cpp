// SPDX-License-Identifier: Apache-2.0

// Calls in reverse direction (RFC 8167) at the end that accepted the connection: our Responder calls back a scripted
// Requester.

#include <deque>

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
using test::Seen;
using test::Words;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kBack = 0x20000055;  // of the peer
constexpr std::uint32_t kReverse = 3;        // calls back at once
constexpr std::uint32_t kForward = 4;        // credits that the peer asks for, and the receives of a new connection
enum Procedure : std::uint32_t { kNull, kHold };
const CallTarget kTarget(kBack, 2, 7, Credential{});

std::deque<DeferredCall> held;
std::shared_ptr<Connection> back;

[[nodiscard]] Program program() {
  const Handler null = [](Call& call, void*) noexcept {
    back = call.connection();
    call.reply();
  };
  const Handler hold = [](Call& call, void*) noexcept { held.push_back(call.defer()); };
  return {.number = kProgram,
          .version = 1,
          .name = "test",
          .procedures = {{.number = kNull, .name = "NULL", .handler = null},
                         {.number = kHold, .name = "HOLD", .handler = hold}}};
}

[[nodiscard]] Config calling_back(std::uint32_t credits = kReverse) {
  Config config = test::small_config();
  config.reverse_credits = credits;
  return config;
}

[[nodiscard]] std::uint32_t xid_of(const Octets& message) {
  EXPECT_GE(message.size(), kMinHeaderBytes);
  return message.size() < kMinHeaderBytes ? 0 : load_be32(message.data());
}

/// A peer that is ready for reverse Calls: it has said so by a first Call.
struct Rig {
  explicit Rig(const PrivateData& own = {.send_size = 4096, .receive_size = 4096},
               const Config& config = calling_back())
      : pair(program(), config), peer(pair, own) {
    expect_forward(kForward, kForward);
  }
  ~Rig() {
    held.clear();
    back.reset();
  }

  void send_call(std::uint32_t as_xid, std::uint32_t asked, std::uint32_t procedure) {
    peer.send(bytes_of({as_xid, 1, asked, 0, 0, 0, 0, as_xid, 0, 2, kProgram, 1, procedure, 0, 0, 0, 0}));
  }
  void expect_forward(std::uint32_t asked, std::uint32_t granted) {
    send_call(++xid, asked, kNull);
    EXPECT_EQ(peer.receive(), reply(xid, granted));
  }
  [[nodiscard]] static Octets reply(std::uint32_t xid, std::uint32_t granted) {
    return bytes_of({xid, 1, granted, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0});
  }
  /// What the server has for it, if anything.
  [[nodiscard]] Octets answer_to(const Octets& message) {
    peer.send(message);
    return peer.receive(200);
  }
  Seen& submit(CallRequest request = {.target = &kTarget}) {
    Seen& one = seen.emplace_back();
    request.on_reply = Seen::on_reply;
    request.context = &one;
    EXPECT_EQ(back->submit(request), SubmitOutcome::kPosted);
    return one;
  }
  [[nodiscard]] std::uint32_t submit_and_take() {
    submit();
    return xid_of(peer.receive());
  }
  [[nodiscard]] std::uint64_t counter(std::string_view name) { return Pair::counter(*pair.server, name); }
  void expect_forward_works() { expect_forward(kForward, kForward); }
  /// How many messages find a receive while the server has no turn; they are junk, and discarded.
  [[nodiscard]] std::uint64_t receives_posted() {
    const std::uint64_t before = peer.delivered();
    for (int i = 0; i < 24; ++i) peer.send(bytes_of({1}));
    const std::uint64_t found = peer.delivered() - before;
    for (int i = 0; i < 10000 && peer.delivered() != peer.sent(); ++i) pair.server->step();
    return found;
  }

  std::deque<Seen> seen;
  Pair pair;
  RawPeer peer;
  std::uint32_t xid = 100;
};

TEST(ReverseAtResponder, AReverseCallIsAShortCallThatAsksForReverseCredits) {
  proves("R8167-5.1-1", "R8167-5.1-2", "R8167-2-1", "R8167-4.1-2");
  Rig rig;
  std::byte argument[4];
  store_be32(argument, 0xabcd);
  Seen& seen = rig.submit({.target = &kTarget, .arguments = argument});
  const Octets call = rig.peer.receive();
  const std::uint32_t xid = xid_of(call);
  EXPECT_EQ(call, bytes_of({xid, 1, kReverse, 0, 0, 0, 0, xid, 0, 2, kBack, 2, 7, 0, 0, 0, 0, 0xabcd}));
  EXPECT_TRUE(rig.answer_to(bytes_of({xid, 1, 9, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0, 0x1234})).empty());
  EXPECT_EQ(seen.times, 1);
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(seen.results, bytes_of({0x1234}));
  EXPECT_EQ(rig.counter("reverse_replies"), 1U);
  EXPECT_EQ(rig.counter("calls_received"), 1U) << "a Reply is no Call";
}

TEST(ReverseAtResponder, WhatDoesNotFitInlineIsRefusedHere) {
  proves("R8167-4.2-1", "R8167-5.3-2", "R8167-5.3-1");
  Rig rig({.send_size = 1024, .receive_size = 2048});
  EXPECT_EQ(back->call_threshold(), 2048U);
  EXPECT_EQ(back->reply_threshold(), 1024U);
  const Octets arguments(4096);
  const std::size_t headers = kTarget.bytes().size();
  const auto outcome = [&](CallRequest request) {
    request.target = &kTarget;
    request.on_reply = Seen::on_reply;
    request.context = &rig.seen.emplace_back();
    return back->submit(request);
  };
  const std::span<const std::byte> all(arguments);
  EXPECT_EQ(outcome({.arguments = all.first(2048 - headers + 4)}), SubmitOutcome::kTooLarge);
  EXPECT_EQ(outcome({.max_results = 1024 - 52 + 4}), SubmitOutcome::kTooLarge);
  EXPECT_EQ(outcome({.force_long_call = true}), SubmitOutcome::kTooLarge);
  const RegisteredBytes memory = rig.pair.server->application_memory().first(64);
  const BulkSource sources[] = {{4, memory}};
  EXPECT_EQ(outcome({.arguments = all.first(4), .sources = sources}), SubmitOutcome::kTooLarge);
  EXPECT_EQ(outcome({.sinks = {&memory, 1}}), SubmitOutcome::kTooLarge);
  EXPECT_TRUE(rig.peer.receive(100).empty());
  EXPECT_EQ(back->in_flight(), 0U);
  EXPECT_EQ(outcome({.arguments = all.first(2048 - headers), .max_results = 1024 - 52}), SubmitOutcome::kPosted);
  EXPECT_EQ(rig.peer.receive().size(), 2048U);
}

TEST(ReverseAtResponder, CreditsOfTheDirectionsAreKeptApart) {
  proves("R8167-4.1-1", "R8167-4.1-2", "R8167-4.1-3");
  Rig rig;
  // One until the first Reply, whatever forward Calls ask for.
  EXPECT_EQ(back->credits_left(), 1U);
  rig.expect_forward(1000, 16);
  const std::uint32_t first = rig.submit_and_take();
  EXPECT_EQ(back->credits_left(), 0U);
  // Forward Calls go on while reverse ones are at their limit.
  rig.expect_forward(kForward, kForward);
  EXPECT_EQ(back->credits_left(), 0U);
  EXPECT_TRUE(rig.answer_to(Rig::reply(first, 1000)).empty());
  EXPECT_EQ(back->credits_left(), kReverse);
  // The forward limit is used up, and Replies with other grants come meanwhile.
  for (std::uint32_t i = 0; i < kForward; ++i) rig.send_call(200 + i, kForward, kHold);
  rig.pair.until([] { return held.size() == kForward; });
  for (std::uint32_t i = 0; i < 20; ++i) {
    const std::uint32_t xid = rig.submit_and_take();
    EXPECT_TRUE(rig.answer_to(Rig::reply(xid, i % 3)).empty());
    EXPECT_EQ(back->credits_left(), std::max(1U, i % 3));
  }
  for (std::uint32_t i = 0; i < kForward; ++i) {
    held[i].reply();
    EXPECT_EQ(rig.peer.receive(), Rig::reply(200 + i, kForward)) << "a grant is no request";
  }
}

TEST(ReverseAtResponder, EqualXidsInBothDirectionsAreTwoCalls) {
  proves("R8167-2.4-1", "R8167-2.4-2");
  Rig rig;
  const std::uint32_t xid = rig.submit_and_take();
  rig.send_call(xid, kForward, kHold);
  rig.pair.until([] { return held.size() == 1; });
  rig.send_call(xid, kForward, kNull);
  EXPECT_EQ(rig.peer.receive(), Rig::reply(xid, kForward));
  EXPECT_EQ(rig.seen.back().times, 0);
  EXPECT_TRUE(rig.answer_to(Rig::reply(xid, 1)).empty());
  EXPECT_EQ(rig.seen.back().times, 1);
  EXPECT_EQ(rig.seen.back().error, CallError::kNone);
  held.front().reply();
  EXPECT_EQ(rig.peer.receive(), Rig::reply(xid, kForward));
}

TEST(ReverseAtResponder, ThereAreReceivesForTheGrantAndForReverseReplies) {
  proves("R8167-4.3-2", "R8167-4.3-3");
  for (int connection = 0; connection < 2; ++connection) {
    Rig rig;
    EXPECT_EQ(rig.receives_posted(), kForward + kReverse);
    rig.expect_forward(6, 6);
    EXPECT_EQ(rig.receives_posted(), 6 + kReverse);
    // All that may come at once.
    (void)rig.answer_to(Rig::reply(rig.submit_and_take(), kReverse));
    std::vector<std::uint32_t> xids;
    for (std::uint32_t i = 0; i < kReverse; ++i) xids.push_back(rig.submit_and_take());
    const std::uint64_t before = rig.peer.delivered();
    for (std::uint32_t i = 0; i < 6; ++i) rig.send_call(300 + i, 6, kHold);
    for (const std::uint32_t xid : xids) rig.peer.send(Rig::reply(xid, kReverse));
    EXPECT_EQ(rig.peer.delivered() - before, 6 + kReverse);
    rig.pair.until([] { return held.size() == 6 && back->in_flight() == 0; });
    for (DeferredCall& call : held) {
      call.reply();
      EXPECT_FALSE(rig.peer.receive().empty());
    }
    EXPECT_EQ(rig.receives_posted(), 6 + kReverse);
  }
  {
    Pair pair(program(), calling_back());
    RawPeer peer(pair);
    for (int i = 0; i < 24; ++i) peer.send(bytes_of({1}));
    EXPECT_EQ(peer.delivered(), kForward + kReverse) << "as soon as it is connected";
  }
}

TEST(ReverseAtResponder, MessagesWhoseDirectionCannotBeToldChangeNoCredits) {
  proves("R8167-4.1-4", "ENG-8167-1");
  Rig rig;
  const std::uint32_t xid = rig.submit_and_take();
  // Truncated before msg_type, or with one that there is not: the Responder answers, as it must, and heeds nothing.
  for (const Words& body : {Words{xid, 1, 1000, 0, 0, 0, 0}, Words{xid, 1, 1000, 0, 0, 0, 0, xid},
                            Words{xid, 1, 1000, 0, 0, 0, 1}, Words{xid, 1, 1000, 2, 0, 0, 0}}) {
    EXPECT_EQ(rig.answer_to(bytes_of(body)), bytes_of({xid, 1, kForward, 4, 2})) << body.size();
    EXPECT_EQ(back->credits_left(), 0U);
  }
  EXPECT_EQ(rig.answer_to(bytes_of({xid, 7, 1000, 0, 0, 0, 0})), bytes_of({xid, 7, kForward, 4, 1, 1, 1}));
  EXPECT_TRUE(rig.answer_to(bytes_of({xid, 1, 1000, 0, 0, 0, 0, xid, 7})).empty());
  EXPECT_TRUE(rig.answer_to(bytes_of({xid, 1, 1000, 3, 0, 0, 0})).empty());
  EXPECT_EQ(rig.receives_posted(), kForward + kReverse);
  EXPECT_EQ(rig.seen.back().times, 0);
  EXPECT_TRUE(rig.answer_to(Rig::reply(xid, 1)).empty());
  EXPECT_EQ(rig.seen.back().error, CallError::kNone);
  rig.expect_forward_works();
}

TEST(ReverseAtResponder, MessagesForTheRequesterNeverGetAnAnswer) {
  proves("ENG-8167-1", "R8166-4.2.4-6");
  Rig rig;
  const std::uint32_t xid = rig.submit_and_take();
  const Words segment = {0x11, 64, 0, 0x1000};
  // Replies and errors to nobody; Long Replies, and Replies with chunks, to a call that offered none.
  for (const Words& body : {Words{xid + 9, 1, 5, 0, 0, 0, 0, xid + 9, 1, 0, 0, 0, 0}, Words{xid + 9, 1, 5, 4, 2},
                            Words{xid + 9, 1, 5, 4, 1, 1, 1}, joined({{xid, 1, 5, 1, 0, 0, 1, 1}, segment}),
                            joined({{xid, 1, 5, 0, 1, 0}, segment, {0, 0, 0, xid, 1, 0, 0, 0, 0}}),
                            joined({{xid, 1, 5, 0, 0, 0, 1, 1}, segment, {xid, 1, 0, 0, 0, 0}})}) {
    EXPECT_TRUE(rig.answer_to(bytes_of(body)).empty());
    EXPECT_EQ(rig.seen.back().times, 0);
    EXPECT_EQ(back->credits_left(), 0U);
  }
  EXPECT_TRUE(rig.answer_to(bytes_of({xid, 1, 2, 4, 1, 1, 1})).empty());
  EXPECT_EQ(rig.seen.back().times, 1);
  EXPECT_EQ(rig.seen.back().error, CallError::kErrVers);
  EXPECT_EQ(back->credits_left(), 2U);
  rig.expect_forward_works();
}

TEST(ReverseAtResponder, AnEngineThatCallsNobodyBackTakesRepliesForNobodys) {
  proves("R8167-6-1", "R8167-4.1-3", "ENG-8167-1");
  Rig rig({.send_size = 4096, .receive_size = 4096}, calling_back(0));
  EXPECT_EQ(back, nullptr);
  EXPECT_EQ(rig.receives_posted(), kForward);
  EXPECT_TRUE(rig.answer_to(Rig::reply(7, 1000)).empty());
  EXPECT_EQ(rig.counter("messages_not_for_us"), 1U);
  EXPECT_EQ(rig.counter("calls_received"), 1U);
  EXPECT_EQ(rig.receives_posted(), kForward) << "a grant is no request";
  rig.expect_forward_works();
}

TEST(ReverseAtResponder, OnlyThePeerConnectsAgainAndCallsEndMeanwhile) {
  proves("R8167-5.4-1");
  Pair pair(program(), calling_back());
  std::deque<Seen> seen;
  const auto submit = [&](const CallOptions& options, CallHandle& handle) -> Seen& {
    Seen& one = seen.emplace_back();
    const CallRequest request{.target = &kTarget, .on_reply = Seen::on_reply, .context = &one};
    EXPECT_EQ(back->submit(request, options, handle), SubmitOutcome::kPosted);
    return one;
  };
  CallHandle lost;
  std::shared_ptr<Connection> before;
  {
    RawPeer peer(pair);
    peer.send(bytes_of({1, 1, 2, 0, 0, 0, 0, 1, 0, 2, kProgram, 1, kNull, 0, 0, 0, 0}));
    EXPECT_FALSE(peer.receive().empty());
    before = back;
    submit({}, lost);
    EXPECT_EQ(xid_of(peer.receive()), lost.xid);
  }
  pair.until([&] { return seen.front().times == 1; });
  EXPECT_EQ(seen.front().error, CallError::kConnectionLost);
  pair.until([&] { return pair.server->connection_count() == 0; });
  // What was kept of the connection can be asked, and tells that it has gone.
  EXPECT_FALSE(before->open());
  EXPECT_EQ(before->loop(), 0U);
  EXPECT_EQ(before->credits_left(), 0U);
  EXPECT_EQ(before->submit({.target = &kTarget, .on_reply = Seen::on_reply}), SubmitOutcome::kClosed);
  EXPECT_EQ(before->cancel(lost), CancelOutcome::kUnknown);
  test::expect_adds_up(*pair.server);
  // The peer connects again: the same call may be sent again, or timed out.
  RawPeer peer(pair);
  peer.send(bytes_of({1, 1, 2, 0, 0, 0, 0, 1, 0, 2, kProgram, 1, kNull, 0, 0, 0, 0}));
  EXPECT_FALSE(peer.receive().empty());
  EXPECT_NE(back, before);
  CallHandle again;
  Seen& second = submit({.xid = lost.xid}, again);
  EXPECT_EQ(again.xid, lost.xid);
  EXPECT_EQ(xid_of(peer.receive()), lost.xid);
  peer.send(Rig::reply(lost.xid, 1));
  pair.until([&] { return second.times == 1; });
  EXPECT_EQ(second.error, CallError::kNone);
  Seen& third = submit({.timeout_ms = 5}, again);
  for (int i = 0; i < 1000 && third.times == 0; ++i) {
    ::usleep(1000);
    for (int turn = 0; turn < 50; ++turn) pair.server->step();
  }
  EXPECT_EQ(third.error, CallError::kTimedOut);
  EXPECT_TRUE(back->open());
  back.reset();
}

}  // namespace
}  // namespace rodeo
