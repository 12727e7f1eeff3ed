// SPDX-License-Identifier: Apache-2.0

// A scripted Responder against our Requester. Every expectation is about what that peer sees, and about how the calls
// end.

#include <deque>
#include <set>

#include "engine/scripted_session.h"

namespace rodeo {
namespace {

using test::high;
using test::kProgram;
using test::kTarget;
using test::low;
using test::RawResponder;
using test::Seen;
using test::Session;
using test::Taken;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kRpcBytes = 40;  // of a Call header without authentication
constexpr std::uint32_t kWildGrant = 1000;

TEST(ConformanceRequester, APlainCallIsTheOctetsOfTheStandard) {
  proves("R8166-4.2-1", "R8166-4-1", "R8166-3.2-1", "R8166-3.2-3", "R8166-3.3-1", "R8166-4.2.3-1", "R8166-4.3.1-2",
         "R8166-4.3.2-1", "R8166-4.3.3-2");
  Session session(9, 4);
  session.submit({.target = &kTarget});
  const auto taken = session.take();
  const std::uint32_t xid = taken->xid();
  EXPECT_EQ(taken->message, test::bytes_of({xid, 1, 9, 0, 0, 0, 0, xid, 0, 2, kProgram, 1, 1, 0, 0, 0, 0}));
}

TEST(ConformanceRequester, OneCallUntilTheFirstReplyThenNeverMoreThanGranted) {
  proves("R8166-3.3-2", "R8166-3.3-4", "R8166-3.3-5", "R8166-3.3-6", "R8166-3.3-11", "R8166-3.3-12", "ENG-CR-1",
         "ENG-CR-2");
  constexpr std::uint32_t kAsked = 8;
  std::deque<Seen> seen;
  RawResponder raw;
  Connection* connection = raw.connect(kAsked);
  std::vector<std::uint32_t> outstanding;
  // Submits whatever is taken; whoever answers decides how much that may be.
  const auto flood = [&] {
    for (;;) {
      Seen& one = seen.emplace_back();
      if (connection->submit({.target = &kTarget, .on_reply = Seen::on_reply, .context = &one}) !=
          SubmitOutcome::kPosted) {
        seen.pop_back();
        break;
      }
    }
    raw.turns(20);
    while (raw.waiting() != 0) outstanding.push_back(load_be32(raw.receive().data()));
  };
  flood();
  EXPECT_EQ(outstanding.size(), 1U);
  raw.turns(500);
  EXPECT_EQ(raw.waiting(), 0U);
  for (const std::uint32_t granted : {3U, 1U, 8U, 5U, 0U, kWildGrant, 2U, 2U, 0xffffffffU, 4U}) {
    raw.send(test::bytes_of({outstanding.front(), 1, granted, 0, 0, 0, 0, outstanding.front(), 1, 0, 0, 0, 0}));
    outstanding.erase(outstanding.begin());
    const std::size_t before = outstanding.size();
    raw.turns(20);
    flood();
    EXPECT_EQ(outstanding.size(), std::max<std::size_t>(before, std::clamp(granted, 1U, kAsked))) << granted;
  }
}

TEST(ConformanceRequester, ReceivesForAllRepliesArePostedBeforeTheCalls) {
  proves("R8166-3.3-8");
  Session session(16, 16);
  std::vector<std::uint32_t> xids;
  for (int i = 0; i < 16; ++i) session.submit({.target = &kTarget});
  for (int i = 0; i < 16; ++i) xids.push_back(session.take()->xid());
  // All Replies at once: the Requester has no turn, so each of them found a Receive that was there before.
  for (const std::uint32_t xid : xids) session.answer(xid, 16);
  EXPECT_EQ(session.raw.delivered(), session.raw.sent());
  session.raw.until([&] { return session.connection->in_flight() == 0; });
  for (const Seen& one : session.seen) EXPECT_EQ(one.times, 1);
}

TEST(ConformanceRequester, XidsOfOutstandingCallsDiffer) {
  proves("R5531-9-4", "R5531-9-5");
  Session session(16, 16);
  for (int round = 0; round < 8; ++round) {
    std::set<std::uint32_t> xids;
    for (int i = 0; i < 16; ++i) session.submit({.target = &kTarget});
    for (int i = 0; i < 16; ++i) xids.insert(session.take()->xid());
    EXPECT_EQ(xids.size(), 16U);
    for (auto xid = xids.rbegin(); xid != xids.rend(); ++xid) session.answer(*xid, 16);
    session.raw.until([&] { return session.connection->in_flight() == 0; });
  }
}

TEST(ConformanceRequester, RepliesThatAreNoneAreDiscardedInSilence) {
  proves("R8166-4.2.4-1", "R8166-4.2.4-5", "R8166-4.5-1", "R8166-4.5-3", "R8166-4.5-8", "R8166-4.6-3", "R8166-4.6-5",
         "ENG-CR-5", "ENG-CR-11", "ENG-MX-5", "ENG-MX-6", "ENG-RT-5", "ENG-RX-2", "ENG-RX-3", "ENG-RX-4", "ENG-RX-5",
         "ENG-WR-1");
  Session session(8, 4);
  RawResponder& raw = session.raw;
  Buffer sink = session.connection->make_buffer(64);
  const RegisteredBytes sinks[] = {sink.first(64)};
  Seen& seen = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 8});
  const auto call = session.take();
  ASSERT_EQ(call->lists.write_chunk_count, 1U);
  const Segment offered = call->lists.write_chunk(0)[0];
  const std::uint32_t x = call->xid();
  const std::uint32_t h = offered.handle;
  const std::uint32_t hi = high(offered);
  const std::uint32_t lo = low(offered);
  constexpr std::uint32_t c = kWildGrant;
  const auto good = test::bytes_of({x, 1, c, 0, 0, 1, 1, h, 8, hi, lo, 0, 0, x, 1, 0, 0, 0, 0, 8});
  std::vector<std::vector<std::byte>> bad;
  for (std::size_t length = 0; length < kMinHeaderBytes; ++length)
    bad.emplace_back(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
  for (const std::uint32_t proc : {2U, 3U, 5U, 0xffffffffU}) {
    bad.push_back(good);
    store_be32(bad.back().data() + kProcOffset, proc);
  }
  for (const std::uint32_t version : {0U, 2U}) {
    bad.push_back(good);
    store_be32(bad.back().data() + kVersOffset, version);
  }
  bad.push_back(good);
  store_be32(bad.back().data(), x ^ 0x10000U);  // nobody's
  const auto add = [&](std::initializer_list<std::uint32_t> words) { bad.push_back(test::bytes_of(words)); };
  add({x, 1, c, 0, 0, 1, 1, h, 8, hi, lo, 0, 0, x ^ 1U, 1, 0, 0, 0, 0, 8});                 // XIDs differ
  add({x, 1, c, 0, 1, 0, h, 64, hi, lo, 0, 0, 0, x, 1, 0, 0, 0, 0});                        // a Read list
  add({x, 1, c, 0, 0, 1, 1, h});                                                            // the Write list ends early
  add({x, 1, c, 0, 2, 0, 0, x, 1, 0, 0, 0, 0});                                             // discriminator 2
  add({x, 1, c, 0, 0, 1, 1, h, 65, hi, lo, 0, 0, x, 1, 0, 0, 0, 0, 8});                     // more than offered
  add({x, 1, c, 0, 0, 1, 1, h ^ 1U, 8, hi, lo, 0, 0, x, 1, 0, 0, 0, 0, 8});                 // another handle
  add({x, 1, c, 0, 0, 1, 1, h, 8, hi, lo + 4, 0, 0, x, 1, 0, 0, 0, 0, 8});                  // another offset
  add({x, 1, c, 0, 0, 1, 2, h, 8, hi, lo, h, 0, hi, lo, 0, 0, x, 1, 0, 0, 0, 0, 8});        // another count
  add({x, 1, c, 0, 0, 1, 1, h, 8, hi, lo, 1, 1, h, 0, hi, lo, 0, 0, x, 1, 0, 0, 0, 0, 8});  // two chunks
  add({x, 1, c, 0, 0, 0, 1, 1, h, 24, hi, lo, x, 1, 0, 0, 0, 0});                           // a Reply chunk in MSG
  add({x, 1, c, 1, 0, 0, 0});                                                               // NOMSG without one
  add({x, 1, c, 1, 0, 0, 1, 1, h, 0, hi, lo});                                              // of no octets
  add({x, 1, c, 1, 0, 0, 1, 1, h, 24, hi, lo});                                             // that was not offered
  add({x, 1, c, 4, 3, 0, 0});                                                               // no such rdma_err
  add({x, 1, c, 4, 1, 1});  // ERR_VERS without its range
  for (const auto& message : bad) {
    raw.send(message);
    raw.turns(10);
    EXPECT_EQ(seen.times, 0) << message.size();
    EXPECT_EQ(raw.waiting(), 0U) << message.size();
  }
  EXPECT_TRUE(session.connection->open());
  EXPECT_EQ(session.connection->credits_left(), 3U);
  EXPECT_EQ(raw.delivered(), raw.sent());
  const auto counted = [&](std::string_view name) { return test::Pair::counter(raw.client(), name); };
  EXPECT_EQ(counted("replies_discarded") + counted("replies_unknown_xid"), bad.size());

  raw.send(good);
  raw.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kNone);
  ASSERT_EQ(seen.written.size(), 1U);
  EXPECT_EQ(seen.written[0], 8U);
  raw.send(good);  // late
  raw.turns(10);
  EXPECT_EQ(seen.times, 1);
  session.expect_served();
}

