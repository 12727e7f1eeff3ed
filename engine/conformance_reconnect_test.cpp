// SPDX-License-Identifier: Apache-2.0

// A scripted Responder that hangs up, and our Requester that connects again: which Calls come again, how, and when.

#include <set>

#include "engine/persistent_connection.h"
#include "engine/scripted_session.h"

namespace rodeo {
namespace {

using std::chrono::milliseconds;
using test::kTarget;
using test::RawResponder;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr PersistentOptions kQuick{
    .connect = {.credits = 8}, .first_delay = milliseconds(2), .longest_delay = milliseconds(20)};

struct Rig {
  explicit Rig(const PersistentOptions& options = kQuick, Registration registration = Registration::kPoolKey)
      : raw(encode_private_data({.send_size = 4096, .receive_size = 4096}), config_with(registration)),
        connection(raw.client(), raw.address(), options) {}
  ~Rig() {
    connection.close();
    for (int i = 0; i < 20000 && connection.pending() != 0; ++i) turn();
  }

  static Config config_with(Registration registration) {
    Config config = test::small_config();
    config.registration = registration;
    return config;
  }
  Seen& submit(CallRequest request, const PersistentCall& how) {
    Seen& one = seen.emplace_back();
    request.on_reply = Seen::on_reply;
    request.context = &one;
    EXPECT_TRUE(connection.submit(request, how));
    return one;
  }
  void turn() {
    raw.turn();
    connection.maintain();
  }
  void until(const std::function<bool()>& done) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done() && std::chrono::steady_clock::now() < limit) turn();
    EXPECT_TRUE(done());
  }
  /// The next Call's octets.
  std::vector<std::byte> take() {
    until([&] { return raw.waiting() != 0; });
    return raw.receive();
  }
  void answer(const std::vector<std::byte>& call, std::uint32_t granted = 8) {
    raw.send(test::Session::plain_reply(load_be32(call.data()), granted));
  }
  /// The first call on a connection brings credits.
  void settle() {
    Seen& first = submit({.target = &kTarget}, {.idempotent = true});
    answer(take());
    until([&] { return first.times == 1; });
  }

  std::deque<Seen> seen;
  RawResponder raw;
  PersistentConnection connection;
};

TEST(ConformanceReconnect, IdempotentCallsComeAgainInOrderWithTheirXidsUnderTheFirstCallRule) {
  proves("ENG-RT-1", "ENG-CR-8", "ENG-CR-9", "R5531-9-4", "R8166-3.3-11", "R8166-3.3-12", "R8166-4.5.5-1", "F03");
  Rig rig;
  rig.settle();
  std::vector<Seen*> seen;
  std::vector<std::uint32_t> words;
  for (std::uint32_t i = 0; i < 8; ++i) words.push_back(i);
  std::vector<std::vector<std::byte>> arguments;
  for (std::uint32_t i = 0; i < 8; ++i) arguments.push_back(test::bytes_of({i}));
  for (std::uint32_t i = 0; i < 8; ++i) {
    seen.push_back(&rig.submit({.target = &kTarget, .arguments = arguments[i]}, {.idempotent = true}));
  }
  std::vector<std::vector<std::byte>> first;
  for (int i = 0; i < 8; ++i) first.push_back(rig.take());
  rig.answer(first[2]);  // one is answered in time
  rig.until([&] { return seen[2]->times == 1; });
  rig.raw.hang_up();
  const std::uint32_t made = rig.raw.connections_made();
  rig.until([&] { return rig.raw.connections_made() == made + 1; });
  // One, until its Reply; then the others, in their order, with the octets that they had before.
  std::vector<std::vector<std::byte>> again{rig.take()};
  for (int i = 0; i < 300; ++i) rig.turn();
  EXPECT_EQ(rig.raw.waiting(), 0U);
  rig.answer(again[0]);
  for (int i = 1; i < 7; ++i) again.push_back(rig.take());
  for (int i = 1; i < 7; ++i) rig.answer(again[static_cast<std::size_t>(i)]);
  rig.until([&] { return std::ranges::all_of(seen, [](const Seen* one) { return one->times == 1; }); });
  first.erase(first.begin() + 2);
  EXPECT_EQ(again, first);
  for (const Seen* one : seen) EXPECT_EQ(one->error, CallError::kNone);
}

