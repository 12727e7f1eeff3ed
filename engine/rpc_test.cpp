// SPDX-License-Identifier: Apache-2.0

// Whole RPCs, Requester to Responder and back, by turns taken by hand.

#include <algorithm>
#include <array>
#include <cstring>

#include "engine/test_pair.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::must;
using test::Pair;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kMaxData = 256 * 1024;

// Procedures: 0 NULL, 1 echo opaque<>, 2 take data by Read chunk and give it back by Write chunk, 3 deferred NULL,
// 4 forgets to answer, 5 two results, the first of which may be inline.
DeferredCall deferred;

void null(Call& call, void*) noexcept { call.reply(); }

void echo(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const auto data = reader.opaque(kMaxData);
  if (!reader.ok()) return call.reject(AcceptStat::kGarbageArgs);
  call.results(data.size() + 8).opaque(data);
  call.reply();
}

void mirror(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, kMaxData);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    pulled.push(pulled.kept(0).first(pulled.state()[0]));
    pulled.results().u32(0xfeedbeef);  // an item after the reduced one
    pulled.reply();
  });
}

void defer(Call& call, void*) noexcept { deferred = call.defer(); }
void forget(Call&, void*) noexcept {}

[[nodiscard]] Program program() {
  return {.number = kProgram,
          .version = 1,
          .name = "test",
          .procedures = {{.number = 0, .name = "NULL", .handler = null},
                         {.number = 1, .name = "ECHO", .handler = echo},
                         {.number = 2, .name = "MIRROR", .handler = mirror, .max_read_chunks = 1},
                         {.number = 3, .name = "DEFER", .handler = defer},
                         {.number = 4, .name = "FORGET", .handler = forget}}};
}

[[nodiscard]] CallTarget target(std::uint32_t procedure, std::uint32_t version = 1, std::uint32_t number = kProgram) {
  Credential credential;
  credential.flavor = AuthFlavor::kSys;
  credential.sys.machine_name = "host";
  return {number, version, procedure, credential};
}

[[nodiscard]] std::vector<std::byte> pattern(std::size_t length, unsigned seed = 1) {
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((i * 7 + (i >> 8U) + seed) & 0xffU);
  return out;
}

TEST(Rpc, ANullCallIsAnswered) {
  proves("R5531-12-1", "R8166-3.5-1");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget null_call = target(0);
  const Seen seen = call_once(pair, *connection, {.target = &null_call});
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(seen.accept_stat, AcceptStat::kSuccess);
  EXPECT_TRUE(seen.results.empty());
  expect_all_home(pair);
}

TEST(Rpc, EchoesOfEverySizeChooseInlineOrLongForms) {
  proves("R8166-3.5-3", "R8166-3.5-4", "R8166-3.5-5", "R8166-4.3.3-1");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget echo_call = target(1);
  for (const std::size_t length :
       {0UL, 1UL, 3UL, 60UL, 200UL, 1000UL, 3900UL, 3990UL, 4000UL, 4096UL, 5300UL, 65536UL, 200001UL}) {
    std::vector<std::byte> arguments(length + 8);
    XdrWriter writer(arguments);
    writer.opaque(pattern(length));
    const Seen seen =
        call_once(pair, *connection, {.target = &echo_call, .arguments = writer.written(), .max_results = length + 8});
    ASSERT_EQ(seen.error, CallError::kNone) << length;
    XdrReader reader(seen.results);
    const auto back = reader.opaque(kMaxData);
    ASSERT_TRUE(reader.ok()) << length;
    EXPECT_TRUE(std::ranges::equal(back, pattern(length))) << length;
  }
  EXPECT_GT(Pair::counter(*pair.server, "long_calls_pulled"), 0U);
  EXPECT_GT(Pair::counter(*pair.server, "long_replies"), 0U);
  expect_all_home(pair);
}

TEST(Rpc, ALongCallMayBeSmall) {
  proves("R8166-3.5-6", "R8166-4-3");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget null_call = target(0);
  const Seen seen = call_once(pair, *connection, {.target = &null_call, .force_long_call = true});
  EXPECT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(Pair::counter(*pair.server, "long_calls_pulled"), 1U);
  expect_all_home(pair);
}