TEST(ConformanceRequester, TwiceAsMuchJunkAsThereAreReceivesTakesNoneOfThemAway) {  // F10
  proves("F10");
  constexpr std::uint32_t kDepth = 8;
  Session session(kDepth, kDepth);
  RawResponder& raw = session.raw;
  Seen& seen = session.submit({.target = &kTarget});
  const std::uint32_t x = session.take()->xid();
  const std::pair<const char*, std::vector<std::byte>> kinds[] = {
      {"replies_discarded", test::bytes_of({x})},
      {"replies_discarded", test::bytes_of({x, 1, kDepth})},
      {"replies_discarded", test::bytes_of({x, 1, kDepth, 0, 0, 0})},
      {"replies_discarded", test::bytes_of({x, 2, kDepth, 0, 0, 0, 0, x, 1, 0, 0, 0, 0})},
      {"reverse_calls_received", test::bytes_of({x, 1, kDepth, 0, 0, 0, 0, x, 0, 2})}};  // that ends too early
  for (const auto& [counter, junk] : kinds) {
    SCOPED_TRACE(junk.size());
    const std::uint64_t before = session.counter(counter);
    for (std::uint32_t i = 0; i < 2 * kDepth; ++i) raw.send(junk);
    raw.turns(200);
    EXPECT_EQ(raw.delivered(), raw.sent());
    EXPECT_EQ(session.counter(counter), before + 2 * kDepth);
    EXPECT_EQ(seen.times, 0);
    // Whoever calls, if only badly, is answered.
    const bool call = std::string_view(counter) == "reverse_calls_received";
    EXPECT_EQ(raw.waiting(), call ? 2 * kDepth : 0U);
    while (raw.waiting() != 0) {
      const std::vector<std::byte> answer = raw.receive();
      ASSERT_EQ(answer.size(), kErrChunkBytes);
      EXPECT_EQ(load_be32(answer.data() + kProcOffset), static_cast<std::uint32_t>(Proc::kError));
    }
  }
  session.answer(x, kDepth);
  raw.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kNone);
  // All receives are back: as many Replies as may be out find one each while the Requester has no turn.
  std::vector<std::uint32_t> xids;
  for (std::uint32_t i = 0; i < kDepth; ++i) session.submit({.target = &kTarget});
  for (std::uint32_t i = 0; i < kDepth; ++i) xids.push_back(session.take()->xid());
  for (const std::uint32_t xid : xids) session.answer(xid, kDepth);
  EXPECT_EQ(raw.delivered(), raw.sent());
  raw.until([&] { return session.connection->in_flight() == 0; });
  EXPECT_FALSE(raw.failed());
}

