// SPDX-License-Identifier: Apache-2.0

// Calls of a program with an upper-layer binding: the form that each takes at every length around the thresholds, and
// that nothing is reduced which the binding does not list.

#include <cstring>

#include "engine/binding.h"
#include "engine/scripted_session.h"

namespace rodeo {
namespace {

using test::Octets;
using test::Pair;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kThreshold = 4096;
constexpr std::uint32_t kLongest = 16384;
constexpr std::uint32_t kRpcBytes = 40;

// Arguments: a name, which is not eligible; data, which is; octets wanted; octets of a wide result. Results: how many
// octets the data had; data; a wide result, which is not eligible.
constexpr std::uint32_t kItem[] = {kLongest};
constexpr ProcedureBinding kTransfer{
    .number = 1, .name = "TRANSFER", .arguments = kItem, .results = kItem, .max_results = 4 + 4 + 4 + kLongest};
constexpr ProcedureBinding kNothingEligible{.number = 2, .name = "PLAIN", .max_results = 4 + 4 + kLongest};

/// What the last Call looked like.
struct Form {
  std::size_t reads = 0;
  std::size_t writes = 0;
  bool reply_chunk = false;
};
Form form;
void look(const Call& call) {
  form = {0, call.chunks().write_chunk_count, call.chunks().reply_present};
  for (const ReadSegment& segment : call.chunks().reads()) form.reads += segment.position != 0 ? 1U : 0U;
}

void transfer(Call& call, void*) noexcept {
  look(call);
  XdrReader reader = call.arguments();
  static_cast<void>(reader.opaque(kLongest));
  const BulkArgument data = call.bulk_argument(reader, kLongest);
  const std::uint32_t wanted = reader.u32();
  const std::uint32_t wide = reader.u32();
  if (!data.ok || !reader.ok()) return call.reject(AcceptStat::kGarbageArgs);
  call.state() = {data.length, wanted, wide, 0};
  call.pull(data, [](Call& pulled, void*) noexcept {
    const auto& [length, octets, wide_octets, unused] = pulled.state();
    const RegisteredBytes source = pulled.kept(0);
    std::uint32_t sum = 0;
    for (const std::byte octet : source.first(length)) sum += std::to_integer<std::uint32_t>(octet);
    XdrWriter& results = pulled.results(12 + xdr_padded(wide_octets));
    results.u32(sum);
    const RegisteredBytes back = pulled.keep(pulled.make_buffer(kLongest));
    std::ranges::copy(test::pattern(octets, 3), back.begin());
    pulled.push(back.first(octets));
    results.opaque(test::pattern(wide_octets, 9));
    pulled.reply();
  });
}
/// The same, but nothing is eligible: the data comes as it can, and what is pushed goes inline.
void plain(Call& call, void*) noexcept {
  look(call);
  XdrReader reader = call.arguments();
  const std::uint32_t octets = reader.u32();
  const RegisteredBytes back = call.keep(call.make_buffer(kLongest));
  std::ranges::copy(test::pattern(octets, 3), back.begin());
  call.results(8 + octets).u32(7);
  call.push(back.first(octets));
  call.reply();
}

struct Done {
  int times = 0;
  bool good = false;
  const CallRequest* request = nullptr;
  std::uint32_t sum = 0;
  std::uint32_t octets = 0;
  std::uint32_t wide = 0;
  CallError error = CallError::kNone;

  static void on_reply(void* context, const Reply& reply) noexcept {
    auto& self = *static_cast<Done*>(context);
    ++self.times;
    self.error = reply.error;
    BoundResults results(*self.request, reply);
    const std::uint32_t sum = results.reader().u32();
    const auto data = results.eligible_result();
    const auto wide = results.reader().opaque(kLongest);
    self.good = reply.ok() && results.ok() && sum == self.sum &&
                std::ranges::equal(data, test::pattern(self.octets, 3)) &&
                std::ranges::equal(wide, test::pattern(self.wide, 9));
  }
};

struct Rig {
  Rig() : pair(program(), config(), config()), connection(pair.connect(4)), memory(pair.client->application_memory()) {}
  [[nodiscard]] static Config config() {
    Config made = test::small_config();
    made.registration = Registration::kKeyPerCall;
    return made;
  }
  [[nodiscard]] static Program program() {
    return {.number = test::kProgram,
            .version = 1,
            .name = "bound",
            .procedures = {serve(kTransfer, transfer), serve(kNothingEligible, plain)}};
  }