TEST(Rpc, BulkDataGoesByReadChunkAndComesByWriteChunk) {
  proves("R8166-3.4-7", "R8166-3.4-13", "R8166-3.4.5-10", "R8166-3.4.6-3", "R8166-3.4.6-9");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget mirror_call = target(2);
  for (const std::size_t length : {1UL, 5UL, 4096UL, 8195UL, 262144UL}) {
    for (const bool long_call : {false, true}) {
      Buffer source = connection->make_buffer(length);
      Buffer sink = connection->make_buffer(length + 4);
      ASSERT_TRUE(source && sink);
      const auto data = pattern(length, 9);
      std::memcpy(source.data(), data.data(), length);
      std::memset(sink.data(), 0xee, length + 4);
      std::byte arguments[4];
      store_be32(arguments, static_cast<std::uint32_t>(length));
      const BulkSource sources[] = {{4, source.first(length)}};
      const RegisteredBytes sinks[] = {sink.first(length)};
      const Seen seen = call_once(pair, *connection,
                                  {.target = &mirror_call,
                                   .arguments = arguments,
                                   .sources = sources,
                                   .sinks = sinks,
                                   .max_results = 8,
                                   .force_long_call = long_call});
      ASSERT_EQ(seen.error, CallError::kNone) << length;
      ASSERT_EQ(seen.written.size(), 1U);
      EXPECT_EQ(seen.written[0], length);
      XdrReader reader(seen.results);
      EXPECT_EQ(reader.u32(), length);      // the length word stays
      EXPECT_EQ(reader.u32(), 0xfeedbeef);  // the next item follows without a pad
      EXPECT_EQ(reader.remaining(), 0U);
      EXPECT_EQ(std::memcmp(sink.data(), data.data(), length), 0);
      EXPECT_EQ(sink.data()[length], std::byte{0xee});  // no pad in the chunk
    }
  }
  expect_all_home(pair);
}

TEST(Rpc, WithoutAWriteChunkTheResultComesInline) {
  proves("R8166-4.3.2-11");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget mirror_call = target(2);
  std::byte storage[16];
  XdrWriter arguments(storage);
  arguments.opaque(pattern(5));
  const Seen seen =
      call_once(pair, *connection, {.target = &mirror_call, .arguments = arguments.written(), .max_results = 16});
  XdrReader reader(seen.results);
  EXPECT_TRUE(std::ranges::equal(reader.opaque(5), pattern(5)));
  EXPECT_EQ(reader.u32(), 0xfeedbeef);
  EXPECT_TRUE(reader.ok());
  expect_all_home(pair);
}

TEST(Rpc, AWriteChunkThatIsTooSmallIsAnsweredErrChunk) {
  proves("ENG-WR-4");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget mirror_call = target(2);
  Buffer source = connection->make_buffer(200);
  Buffer sink = connection->make_buffer(200);
  std::memset(sink.data(), 0xee, 200);
  std::byte arguments[4];
  store_be32(arguments, 200);
  const BulkSource sources[] = {{4, source.first(200)}};
  const RegisteredBytes sinks[] = {sink.first(100)};
  const Seen seen =
      call_once(pair, *connection,
                {.target = &mirror_call, .arguments = arguments, .sources = sources, .sinks = sinks, .max_results = 8});
  EXPECT_EQ(seen.error, CallError::kErrChunk);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(sink.data()[i], std::byte{0xee});
  const CallTarget null_call = target(0);
  EXPECT_EQ(call_once(pair, *connection, {.target = &null_call}).error, CallError::kNone);
  source.reset();
  sink.reset();
  expect_all_home(pair);
}

TEST(Rpc, LongCallsThatHoldAllBulkBuffersDoNotWaitForEachOther) {
  constexpr std::uint32_t kLength = 100'000;  // more than a small buffer holds
  Config server = test::small_config();
  server.bulk_buffers = 2;
  Pair pair(program(), server);
  Connection* connection = pair.connect();
  const CallTarget null_call = target(0);
  EXPECT_EQ(call_once(pair, *connection, {.target = &null_call}).error, CallError::kNone);
  const CallTarget mirror_call = target(2);
  std::byte arguments[4];
  store_be32(arguments, kLength);
  std::array<Buffer, 4> sources;
  std::array<Buffer, 4> sinks;
  std::array<BulkSource, 4> read;
  std::array<RegisteredBytes, 4> written;
  std::array<Seen, 4> seen;
  const auto submit = [&](std::size_t i, bool is_long) {
    sources[i] = connection->make_buffer(kLength);
    sinks[i] = connection->make_buffer(kLength);
    read[i] = {4, sources[i].first(kLength)};
    written[i] = sinks[i].first(kLength);
    ASSERT_EQ(connection->submit({.target = &mirror_call,
                                  .arguments = arguments,
                                  .sources = {&read[i], 1},
                                  .sinks = {&written[i], 1},
                                  .max_results = 8,
                                  .force_long_call = is_long,
                                  .on_reply = Seen::on_reply,
                                  .context = &seen[i]}),
              SubmitOutcome::kPosted);
  };
  // Each of the first two holds its Payload when its argument wants a buffer, too; the third holds none and can wait.
  submit(0, true);
  submit(1, true);
  submit(2, false);
  pair.until([&] { return seen[0].times + seen[1].times + seen[2].times == 3; });
  EXPECT_EQ(seen[2].accept_stat, AcceptStat::kSuccess);
  const auto refused = std::count_if(seen.begin(), seen.begin() + 2, [](const Seen& one) {
    return one.error == CallError::kNone && one.accept_stat == AcceptStat::kSystemErr;
  });
  EXPECT_GE(refused, 1);
  EXPECT_EQ(Pair::counter(*pair.server, "buffer_refusals"), static_cast<std::uint64_t>(refused));
  submit(3, true);  // alone it has both
  pair.until([&] { return seen[3].times == 1; });
  EXPECT_EQ(seen[3].error, CallError::kNone);
  EXPECT_EQ(seen[3].accept_stat, AcceptStat::kSuccess);
  sources = {};
  sinks = {};
  expect_all_home(pair);
}