TEST(ConformanceRequester, AnErrorEndsItsRpcAtOnceAndReturnsTheCredit) {
  proves("R8166-4.5-7", "R8166-4.2.4-5", "R8267-6.4-10", "ENG-RX-2");
  Session session(4, 2);
  Seen& chunk = session.submit({.target = &kTarget});
  Seen& version = session.submit({.target = &kTarget});
  session.raw.send(test::bytes_of({session.take()->xid(), 1, 2, 4, 2}));
  session.raw.send(test::bytes_of({session.take()->xid(), 1, 2, 4, 1, 1, 1}));
  session.raw.until([&] { return chunk.times == 1 && version.times == 1; });
  EXPECT_EQ(chunk.error, CallError::kErrChunk);
  EXPECT_EQ(version.error, CallError::kErrVers);
  EXPECT_EQ(session.connection->credits_left(), 2U);
  session.raw.turns(100);
  EXPECT_EQ(session.raw.waiting(), 0U);  // neither an answer nor the Call again
  session.expect_served();
}

TEST(ConformanceRequester, AnErrorCountsAlsoWhenTheConnectionIsLostRightAfterIt) {
  proves("R8267-6.7-2", "R8267-4-2", "ENG-RT-6");
  Session session(4, 2);
  Seen& refused = session.submit({.target = &kTarget});
  Seen& lost = session.submit({.target = &kTarget});
  const std::uint32_t xid = session.take()->xid();
  static_cast<void>(session.take());
  session.raw.send(test::bytes_of({xid, 1, 2, 4, 2}));
  EXPECT_EQ(session.raw.delivered(), session.raw.sent());
  session.raw.die();
  for (int i = 0; i < 200000 && (refused.times == 0 || lost.times == 0); ++i) session.raw.client().step();
  EXPECT_EQ(refused.times, 1);
  EXPECT_EQ(refused.error, CallError::kErrChunk);
  EXPECT_EQ(lost.times, 1);
  EXPECT_EQ(lost.error, CallError::kConnectionLost);
}

