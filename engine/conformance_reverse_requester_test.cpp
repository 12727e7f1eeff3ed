// SPDX-License-Identifier: Apache-2.0

// Calls in reverse direction (RFC 8167) at the end that opened the connection: a scripted Responder that calls back.

#include <chrono>
#include <deque>
#include <thread>

#include "engine/scripted_session.h"

namespace rodeo {
namespace {

using test::bytes_of;
using test::joined;
using test::kTarget;
using test::Octets;
using test::RawResponder;
using test::Seen;
using test::Words;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kBack = 0x20000055;   // may be called
constexpr std::uint32_t kOther = 0x20000056;  // served, and not named to any connection
constexpr std::uint32_t kForward = 4;         // credits asked for
constexpr std::uint32_t kReverse = 2;         // and granted
enum Procedure : std::uint32_t { kNull, kEcho, kHold, kUser };

std::deque<DeferredCall> held;
std::shared_ptr<Connection> came_by;

void null(Call& call, void*) noexcept { call.reply(); }
void echo(Call& call, void*) noexcept {
  came_by = call.connection();
  call.results().u32(call.arguments().u32());
  call.reply();
}
void hold(Call& call, void*) noexcept { held.push_back(call.defer()); }
/// The uid of an AUTH_SYS credential; others are not good enough.
void user(Call& call, void*) noexcept {
  AuthSys sys;
  const OpaqueAuth& cred = call.header().cred;
  if (cred.flavor != AuthFlavor::kSys || !decode_auth_sys(cred.body, sys)) return call.deny(AuthStat::kTooWeak);
  call.results().u32(sys.uid);
  call.reply();
}

void add_programs(Engine& engine) {
  for (const std::uint32_t number : {kBack, kOther}) {
    Program program{.number = number, .version = 1, .name = "back", .procedures = {}};
    program.procedures = {{.number = kNull, .name = "NULL", .handler = null},
                          {.number = kEcho, .name = "ECHO", .handler = echo},
                          {.number = kHold, .name = "HOLD", .handler = hold},
                          {.number = kUser, .name = "USER", .handler = user}};
    EXPECT_TRUE(engine.add_program(std::move(program)));
  }
}

const Words kNoLists = {0, 0, 0};
const Words kAuthNone = {0, 0};

struct Rig {
  explicit Rig(std::vector<std::uint32_t> programs = {kBack}, Config config = test::small_config())
      : raw(encode_private_data({.send_size = 4096, .receive_size = 4096}), config, add_programs),
        options{.credits = kForward, .reverse_programs = std::move(programs), .reverse_credits = kReverse},
        connection(raw.connect_with(options)) {}
  ~Rig() {
    held.clear();
    came_by.reset();
  }