  /// One call; whether what came back is right.
  bool transfer_of(std::uint32_t name, std::uint32_t length, std::uint32_t wanted, std::uint32_t wide) {
    Done done;
    done.octets = wanted;
    done.wide = wide;
    const RegisteredBytes source = memory.first(length);
    std::ranges::copy(test::pattern(length, 5), source.begin());
    for (const std::byte octet : source) done.sum += std::to_integer<std::uint32_t>(octet);
    BoundCall call(kTransfer, target, room);
    call.arguments().opaque(test::pattern(name, 1));
    call.eligible_argument(source);
    call.arguments().u32(wanted);
    call.arguments().u32(wide);
    call.eligible_result(memory.subspan(65536, wanted));
    call.expect_results(12 + xdr_padded(wide));
    EXPECT_EQ(call.plan(*connection), BoundCall::Outcome::kPlanned);
    call.request().on_reply = Done::on_reply;
    call.request().context = &done;
    done.request = &call.request();
    EXPECT_EQ(connection->submit(call.request()), SubmitOutcome::kPosted);
    pair.until([&] { return done.times == 1; });
    return done.good;
  }

  Pair pair;
  Connection* connection;
  RegisteredBytes memory;
  CallTarget target{test::kProgram, 1, 1, {}};
  CallTarget plain_target{test::kProgram, 1, 2, {}};
  std::array<std::byte, 2 * kLongest> room{};
};

TEST(ConformanceBinding, AnArgumentIsReducedExactlyWhereTheCallWouldNotBeInline) {
  proves("R8166-3.4-1", "R8166-3.4-2", "R8166-3.5-2", "R8166-3.5-3", "R8166-4.2.4-7", "R8166-6.3-1");
  Rig rig;
  constexpr std::uint32_t kFits = kThreshold - kMinHeaderBytes - kRpcBytes - 4 - 4 - 8;  // with an empty name
  for (const std::uint32_t length :
       {0U, 1U, 2U, 3U, 4U, 1000U, kFits - 3, kFits, kFits + 1, kFits + 4, 9001U, kLongest}) {
    EXPECT_TRUE(rig.transfer_of(0, length, 0, 0)) << length;
    EXPECT_EQ(form.reads, length > kFits ? 1U : 0U) << length;
    EXPECT_EQ(form.writes, 0U);
    EXPECT_FALSE(form.reply_chunk);
  }
  EXPECT_EQ(Pair::counter(*rig.pair.server, "long_calls_pulled"), 0U);
  // What is not eligible makes the Call long instead, and what is eligible stays out of it.
  EXPECT_TRUE(rig.transfer_of(5000, 2000, 0, 0));
  EXPECT_EQ(form.reads, 1U);
  EXPECT_EQ(Pair::counter(*rig.pair.server, "long_calls_pulled"), 1U);
}

TEST(ConformanceBinding, TheReplysBoundDecidesOnItsChunks) {
  proves("R8166-4.3.2-1", "R8166-4.3.2-3", "R8166-4.3.2-5", "R8166-4.3.2-11", "R8166-4.3.3-1", "R8166-4.3.3-2",
         "R8166-6.2-1", "R8166-3.5-11", "ENG-IN-2", "ENG-MX-7");
  Rig rig;
  constexpr std::uint32_t kFits = kThreshold - kMinHeaderBytes - kAcceptedReplyBytes - 12;
  for (const std::uint32_t wanted : {0U, 5U, kFits - 4, kFits, kFits + 1, 9001U, kLongest}) {
    EXPECT_TRUE(rig.transfer_of(3, 10, wanted, 0)) << wanted;
    EXPECT_EQ(form.writes, wanted > kFits ? 1U : 0U) << wanted;
    EXPECT_FALSE(form.reply_chunk) << wanted;
  }
  // Beside a Write chunk the rest may need a Reply chunk.
  constexpr std::uint32_t kRest = kFits - 8 - 16;
  for (const std::uint32_t wide : {4U, kRest, kRest + 4, 9000U}) {
    EXPECT_TRUE(rig.transfer_of(3, 10, 5000, wide)) << wide;
    EXPECT_EQ(form.writes, 1U) << wide;
    EXPECT_EQ(form.reply_chunk, wide > kRest) << wide;
  }
}

TEST(ConformanceBinding, EveryCombinationOfFormsCarriesTheSameCall) {
  proves("R8166-6.1-5", "R8166-6.1-6", "R8166-3.4-13");
  Rig rig;
  for (const std::uint32_t name : {0U, 3U, 5000U}) {
    for (const std::uint32_t length : {0U, 7U, 4000U, 9001U}) {
      for (const std::uint32_t wanted : {0U, 7U, 4000U, 9001U}) {
        for (const std::uint32_t wide : {0U, 7U, 9001U}) {
          EXPECT_TRUE(rig.transfer_of(name, length, wanted, wide))
              << name << ", " << length << ", " << wanted << ", " << wide;
        }
      }
    }
  }
}

TEST(ConformanceBinding, NothingIsReducedThatTheBindingDoesNotList) {
  proves("R8166-3.4-1", "R8166-3.4-10", "R8166-6.1-1", "R8166-6.1-2");
  Rig rig;
  BoundCall argument(kNothingEligible, rig.plain_target, rig.room);
  argument.eligible_argument(rig.memory.first(8));
  EXPECT_EQ(argument.plan(*rig.connection), BoundCall::Outcome::kNotEligible);
  BoundCall result(kNothingEligible, rig.plain_target, rig.room);
  result.eligible_result(rig.memory.first(8));
  EXPECT_EQ(result.plan(*rig.connection), BoundCall::Outcome::kNotEligible);
  BoundCall second(kTransfer, rig.target, rig.room);
  second.eligible_argument(rig.memory.first(8));
  second.eligible_argument(rig.memory.first(8));
  EXPECT_EQ(second.plan(*rig.connection), BoundCall::Outcome::kNotEligible);
  BoundCall too_long(kTransfer, rig.target, rig.room);
  too_long.eligible_argument(rig.memory.first(kLongest + 1));
  EXPECT_EQ(too_long.plan(*rig.connection), BoundCall::Outcome::kTooLong);
  BoundCall no_room(kTransfer, rig.target, std::span(rig.room).first(6));
  no_room.arguments().u64(1);
  EXPECT_EQ(no_room.plan(*rig.connection), BoundCall::Outcome::kNoRoom);

  // The Responder refuses what comes reduced all the same, and pushes nothing that is not eligible.
  test::Seen seen;
  const auto arguments = test::bytes_of({100});
  const BulkSource sources[] = {{4, rig.memory.first(64)}};
  CallRequest request{.target = &rig.plain_target,
                      .arguments = arguments,
                      .sources = sources,
                      .max_results = 200,
                      .on_reply = test::Seen::on_reply,
                      .context = &seen};
  ASSERT_EQ(rig.connection->submit(request), SubmitOutcome::kPosted);
  rig.pair.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.error, CallError::kErrChunk);
  const RegisteredBytes sinks[] = {rig.memory.first(100)};
  request.sources = {};
  request.sinks = sinks;
  ASSERT_EQ(rig.connection->submit(request), SubmitOutcome::kPosted);
  rig.pair.until([&] { return seen.times == 2; });
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(seen.written, std::vector<std::uint32_t>{0});
  EXPECT_EQ(seen.results.size(), 4 + 4 + 100U);
}

TEST(ConformanceBinding, ResultsThatBreakTheRulesAreNotTaken) {
  proves("ENG-WR-2", "R8166-3.4.6-10", "R8166-6.1-4", "ENG-WR-3");
  std::array<std::byte, 64> memory{};
  const RegisteredBytes sinks[] = {memory};
  const CallRequest with_sink{.sinks = sinks};
  const CallRequest without{};
  const auto taken = [](const CallRequest& request, const Octets& results, std::vector<std::uint32_t> written) {
    Reply reply;
    reply.results = results;
    reply.written = written;
    BoundResults bound(request, reply);
    const std::size_t length = bound.eligible_result().size();
    return std::pair(bound.ok(), length);
  };
  using Taken = std::pair<bool, std::size_t>;
  EXPECT_EQ(taken(with_sink, test::bytes_of({9}), {9}), Taken(true, 9));
  EXPECT_EQ(taken(with_sink, test::bytes_of({9}), {8}), Taken(false, 0));
  EXPECT_EQ(taken(with_sink, test::bytes_of({8, 1, 2}), {0}), Taken(false, 0));
  EXPECT_EQ(taken(with_sink, test::bytes_of({0}), {0}), Taken(true, 0));
  EXPECT_EQ(taken(with_sink, {}, {0}), Taken(false, 0));
  EXPECT_EQ(taken(without, test::bytes_of({8, 1, 2}), {}), Taken(true, 8));
  EXPECT_EQ(taken(without, test::bytes_of({8, 1}), {}), Taken(false, 0));
}

}  // namespace
}  // namespace rodeo