TEST(ConformanceRequester, ALongCallIsAPositionZeroChunkWithAllItsPads) {
  proves("R8166-3.5-3", "R8166-3.5-4", "R8166-3.5-9", "R8166-3.2-2", "R8166-3.4-1", "R8166-4-2", "R8166-4.2.4-3");
  Session session(4, 4);
  constexpr std::uint32_t kItem = 5301;  // not DDP-eligible, and with three octets of pad
  std::vector<std::byte> arguments(kItem + 8);
  XdrWriter writer(arguments);
  writer.opaque(std::vector<std::byte>(kItem, std::byte{0x5a}));
  Seen& seen = session.submit({.target = &kTarget, .arguments = writer.written()});
  const auto call = session.take();
  EXPECT_EQ(call->header.proc, Proc::kNomsg);
  EXPECT_EQ(call->message.size(), kMinHeaderBytes + 24);
  ASSERT_EQ(call->lists.read_count, 1U);
  const ReadSegment segment = call->lists.reads()[0];
  EXPECT_EQ(segment.position, 0U);
  ASSERT_EQ(segment.target.length, kRpcBytes + 4 + kItem + 3);
  const auto stream = session.raw.read(segment.target.length, segment.target.handle, segment.target.offset);
  auto expected = test::bytes_of({call->xid(), 0, 2, kProgram, 1, 1, 0, 0, 0, 0, kItem});
  expected.resize(expected.size() + kItem, std::byte{0x5a});
  expected.resize(expected.size() + 3);
  EXPECT_EQ(stream, expected);
  session.answer(call->xid(), 4);
  session.raw.until([&] { return seen.times == 1; });
}