TEST(ConformanceReconnect, OtherCallsEndAndSayThatTheyMayHaveRun) {
  proves("ENG-RT-6", "R8267-4-2");
  Rig rig;
  rig.settle();
  Seen& once = rig.submit({.target = &kTarget}, {});
  Seen& twice = rig.submit({.target = &kTarget}, {.idempotent = true});
  static_cast<void>(rig.take());
  static_cast<void>(rig.take());
  rig.raw.hang_up();
  rig.until([&] { return once.times == 1; });
  EXPECT_EQ(once.error, CallError::kConnectionLost);
  const auto call = rig.take();
  // What was never sent is not lost, whatever it is.
  Seen& waiting = rig.submit({.target = &kTarget}, {});
  for (int i = 0; i < 100; ++i) rig.turn();
  EXPECT_EQ(waiting.times, 0);
  rig.answer(call);
  rig.answer(rig.take());
  rig.until([&] { return twice.times == 1 && waiting.times == 1; });
  EXPECT_EQ(waiting.error, CallError::kNone);
  EXPECT_EQ(twice.error, CallError::kNone);
  EXPECT_EQ(once.times, 1);
}

TEST(ConformanceReconnect, ChunksOfACallThatComesAgainHaveNewKeys) {
  proves("ENG-RT-1", "ENG-MR-3");
  Rig rig(kQuick, Registration::kKeyPerCall);
  rig.settle();
  const RegisteredBytes sinks[] = {rig.raw.client().application_memory().first(64)};
  Seen& seen = rig.submit({.target = &kTarget, .sinks = sinks, .max_results = 8}, {.idempotent = true});
  std::set<std::uint32_t> keys;
  std::set<std::uint32_t> xids;
  for (int i = 0; i < 3; ++i) {
    const auto call = rig.take();
    TransportHeader header;
    const auto lists = std::make_unique<ChunkLists>();
    ASSERT_EQ(decode_call_header(call, header, *lists), HeaderOutcome::kOk);
    keys.insert(lists->write_chunk(0)[0].handle);
    xids.insert(header.xid);
    if (i == 2) {
      rig.answer(call);
      break;
    }
    rig.raw.hang_up();
  }
  rig.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_EQ(xids.size(), 1U);
}

TEST(ConformanceReconnect, ACallThatKillsEveryConnectionEndsAfterSomeSends) {
  proves("ENG-RX-6", "R8166-4.5.5-1");
  Rig rig;
  Seen& poison = rig.submit({.target = &kTarget}, {.idempotent = true});
  for (std::uint32_t i = 0; i < PersistentOptions{}.most_sends; ++i) {
    static_cast<void>(rig.take());
    EXPECT_EQ(poison.times, 0);
    rig.raw.hang_up();
  }
  rig.until([&] { return poison.times == 1; });
  EXPECT_EQ(poison.error, CallError::kConnectionLost);
  rig.settle();
}

TEST(ConformanceReconnect, APeerThatHangsUpAtOnceIsNotBesieged) {  // F27
  proves("F27", "ENG-RT-8");
  Rig rig({.connect = {.credits = 8},
           .first_delay = milliseconds(4),
           .longest_delay = milliseconds(64),
           .most_sends = 1000});
  Seen& seen = rig.submit({.target = &kTarget}, {.idempotent = true});
  const auto begin = std::chrono::steady_clock::now();
  std::vector<std::chrono::steady_clock::time_point> attempts;
  while (std::chrono::steady_clock::now() - begin < milliseconds(400)) {
    rig.turn();
    if (attempts.size() < rig.connection.attempts()) attempts.push_back(std::chrono::steady_clock::now());
    if (rig.raw.waiting() == 0) continue;
    static_cast<void>(rig.raw.receive());
    rig.raw.hang_up();
  }
  // 4 + 8 + 16 + 32 + 64 + 64 + 64 + ... ms, at least half of each.
  EXPECT_LE(attempts.size(), 16U);
  EXPECT_GE(attempts.size(), 5U);
  ASSERT_GE(attempts.size(), 5U);
  EXPECT_GE(attempts[4] - attempts[3], milliseconds(16));
  EXPECT_EQ(seen.times, 0);
  EXPECT_FALSE(rig.connection.last_failure().empty());
  rig.answer(rig.take());
  rig.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kNone);
}