  [[nodiscard]] static Octets call(std::uint32_t xid, std::uint32_t credit, std::uint32_t procedure,
                                   const Words& arguments = {}, std::uint32_t program = kBack,
                                   const Words& credential = kAuthNone) {
    return bytes_of(
        joined({{xid, 1, credit, 0}, kNoLists, {xid, 0, 2, program, 1, procedure}, credential, {0, 0}, arguments}));
  }
  [[nodiscard]] static Octets reply(std::uint32_t xid, std::uint32_t granted, const Words& from_accept_stat) {
    return bytes_of(joined({{xid, 1, granted, 0}, kNoLists, {xid, 1, 0, 0, 0}, from_accept_stat}));
  }
  [[nodiscard]] static Octets err_chunk(std::uint32_t xid, std::uint32_t granted) {
    return bytes_of({xid, 1, granted, 4, 2});
  }
  [[nodiscard]] static std::uint32_t xid_of(const Octets& message) {
    EXPECT_GE(message.size(), kMinHeaderBytes);
    return message.size() < kMinHeaderBytes ? 0 : load_be32(message.data());
  }
  /// What the peer gets for it.
  [[nodiscard]] Octets answer_to(const Octets& message) {
    raw.send(message);
    return raw.receive();
  }
  Seen& submit() {
    Seen& one = seen.emplace_back();
    EXPECT_EQ(connection->submit({.target = &kTarget, .on_reply = Seen::on_reply, .context = &one}),
              SubmitOutcome::kPosted);
    return one;
  }
  /// A forward call; returns its XID when the peer has it.
  [[nodiscard]] std::uint32_t submit_and_take() {
    submit();
    return xid_of(raw.receive());
  }
  void answer(std::uint32_t xid, std::uint32_t granted = kForward) {
    raw.send(test::Session::plain_reply(xid, granted));
    raw.turns(20);
  }
  void expect_forward_works() {
    const std::uint32_t xid = submit_and_take();
    answer(xid);
    EXPECT_EQ(seen.back().times, 1);
    EXPECT_EQ(seen.back().error, CallError::kNone);
  }
  /// How many messages find a receive while the client has no turn; they are junk, and discarded.
  [[nodiscard]] std::uint64_t receives_posted() {
    const std::uint64_t before = raw.delivered();
    for (std::uint32_t i = 0; i < kForward + kReverse + 4; ++i) raw.send(bytes_of({1}));
    const std::uint64_t found = raw.delivered() - before;
    raw.until([&] { return raw.delivered() == raw.sent(); });
    return found;
  }
  [[nodiscard]] std::uint64_t counter(std::string_view name) { return test::Pair::counter(raw.client(), name); }