TEST(ConformanceRequester, EachReducedArgumentIsAReadChunkAtItsPlaceInTheUnreducedStream) {
  proves("R8166-3.4-7", "R8166-3.4-10", "R8166-3.4-12", "R8166-3.4-13", "R8166-3.4.5-1", "R8166-3.4.5-2",
         "R8166-3.4.5-7", "R8166-3.4.5-9", "R8166-3.4.5-10", "R8166-4.3.1-1", "R8166-3.5-2", "ENG-RD-4");
  Session session(4, 4);
  // Arguments: a word, such as the discriminant of a union whose arm is reduced, opaque<> of 5 octets, opaque<> of 4099
  // octets, a word.
  const auto arguments = test::bytes_of({7, 5, 4099, 9});
  Buffer first = session.connection->make_buffer(5);
  Buffer second = session.connection->make_buffer(4099);
  std::memset(first.data(), 0x11, 5);
  std::memset(second.data(), 0x22, 4099);
  const BulkSource sources[] = {{8, first.first(5)}, {12, second.first(4099)}};
  Seen& seen = session.submit({.target = &kTarget, .arguments = arguments, .sources = sources});
  const auto call = session.take();
  EXPECT_EQ(call->header.proc, Proc::kMsg);
  // All but the last bring their pad along.
  ASSERT_EQ(call->lists.read_count, 3U);
  EXPECT_EQ(call->lists.reads()[0].position, kRpcBytes + 8);
  EXPECT_EQ(call->lists.reads()[0].target.length, 5U);
  EXPECT_EQ(call->lists.reads()[1].position, kRpcBytes + 8);
  EXPECT_EQ(call->lists.reads()[1].target.length, 3U);
  EXPECT_EQ(call->lists.reads()[2].position, kRpcBytes + 8 + 8 + 4);
  EXPECT_EQ(call->lists.reads()[2].target.length, 4099U);
  // The Payload keeps the length words and neither octets nor pads.
  const std::vector<std::byte> left(call->message.end() - 16, call->message.end());
  EXPECT_EQ(left, arguments);
  EXPECT_EQ(call->message.size(), kMinHeaderBytes + 3 * 24 + kRpcBytes + 16);
  const std::byte filled[] = {std::byte{0x11}, std::byte{0}, std::byte{0x22}};
  session.raw.turns(1000);  // they stay until the Reply, whenever that is
  for (std::size_t i = 0; i < call->lists.read_count; ++i) {
    const Segment& target = call->lists.reads()[i].target;
    EXPECT_EQ(session.raw.read(target.length, target.handle, target.offset),
              std::vector<std::byte>(target.length, filled[i]));
  }
  session.answer(call->xid(), 4);
  session.raw.until([&] { return seen.times == 1; });
}