TEST(Rpc, AReadChunkForAnArgumentThatIsNotEligibleIsRefused) {
  proves("R8166-6.1-1", "R8166-6.1-2");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget echo_call = target(1);
  Buffer source = connection->make_buffer(64);
  std::byte arguments[4];
  store_be32(arguments, 64);
  const BulkSource sources[] = {{4, source.first(64)}};
  EXPECT_EQ(call_once(pair, *connection, {.target = &echo_call, .arguments = arguments, .sources = sources}).error,
            CallError::kErrChunk);
  source.reset();
  expect_all_home(pair);
}

TEST(Rpc, UnknownProgramVersionAndProcedureEachHaveTheirAnswer) {
  proves("R5531-9-2");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget no_program = target(0, 1, kProgram + 1);
  const CallTarget no_version = target(0, 7);
  const CallTarget no_procedure = target(99);
  EXPECT_EQ(call_once(pair, *connection, {.target = &no_program}).accept_stat, AcceptStat::kProgUnavail);
  EXPECT_EQ(call_once(pair, *connection, {.target = &no_version}).accept_stat, AcceptStat::kProgMismatch);
  EXPECT_EQ(call_once(pair, *connection, {.target = &no_procedure}).accept_stat, AcceptStat::kProcUnavail);
  const CallTarget echo_call = target(1);
  const std::byte short_arguments[4] = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{9}};
  EXPECT_EQ(call_once(pair, *connection, {.target = &echo_call, .arguments = short_arguments}).accept_stat,
            AcceptStat::kGarbageArgs);
  const CallTarget forgetful = target(4);
  EXPECT_EQ(call_once(pair, *connection, {.target = &forgetful}).accept_stat, AcceptStat::kSystemErr);
  expect_all_home(pair);
}

TEST(Rpc, ADeferredCallIsAnsweredLater) {
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget defer_call = target(3);
  Seen seen;
  ASSERT_EQ(connection->submit({.target = &defer_call, .on_reply = Seen::on_reply, .context = &seen}),
            SubmitOutcome::kPosted);
  pair.until([] { return bool(deferred); });
  for (int i = 0; i < 100; ++i) pair.turn();
  EXPECT_EQ(seen.times, 0);
  deferred.reply();
  deferred = {};
  pair.until([&] { return seen.times != 0; });
  EXPECT_EQ(seen.error, CallError::kNone);
  expect_all_home(pair);
}

TEST(Rpc, OneCreditUntilTheFirstReplyThenTheGrant) {
  proves("R8166-3.3-11", "R8166-3.3-12", "R8166-3.3-2", "R8166-3.3-4");
  Pair pair(program());
  Connection* connection = pair.connect(8);
  const CallTarget null_call = target(0);
  std::vector<Seen> seen(20);
  int posted = 0;
  const auto submit = [&] {
    const auto outcome = connection->submit(
        {.target = &null_call, .on_reply = Seen::on_reply, .context = &seen[static_cast<std::size_t>(posted)]});
    posted += outcome == SubmitOutcome::kPosted ? 1 : 0;
    return outcome;
  };
  EXPECT_EQ(submit(), SubmitOutcome::kPosted);
  EXPECT_EQ(submit(), SubmitOutcome::kNoCredit);
  pair.until([&] { return seen[0].times == 1; });
  EXPECT_EQ(connection->credits_left(), 8U);
  while (posted < 9) ASSERT_EQ(submit(), SubmitOutcome::kPosted);
  EXPECT_EQ(submit(), SubmitOutcome::kNoCredit);
  EXPECT_EQ(connection->in_flight(), 8U);
  pair.until([&] { return connection->in_flight() == 0; });
  expect_all_home(pair);
}