TEST(ConformanceReconnect, WhoIsNotThereIsAskedAgain) {
  proves("ENG-RT-8");
  const auto engine = test::must(Engine::open("soft:later", Rig::config_with(Registration::kPoolKey)));
  ASSERT_TRUE(engine->start());
  Seen seen;
  PersistentConnection connection(*engine, "soft:later", kQuick);
  ASSERT_TRUE(connection.submit({.target = &kTarget, .on_reply = Seen::on_reply, .context = &seen}));
  const auto turn = [&](Engine* other) {
    engine->step();
    if (other != nullptr) other->step();
    connection.maintain();
  };
  while (connection.attempts() < 4) turn(nullptr);
  EXPECT_NE(connection.last_failure(), "");
  EXPECT_EQ(seen.times, 0);
  const auto server = test::must(Engine::open("soft:later", Rig::config_with(Registration::kPoolKey)));
  Program program{.number = test::kProgram, .version = 1, .name = "test", .procedures = {}};
  program.procedures.push_back(
      {.number = 1, .name = "NULL", .handler = [](Call& call, void*) noexcept { call.reply(); }});
  ASSERT_TRUE(server->add_program(std::move(program)));
  ASSERT_TRUE(server->start());
  ASSERT_TRUE(server->listen("soft:later"));
  for (int i = 0; i < 2000000 && seen.times == 0; ++i) turn(server.get());
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_TRUE(connection.connected());
  connection.close();
}

TEST(ConformanceReconnect, WhatNeverLeftSaysSo) {
  const auto engine = test::must(Engine::open("soft:nobody", Rig::config_with(Registration::kPoolKey)));
  ASSERT_TRUE(engine->start());
  struct Told {
    int times = 0;
    CallError error = CallError::kNone;
    Ran ran = Ran::kYes;
  } told;
  PersistentConnection connection(*engine, "soft:nobody", kQuick);
  ASSERT_TRUE(connection.submit({.target = &kTarget,
                                 .on_reply =
                                     [](void* context, const Reply& reply) noexcept {
                                       auto& self = *static_cast<Told*>(context);
                                       ++self.times;
                                       self.error = reply.error;
                                       self.ran = reply.ran();
                                     },
                                 .context = &told}));
  connection.maintain();
  connection.close();
  EXPECT_EQ(told.times, 1);
  EXPECT_EQ(told.error, CallError::kNotSent);
  EXPECT_EQ(told.ran, Ran::kNo);
  Seen seen;
  EXPECT_FALSE(connection.submit({.target = &kTarget, .on_reply = Seen::on_reply, .context = &seen}));
}

TEST(ConformanceReconnect, EveryEndSaysWhetherTheCallMayHaveRun) {
  proves("ENG-RT-6");
  const auto ran = [](CallError error, AcceptStat status = AcceptStat::kSuccess) {
    Reply reply;
    reply.error = error;
    reply.accept_stat = status;
    return reply.ran();
  };
  EXPECT_EQ(ran(CallError::kNone), Ran::kYes);
  EXPECT_EQ(ran(CallError::kNone, AcceptStat::kProcUnavail), Ran::kNo);
  EXPECT_EQ(ran(CallError::kNone, AcceptStat::kGarbageArgs), Ran::kNo);
  EXPECT_EQ(ran(CallError::kNone, AcceptStat::kSystemErr), Ran::kPerhaps);
  EXPECT_EQ(ran(CallError::kDenied), Ran::kNo);
  EXPECT_EQ(ran(CallError::kErrVers), Ran::kNo);
  EXPECT_EQ(ran(CallError::kErrChunk), Ran::kPerhaps);
  EXPECT_EQ(ran(CallError::kBadReply), Ran::kYes);
  for (const CallError lost : {CallError::kConnectionLost, CallError::kTimedOut, CallError::kCancelled}) {
    EXPECT_EQ(ran(lost), Ran::kPerhaps);
  }
}

TEST(Backoff, DoublesUpToItsLimitAndNeverWaitsForLessThanHalf) {
  Backoff backoff(milliseconds(10), milliseconds(100), 1);
  std::set<std::int64_t> seen;
  for (const std::int64_t bound : {10, 20, 40, 80, 100, 100, 100}) {
    const auto delay = backoff.next().count();
    EXPECT_GE(delay, bound / 2);
    EXPECT_LE(delay, bound);
  }
  for (int i = 0; i < 50; ++i) seen.insert(backoff.next().count());
  EXPECT_GT(seen.size(), 10U);
  backoff.reset();
  EXPECT_LE(backoff.next(), milliseconds(10));
}

}  // namespace
}  // namespace rodeo