TEST(ConformanceRequester, EachSinkIsAWriteChunkOfItsLengthAndTheReplyFillsIt) {
  proves("R8166-3.4.6-2", "R8166-3.4.6-7", "R8166-3.4.6-8", "R8166-4.3.2-3", "R8166-4.3.2-5", "R8166-4.3.2-10");
  Session session(4, 4);
  Buffer used = session.connection->make_buffer(4096);
  Buffer unused = session.connection->make_buffer(4096);
  const RegisteredBytes sinks[] = {used.first(1001), unused.first(77)};
  Seen& seen = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 8});
  const auto call = session.take();
  ASSERT_EQ(call->lists.write_chunk_count, 2U);
  ASSERT_EQ(call->lists.write_chunk(0).size(), 1U);
  const Segment a = call->lists.write_chunk(0)[0];
  const Segment b = call->lists.write_chunk(1)[0];
  EXPECT_EQ(a.length, 1001U);
  EXPECT_EQ(b.length, 77U);
  session.raw.write(std::vector<std::byte>(1001, std::byte{0x33}), a.handle, a.offset);
  session.raw.write(std::vector<std::byte>(77, std::byte{0x44}), b.handle, b.offset);  // and yet it returns unused
  const std::uint32_t x = call->xid();
  session.raw.send(test::bytes_of({x, 1,       4,      0, 0, 1, 1, a.handle, 1001, high(a), low(a), 1,    1, b.handle,
                                   0, high(b), low(b), 0, 0, x, 1, 0,        0,    0,       0,      1001, 0}));
  session.raw.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(seen.written, (std::vector<std::uint32_t>{1001, 0}));
  for (std::size_t i = 0; i < 1001; ++i) ASSERT_EQ(used.data()[i], std::byte{0x33});
  session.expect_served();
}

TEST(ConformanceRequester, AResultReducedWithoutAWriteChunkEndsTheRpc) {
  proves("R8166-6.1-3");
  Session session(4, 4);
  Buffer memory = session.connection->make_buffer(64);
  const RegisteredBytes sinks[] = {memory.first(64)};
  // One call teaches the peer a handle and an offset; it fills the next one's result into them, which offered none.
  Seen& honest = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 8});
  const auto offer = session.take();
  ASSERT_EQ(offer->lists.write_chunk_count, 1U);
  const Segment segment = offer->lists.write_chunk(0)[0];
  session.answer(offer->xid(), 4);
  session.raw.until([&] { return honest.times == 1; });
  EXPECT_EQ(honest.error, CallError::kNone);
  for (const std::size_t max_results : {8UL, 9000UL}) {  // a plain call, and one with a Reply chunk
    Seen& seen = session.submit({.target = &kTarget, .max_results = max_results});
    const std::uint32_t x = session.take()->xid();
    session.raw.send(test::bytes_of(
        {x, 1, 4, 0, 0, 1, 1, segment.handle, 8, high(segment), low(segment), 0, 0, x, 1, 0, 0, 0, 0, 8}));
    session.raw.until([&] { return seen.times == 1; });
    EXPECT_EQ(seen.error, CallError::kBadReply);
    EXPECT_TRUE(seen.results.empty());
    session.expect_served();
  }
}

TEST(ConformanceRequester, AnEligibleResultLeftInlineEndsTheRpc) {
  proves("R8166-6.1-4");
  Session session(4, 4);
  Buffer memory = session.connection->make_buffer(64);
  const RegisteredBytes sinks[] = {memory.first(64)};
  const auto reply_to = [&](const Taken& call, bool echo) {
    const Segment s = call.lists.write_chunk(0)[0];
    const std::uint32_t x = call.xid();
    session.raw.send(
        echo ? test::bytes_of({x, 1, 4, 0, 0, 1, 1, s.handle, 0, high(s), low(s), 0, 0, x, 1, 0, 0, 0, 0, 12, 1, 2, 3})
             : test::bytes_of({x, 1, 4, 0, 0, 0, 0, x, 1, 0, 0, 0, 0, 12, 1, 2, 3}));
  };
  for (const bool echo : {true, false}) {
    Seen& seen = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 4});
    reply_to(*session.take(), echo);
    session.raw.until([&] { return seen.times == 1; });
    EXPECT_EQ(seen.error, CallError::kBadReply);
    session.expect_served();
    // The same octets are fine where the results may be that long without the sink: it was not the item.
    Seen& fine = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 16});
    reply_to(*session.take(), echo);
    session.raw.until([&] { return fine.times == 1; });
    EXPECT_EQ(fine.error, CallError::kNone);
    EXPECT_EQ(fine.results.size(), 16U);
  }
  // What follows a refusal is no result: PROG_MISMATCH with its two words.
  Seen& refused = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 4});
  const std::uint32_t x = session.take()->xid();
  session.raw.send(test::bytes_of({x, 1, 4, 0, 0, 0, 0, x, 1, 0, 0, 0, 2, 3, 4}));
  session.raw.until([&] { return refused.times == 1; });
  EXPECT_EQ(refused.error, CallError::kNone);
  EXPECT_EQ(refused.accept_stat, AcceptStat::kProgMismatch);
}