TEST(Rpc, ALostConnectionEndsEveryCallOnceAndLosesNoBuffer) {
  proves("ENG-RT-6");
  Pair pair(program());
  Connection* connection = pair.connect();
  const CallTarget null_call = target(0);
  (void)call_once(pair, *connection, {.target = &null_call});
  const CallTarget defer_call = target(3);
  std::vector<Seen> seen(4);
  for (Seen& one : seen) {
    ASSERT_EQ(connection->submit({.target = &defer_call, .on_reply = Seen::on_reply, .context = &one}),
              SubmitOutcome::kPosted);
  }
  for (int i = 0; i < 100; ++i) pair.turn();
  pair.server.reset();  // as when the process dies, its deferred calls with it
  deferred = {};
  for (int i = 0; i < 200000 && seen.back().times == 0; ++i) pair.client->step();
  for (const Seen& one : seen) {
    EXPECT_EQ(one.times, 1);
    EXPECT_EQ(one.error, CallError::kConnectionLost);
  }
  EXPECT_EQ(connection->submit({.target = &null_call}), SubmitOutcome::kClosed);
  pair.client->stop();
  test::expect_adds_up(*pair.client);
}

TEST(Rpc, WhyAConnectionWasRefusedIsToldWhole) {
  Config server = test::small_config();
  server.small_buffers = 1;  // none is left for a second connection
  Pair pair(program(), server);
  (void)pair.connect(1);
  const std::uint64_t attempt = must(pair.client->begin_connect(pair.address, 0, 1));
  std::string why;
  pair.until([&] {
    const auto connection = pair.client->finish_connect(attempt);
    if (!connection) why = connection.error().message();
    return !connection || *connection != nullptr;
  });
  EXPECT_EQ(why, pair.address +
                     ": the engine there refused the connection: connection: there are not enough small "
                     "buffers, Calls, or places in a shared receive queue for its receives; raise --small-buffers or "
                     "--connections, or lower --credits");
}

TEST(Rpc, WhyAConnectionWasLostIsTold) {
  Pair pair(program());
  Connection* connection = pair.connect();
  pair.server->stop();
  for (int i = 0; i < 200000 && connection->open(); ++i) pair.client->step();
  EXPECT_EQ(pair.client->why_closed(connection), "the peer closed the connection");
}

TEST(Rpc, ManyConnectionsComeAndGoWithoutLeaking) {
  Pair pair(program());
  const CallTarget null_call = target(0);
  for (int round = 0; round < 50; ++round) {
    Connection* connection = pair.connect(2);
    ASSERT_EQ(call_once(pair, *connection, {.target = &null_call}).error, CallError::kNone);
    pair.client->disconnect(connection);
    pair.until([&] { return pair.client->connection_count() == 0 && pair.server->connection_count() == 0; });
  }
  expect_all_home(pair);
}

TEST(Rpc, ThresholdsBelowTheDefaultAreRefused) {
  proves("R8166-3.3.2-3");
  Config config = test::small_config();
  config.inline_receive_bytes = 512;
  EXPECT_FALSE(Engine::open("soft:x", config));
}

TEST(Rpc, EachDirectionObeysItsOwnThreshold) {
  proves("R8166-3.3.2-1", "R8797-4.2-2", "R8797-4.2-3");
  Config server = test::small_config();
  server.inline_receive_bytes = 8192;
  server.inline_send_bytes = 2048;
  Config client = test::small_config();
  client.inline_send_bytes = 65536;
  client.inline_receive_bytes = 4096;
  Pair pair(program(), server, client);
  Connection* connection = pair.connect();
  EXPECT_EQ(connection->call_threshold(), 8192U);
  EXPECT_EQ(connection->reply_threshold(), 2048U);
  const CallTarget echo_call = target(1);
  for (const std::size_t length : {2000UL, 4000UL, 8000UL, 9000UL}) {
    std::vector<std::byte> arguments(length + 8);
    XdrWriter writer(arguments);
    writer.opaque(pattern(length));
    const Seen seen =
        call_once(pair, *connection, {.target = &echo_call, .arguments = writer.written(), .max_results = length + 8});
    ASSERT_EQ(seen.error, CallError::kNone) << length;
    EXPECT_EQ(seen.results.size(), ((length + 3) & ~3UL) + 4);
  }
  expect_all_home(pair);
}

}  // namespace
}  // namespace rodeo