  std::deque<Seen> seen;
  RawResponder raw;
  ConnectOptions options;
  Connection* connection;
};

TEST(ReverseAtRequester, AReverseCallIsServedAndItsReplyGrantsReverseCredits) {
  proves("R8167-2-1", "R8167-4.1-2", "R8167-4.1-3", "R8167-5.2-1", "R8167-5.2-2");
  Rig rig;
  EXPECT_EQ(rig.answer_to(Rig::call(9, 1, kEcho, {55})), Rig::reply(9, 1, {0, 55}));
  // As many as were asked for, and no more than the connection grants; the forward limit is another one.
  EXPECT_EQ(rig.answer_to(Rig::call(10, 16, kEcho, {56})), Rig::reply(10, kReverse, {0, 56}));
  EXPECT_EQ(rig.connection->credits_left(), 1U);
  EXPECT_EQ(came_by.get(), rig.connection);
  EXPECT_EQ(rig.counter("reverse_calls_received"), 2U);
  EXPECT_EQ(rig.counter("calls_received"), 2U);
  rig.expect_forward_works();
  EXPECT_EQ(rig.connection->credits_left(), kForward);
}

TEST(ReverseAtRequester, EqualXidsInBothDirectionsAreTwoCalls) {
  proves("R8167-2.4-1", "R8167-2.4-2", "R8167-2-1");
  Rig rig;
  const std::uint32_t xid = rig.submit_and_take();
  EXPECT_EQ(rig.answer_to(Rig::call(xid, 1, kEcho, {7})), Rig::reply(xid, 1, {0, 7}));
  rig.raw.send(Rig::call(xid, 1, kHold));
  rig.raw.until([] { return held.size() == 1; });
  EXPECT_EQ(rig.seen.back().times, 0);
  rig.answer(xid);
  EXPECT_EQ(rig.seen.back().times, 1);
  EXPECT_EQ(rig.seen.back().error, CallError::kNone);
  held.front().reply();
  EXPECT_EQ(rig.raw.receive(), Rig::reply(xid, 1, {0}));
  EXPECT_EQ(rig.counter("replies_unknown_xid"), 0U);
}

TEST(ReverseAtRequester, ThereAreReceivesForTheRepliesAndForTheReverseGrant) {
  proves("R8167-4.3-1", "R8167-4.3-3");
  Rig rig;
  EXPECT_EQ(rig.receives_posted(), kForward + kReverse);
  EXPECT_EQ(rig.answer_to(Rig::call(1, kReverse, kNull)), Rig::reply(1, kReverse, {0}));
  EXPECT_EQ(rig.receives_posted(), kForward + kReverse);
  // All at once: the Replies to all that may be out, and all that may be called back.
  rig.expect_forward_works();
  std::vector<std::uint32_t> xids;
  for (std::uint32_t i = 0; i < kForward; ++i) xids.push_back(rig.submit_and_take());
  const std::uint64_t before = rig.raw.delivered();
  for (std::uint32_t i = 0; i < kReverse; ++i) rig.raw.send(Rig::call(i, kReverse, kHold));
  for (const std::uint32_t xid : xids) rig.raw.send(test::Session::plain_reply(xid, kForward));
  EXPECT_EQ(rig.raw.delivered() - before, kForward + kReverse);
  rig.raw.until([&] { return held.size() == kReverse && rig.connection->in_flight() == 0; });
  for (DeferredCall& call : held) call.reply();
  rig.raw.turns(50);
  EXPECT_EQ(rig.receives_posted(), kForward + kReverse);
  // And again when the connection has been made again.
  rig.raw.hang_up();
  rig.raw.until([&] { return !rig.connection->open(); });
  rig.connection = rig.raw.connect_with(rig.options);
  EXPECT_EQ(rig.receives_posted(), kForward + kReverse);
}

TEST(ReverseAtRequester, EachDirectionGoesOnWhileTheOtherIsAtItsLimit) {
  proves("R8167-4.1-1", "R8167-4.1-3");
  Rig rig;
  const std::uint32_t xid = rig.submit_and_take();  // the only credit so far
  EXPECT_EQ(rig.connection->credits_left(), 0U);
  for (std::uint32_t i = 0; i < 10; ++i) {
    EXPECT_EQ(rig.answer_to(Rig::call(i, 1000, kEcho, {i})), Rig::reply(i, kReverse, {0, i}));
    EXPECT_EQ(rig.connection->credits_left(), 0U) << "a request is no grant";
  }
  rig.answer(xid, 1);
  for (std::uint32_t i = 0; i < kReverse; ++i) rig.raw.send(Rig::call(i, kReverse, kHold));
  rig.raw.until([] { return held.size() == kReverse; });
  for (int i = 0; i < 10; ++i) rig.expect_forward_works();
  held.front().reply();
  EXPECT_EQ(rig.raw.receive(), Rig::reply(0, kReverse, {0})) << "a grant is no request";
}

TEST(ReverseAtRequester, MessagesWhoseDirectionCannotBeToldChangeNoCredits) {
  proves("R8167-4.1-4", "ENG-8167-1");
  Rig rig;
  EXPECT_EQ(rig.answer_to(Rig::call(1, 1, kNull)), Rig::reply(1, 1, {0}));
  // The first receives may be more than what was asked for since; a Call that comes and goes gives one back.
  for (int i = 0; i < 4; ++i) EXPECT_EQ(rig.answer_to(Rig::call(1, 1, kNull)), Rig::reply(1, 1, {0}));
  EXPECT_EQ(rig.receives_posted(), kForward + 1);
  for (const Words& body : {Words{0, 1, 1000, 0, 0, 0, 0}, Words{5, 1, 1000, 0, 0, 0, 0, 5},
                            Words{5, 1, 1000, 0, 0, 0, 0, 5, 7}, Words{5, 1, 1000, 0, 1}, Words{5, 1, 1000, 2, 0, 0, 0},
                            Words{5, 1, 1000, 3, 0, 0, 0}, Words{5, 2, 1000, 0, 0, 0, 0, 5, 0, 2, kBack, 1, 0}}) {
    EXPECT_TRUE(rig.answer_to(bytes_of(body)).empty()) << body.size();
    EXPECT_EQ(rig.connection->credits_left(), 1U);
    EXPECT_EQ(rig.receives_posted(), kForward + 1);
  }
  rig.expect_forward_works();
}

TEST(ReverseAtRequester, AMalformedReverseCallIsAnsweredAsAForwardOne) {
  proves("ENG-8167-1", "R8167-6-2");
  Rig rig;
  // Truncated behind msg_type, with another XID inside, of another RPC version, of another program version.
  EXPECT_EQ(rig.answer_to(bytes_of({5, 1, 1000, 0, 0, 0, 0, 5, 0, 2, kBack})), Rig::err_chunk(5, kReverse));
  EXPECT_EQ(rig.answer_to(bytes_of({5, 1, 1000, 0, 0, 0, 0, 6, 0, 2, kBack, 1, 0, 0, 0, 0, 0})),
            Rig::err_chunk(5, kReverse));
  EXPECT_EQ(rig.answer_to(bytes_of({5, 1, 1, 0, 0, 0, 0, 5, 0, 3, kBack, 1, 0, 0, 0, 0, 0})),
            bytes_of({5, 1, 1, 0, 0, 0, 0, 5, 1, 1, 0, 2, 2}));
  EXPECT_EQ(rig.answer_to(bytes_of({5, 1, 1, 0, 0, 0, 0, 5, 0, 2, kBack, 3, 0, 0, 0, 0, 0})),
            Rig::reply(5, 1, {2, 1, 1}));
  EXPECT_EQ(rig.answer_to(Rig::call(5, 1, 99)), Rig::reply(5, 1, {3}));
  rig.expect_forward_works();
  // An error is for our own calls only.
  const std::uint32_t xid = rig.submit_and_take();
  EXPECT_TRUE(rig.answer_to(bytes_of({xid + 1, 1, 4, 4, 2})).empty());
  EXPECT_EQ(rig.seen.back().times, 0);
  EXPECT_TRUE(rig.answer_to(bytes_of({xid, 1, 4, 4, 2})).empty());
  EXPECT_EQ(rig.seen.back().error, CallError::kErrChunk);
}

TEST(ReverseAtRequester, ChunksInAReverseCallAreAnsweredErrChunk) {
  proves("R8167-5.3-3", "R8167-5.3-1");
  Rig rig;
  const std::uint32_t out = rig.submit_and_take();
  const Words rpc = {0, 2, kBack, 1, kEcho, 0, 0, 0, 0, 1};
  const Words segment = {0x11, 64, 0, 0x1000};
  std::uint64_t sent = 0;
  // XIDs of nobody's, and that of a call which is out the other way.
  for (const std::uint32_t xid : {77U, out}) {
    for (const Words& lists : {joined({{1, 44}, segment, {0, 0, 0}}), joined({{0, 1, 1}, segment, {0, 0}}),
                               joined({{0, 0, 1, 1}, segment})}) {
      EXPECT_EQ(rig.answer_to(bytes_of(joined({{xid, 1, 1, 0}, lists, {xid}, rpc}))), Rig::err_chunk(xid, 1));
      ++sent;
    }
    EXPECT_EQ(rig.answer_to(bytes_of(joined({{xid, 1, 1, 1, 1, 0}, segment, {0, 0, 0}}))), Rig::err_chunk(xid, 1));
    ++sent;
  }
  EXPECT_EQ(rig.counter("reverse_chunks"), sent);
  EXPECT_EQ(rig.seen.back().times, 0);
  rig.answer(out);
  EXPECT_EQ(rig.seen.back().error, CallError::kNone);
}

TEST(ReverseAtRequester, ResultsThatDoNotFitInlineAreAnsweredErrChunk) {
  proves("R8167-5.3-2", "R8167-4.2-1");
  RawResponder raw(encode_private_data({.send_size = 4096, .receive_size = 1024}), test::small_config(),
                   [](Engine& engine) {
                     const Handler many = [](Call& call, void*) noexcept {
                       const std::uint32_t words = call.arguments().u32();
                       XdrWriter& out = call.results(4 * words);
                       for (std::uint32_t i = 0; i < words; ++i) out.u32(i);
                       call.reply();
                     };
                     EXPECT_TRUE(engine.add_program({.number = kBack,
                                                     .version = 1,
                                                     .name = "back",
                                                     .procedures = {{.number = 0, .name = "MANY", .handler = many}}}));
                   });
  (void)raw.connect_with({.credits = 1, .reverse_programs = {kBack}});
  // A reverse Reply is as long as a forward Call may be: here 1024 octets, of which 52 are headers.
  raw.send(Rig::call(1, 1, 0, {243}));
  EXPECT_EQ(raw.receive().size(), 1024U);
  raw.send(Rig::call(2, 1, 0, {244}));
  EXPECT_EQ(raw.receive(), Rig::err_chunk(2, 1));
}

TEST(ReverseAtRequester, WhereNoProgramMayBeCalledACallIsAnsweredProgUnavail) {
  proves("R8167-6-2", "R8167-6-1");
  for (const auto& programs : {std::vector<std::uint32_t>{}, std::vector<std::uint32_t>{kOther}}) {
    Rig rig(programs);
    for (std::uint32_t i = 0; i < 40; ++i) {
      EXPECT_EQ(rig.answer_to(Rig::call(i, 1, kNull)), Rig::reply(i, 1, {1}));
      EXPECT_EQ(rig.answer_to(bytes_of({i, 1, 1, 0, 1, 44, 1, 8, 0, 0, 0, 0, 0, i, 0, 2, kBack, 1, 0, 0, 0, 0, 0})),
                Rig::err_chunk(i, 1));
    }
    rig.expect_forward_works();
    rig.raw.client().disconnect(rig.connection);
    rig.raw.until([&] { return rig.raw.client().connection_count() == 0; });
    test::expect_adds_up(rig.raw.client());
  }
}

TEST(ReverseAtRequester, APeerThatIgnoresItsReverseGrantLosesTheConnection) {
  proves("R8167-4.1-1");
  Rig rig;
  Seen& forward = rig.submit();
  for (std::uint32_t i = 0; i <= kReverse; ++i) rig.raw.send(Rig::call(i, kReverse, kHold));
  rig.raw.until([&] { return !rig.connection->open(); });
  EXPECT_EQ(rig.counter("calls_overrun"), 1U);
  rig.raw.until([&] { return forward.times == 1; });
  EXPECT_EQ(forward.error, CallError::kConnectionLost);
  EXPECT_EQ(held.size(), kReverse);
  while (!held.empty()) {
    held.front().reply();
    held.pop_front();
  }
  rig.raw.client().disconnect(rig.connection);
  rig.raw.until([&] { return rig.raw.client().connection_count() == 0; });
  test::expect_adds_up(rig.raw.client());
}

TEST(ReverseAtRequester, AReverseCallHasACredentialOfItsOwn) {
  proves("R8167-8-1");
  Rig rig;
  const auto sys = [](std::uint32_t uid) { return Words{1, 20, 0, 0, uid, 0, 0}; };
  EXPECT_EQ(rig.answer_to(Rig::call(1, 1, kUser, {}, kBack, sys(5))), Rig::reply(1, 1, {0, 5}));
  EXPECT_EQ(rig.answer_to(Rig::call(2, 1, kUser, {}, kBack, sys(6))), Rig::reply(2, 1, {0, 6}));
  EXPECT_EQ(rig.answer_to(Rig::call(3, 1, kUser)), bytes_of({3, 1, 1, 0, 0, 0, 0, 3, 1, 1, 1, 5})) << "AUTH_TOOWEAK";
  rig.expect_forward_works();
}

TEST(ReverseAtRequester, AConnectionWithoutForwardCallsStaysForReverseOnes) {
  proves("R8167-5.4-2");
  Config config = test::small_config();
  config.silence_limit = std::chrono::milliseconds(10);
  Rig rig({kBack}, config);
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
  while (std::chrono::steady_clock::now() < until) rig.raw.turn();
  EXPECT_EQ(rig.answer_to(Rig::call(9, 1, kNull)), Rig::reply(9, 1, {0}));
}

}  // namespace
}  // namespace rodeo