TEST(ConformanceRequester, AReplyChunkIsOfferedExactlyWhereTheReplyMightNotFit) {
  proves("R8166-4.3.3-1", "R8166-4.3.3-2", "R8166-3.5-11", "R8166-4.2.1-2");
  Session session(4, 4);
  constexpr std::size_t kFits = 4096 - kMinHeaderBytes - kAcceptedReplyBytes;
  for (const std::size_t max_results : {kFits, kFits + 1, 20000UL}) {
    Seen& seen = session.submit({.target = &kTarget, .max_results = max_results});
    const auto call = session.take();
    EXPECT_EQ(call->lists.reply_present, max_results > kFits);
    const std::uint32_t x = call->xid();
    if (!call->lists.reply_present) {
      session.answer(x, 4);
    } else {
      EXPECT_GE(call->lists.reply_capacity, kAcceptedReplyBytes + max_results);
      const Segment segment = call->lists.reply()[0];
      session.raw.write(test::bytes_of({x, 1, 0, 0, 0, 0, 0xabcd}), segment.handle, segment.offset);
      session.raw.send(test::bytes_of({x, 1, 4, 1, 0, 0, 1, 1, segment.handle, 28, high(segment), low(segment)}));
    }
    session.raw.until([&] { return seen.times == 1; });
    EXPECT_EQ(seen.error, CallError::kNone);
    EXPECT_EQ(seen.results, call->lists.reply_present ? test::bytes_of({0xabcd}) : std::vector<std::byte>{});
  }
}

TEST(ConformanceRequester, ACallThatCannotBeMadeFailsAtOnceAndSendsNothing) {
  proves("R8166-4.5.4-1", "R8166-6.2-1");
  Session session(4, 4);
  const std::vector<std::byte> arguments(9000);  // needs a buffer for the Long Call, and one for the Long Reply
  std::vector<std::byte> outside(64);
  const RegisteredBytes unregistered[] = {outside};
  const BulkSource unaligned[] = {{2, session.raw.client().application_memory().first(8)}};
  const auto outcome = [&](const CallRequest& request) { return session.connection->submit(request); };
  const auto nothing_happened = [&] {
    session.raw.turns(50);
    EXPECT_EQ(session.raw.waiting(), 0U);
    EXPECT_EQ(session.connection->in_flight(), 0U);
    EXPECT_EQ(session.connection->credits_left(), 4U);
  };
  EXPECT_EQ(outcome({.target = &kTarget, .max_results = 1 << 30}), SubmitOutcome::kTooLarge);
  EXPECT_EQ(outcome({.target = &kTarget, .sinks = unregistered}), SubmitOutcome::kTooLarge);
  EXPECT_EQ(outcome({.target = &kTarget, .arguments = arguments, .sources = unaligned}), SubmitOutcome::kTooLarge);
  nothing_happened();
  // Buffers run out: with one left there is a place for one of the two.
  std::vector<Buffer> taken;
  while (Buffer buffer = session.connection->make_buffer(9000)) taken.push_back(std::move(buffer));
  for (int left = 0; left < 2; ++left) {
    EXPECT_EQ(outcome({.target = &kTarget, .arguments = arguments, .max_results = 9000}), SubmitOutcome::kNoBuffer);
    nothing_happened();
    taken.pop_back();
  }
  Seen& seen = session.submit({.target = &kTarget, .arguments = arguments, .max_results = 9000});
  const auto call = session.take();
  EXPECT_EQ(call->header.proc, Proc::kNomsg);
  EXPECT_TRUE(call->lists.reply_present);
  session.answer(call->xid(), 4);
  session.raw.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kNone);
}

TEST(ConformanceRequester, NoCallIsMadeUnderRpcsecGss) {
  proves("R8166-8.2-2", "R8166-8.2-4");
  for (const AuthFlavor flavor : {AuthFlavor::kShort, AuthFlavor::kDh, AuthFlavor::kGss, AuthFlavor::kTls}) {
    Credential credential;
    credential.flavor = flavor;
    EXPECT_FALSE(CallTarget(kProgram, 1, 1, credential).ok());
  }
}

TEST(ConformanceRequester, WithoutPrivateDataNothingAbove1024OctetsIsSent) {
  proves("R8166-3.3.2-3", "R8166-3.3.2-4", "R8166-4.2.4-7", "R8166-4.6-6", "R8797-5.1-1", "R8797-5.2-2", "R8797-1-1");
  std::vector<std::byte> other_version(8);
  store_be32(other_version.data(), 0xf6ab0e18);
  other_version[4] = std::byte{2};
  other_version[6] = other_version[7] = std::byte{3};
  for (const auto& private_data :
       {std::vector<std::byte>{}, test::bytes_of({0x12345678, 0x9abcdef0, 1}), other_version}) {
    RawResponder raw(private_data);
    Connection* connection = raw.connect(4);
    EXPECT_EQ(connection->call_threshold(), 1024U);
    EXPECT_EQ(connection->reply_threshold(), 1024U);
    constexpr std::size_t kFits = 1024 - kMinHeaderBytes - kRpcBytes;
    for (const std::size_t length : {kFits, kFits + 4, 3000UL}) {
      Seen seen;
      const std::vector<std::byte> arguments(length);
      ASSERT_EQ(connection->submit({.target = &kTarget,
                                    .arguments = arguments,
                                    .max_results = length,
                                    .on_reply = Seen::on_reply,
                                    .context = &seen}),
                SubmitOutcome::kPosted);
      const auto message = raw.receive();
      ASSERT_GE(message.size(), kMinHeaderBytes);
      EXPECT_LE(message.size(), 1024U);
      if (length == kFits) {
        EXPECT_EQ(message.size(), 1024U);
      }
      EXPECT_EQ(load_be32(message.data() + kProcOffset), length == kFits ? 0U : 1U);
      const std::uint32_t x = load_be32(message.data());
      raw.send(test::bytes_of({x, 1, 4, 0, 0, 0, 0, x, 1, 0, 0, 0, 0}));
      raw.until([&] { return seen.times == 1; });
    }
  }
}

TEST(ConformanceRequester, AReconnectMayBringOtherThresholds) {
  proves("R8797-4-1", "R8797-4-2", "R8797-4-3", "R8797-4-6", "R8797-3.2-1");
  RawResponder raw(encode_private_data({.send_size = 2048, .receive_size = 4096}));
  Connection* connection = raw.connect(4);
  EXPECT_EQ(connection->call_threshold(), 4096U);
  EXPECT_EQ(connection->reply_threshold(), 2048U);
  // What we said: our sizes, and no R, as our handles outlive a call.
  EXPECT_EQ(raw.received_private_data(), test::bytes_of({0xf6ab0e18, 0x01000303}));
  raw.client().disconnect(connection);
  raw.until([&] { return raw.client().connection_count() == 0; });
  raw.set_private_data(encode_private_data({.send_size = 4096, .receive_size = 1024}));
  connection = raw.connect(4);
  EXPECT_EQ(connection->call_threshold(), 1024U);
  EXPECT_EQ(connection->reply_threshold(), 4096U);
}

}  // namespace
}  // namespace rodeo
