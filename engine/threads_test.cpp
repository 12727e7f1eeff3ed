// SPDX-License-Identifier: Apache-2.0

// The engine with its threads: a poll core and a worker core, against a Requester on this thread.

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "engine/persistent_connection.h"
#include "engine/test_pair.h"
#include "pools/proves.h"
#include "pools/topology.h"

namespace rodeo {
namespace {

using test::Pair;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000002;

std::atomic<std::uint64_t> served{0};

void add_one(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const std::uint32_t value = reader.u32();
  served.fetch_add(1, std::memory_order_relaxed);
  call.results().u32(value + 1);
  call.reply();
}

void sum_of_pulled(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, 1 << 18);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    std::uint32_t sum = 0;
    for (const std::byte b : pulled.kept(0).first(pulled.state()[0])) sum += static_cast<std::uint32_t>(b);
    pulled.results().u32(sum);
    pulled.reply();
  });
}

[[nodiscard]] Config threaded_config() {
  Config config = test::small_config();
  const auto topology = test::must(pools::Topology::load());
  const auto cores = topology.allowed_cores();
  config.poll_cores = {cores[0]};
  if (cores.size() > 1) config.worker_cores = {cores[1]};
  return config;
}

TEST(Threads, CallsCrossToWorkersAndBackWhileOthersRunOnThePollCore) {
  Pair pair({.number = kProgram,
             .version = 1,
             .name = "test",
             .procedures = {{.number = 0, .name = "HERE", .handler = add_one},
                            {.number = 1, .name = "THERE", .handler = add_one, .placement = Placement::kWorkerCore},
                            {.number = 2,
                             .name = "PULL",
                             .handler = sum_of_pulled,
                             .placement = Placement::kWorkerCore,
                             .max_read_chunks = 1}}},
            threaded_config());
  // The server's own threads run it; only the client is stepped here.
  Connection* connection = test::must(pair.client->connect(pair.address, 0, 8));
  const CallTarget here(kProgram, 1, 0, {});
  const CallTarget there(kProgram, 1, 1, {});
  const CallTarget pull(kProgram, 1, 2, {});
  Buffer source = connection->make_buffer(100000);
  std::memset(source.data(), 3, 100000);
  constexpr int kCalls = 600;
  std::vector<Seen> seen(kCalls);
  int next = 0;
  const auto patience = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (std::chrono::steady_clock::now() < patience) {
    while (next < kCalls) {
      std::byte arguments[4];
      store_be32(arguments, next % 3 == 2 ? 100000U : static_cast<std::uint32_t>(next));
      const BulkSource sources[] = {{4, source.first(100000)}};
      CallRequest request{.target = next % 3 == 0 ? &here : next % 3 == 1 ? &there : &pull, .arguments = arguments};
      if (next % 3 == 2) request.sources = sources;
      request.on_reply = Seen::on_reply;
      request.context = &seen[static_cast<std::size_t>(next)];
      if (connection->submit(request) != SubmitOutcome::kPosted) break;
      ++next;
    }
    if (next == kCalls && connection->in_flight() == 0) break;
    pair.client->step();
  }
  for (int i = 0; i < kCalls; ++i) {
    const Seen& one = seen[static_cast<std::size_t>(i)];
    ASSERT_EQ(one.times, 1) << i;
    ASSERT_EQ(one.error, CallError::kNone) << i;
    ASSERT_EQ(load_be32(one.results.data()), i % 3 == 2 ? 300000U : static_cast<std::uint32_t>(i) + 1) << i;
  }
  EXPECT_EQ(served.load(), 400U);
  source.reset();
  pair.client->stop();
  pair.server->stop();
  test::expect_adds_up(*pair.server);
}

TEST(Threads, OfManyWhoWaitForATinyQueueNobodyIsForgotten) {  // F35
  proves("F35");
  constexpr std::uint32_t kCallers = 64;
  constexpr std::uint32_t kCallsEach = 8;
  Config config = threaded_config();
  config.credits = 2;
  Config client_config = test::small_config();
  client_config.credits = 2;
  Pair pair({.number = kProgram,
             .version = 1,
             .name = "test",
             .procedures = {{.number = 0, .name = "HERE", .handler = add_one},
                            {.number = 1, .name = "THERE", .handler = add_one, .placement = Placement::kWorkerCore}}},
            config, client_config);
  PersistentConnection connection(*pair.client, pair.address, {.connect = {.credits = 2}, .calls = kCallers});
  const CallTarget targets[] = {CallTarget(kProgram, 1, 0, {}), CallTarget(kProgram, 1, 1, {})};
  // Each caller has one call out, and the next one when that has ended.
  struct Caller {
    Seen seen;
    std::uint32_t calls = 0;
    std::array<std::byte, 4> arguments{};
  };
  std::vector<Caller> callers(kCallers);
  const auto submit = [&](std::uint32_t index) {
    Caller& caller = callers[index];
    store_be32(caller.arguments.data(), index + caller.calls);
    return connection.submit({.target = &targets[(index + caller.calls) % 2],
                              .arguments = caller.arguments,
                              .on_reply = Seen::on_reply,
                              .context = &caller.seen});
  };
  for (std::uint32_t i = 0; i < kCallers; ++i) ASSERT_TRUE(submit(i));
  std::uint32_t done = 0;
  std::uint64_t turns_left = 400'000'000;
  while (done < kCallers && !HasFailure() && --turns_left != 0) {
    pair.client->step();
    connection.maintain();
    for (std::uint32_t i = 0; i < kCallers; ++i) {
      Caller& caller = callers[i];
      if (caller.seen.times == 0) continue;
      EXPECT_EQ(caller.seen.error, CallError::kNone);
      EXPECT_EQ(load_be32(caller.seen.results.data()), i + caller.calls + 1);
      caller.seen.times = 0;
      if (++caller.calls == kCallsEach) {
        ++done;
      } else {
        EXPECT_TRUE(submit(i));
      }
    }
  }
  EXPECT_NE(turns_left, 0U) << "somebody waits for ever";
  connection.close();
  pair.client->stop();
  pair.server->stop();
  test::expect_adds_up(*pair.server);
}

TEST(Threads, StoppingSaysGoodbyeToAnIdlePeer) {
  Pair pair({.number = kProgram,
             .version = 1,
             .name = "test",
             .procedures = {{.number = 0, .name = "HERE", .handler = add_one}}},
            threaded_config());
  Connection* connection = test::must(pair.client->connect(pair.address, 0, 8));
  std::atomic<bool> stopped{false};
  std::thread stopper([&] {
    pair.server->stop();
    stopped = true;
  });
  while (!stopped) pair.client->step();
  stopper.join();
  EXPECT_EQ(pair.server->connection_count(), 0U);
  EXPECT_FALSE(connection->open());
  test::expect_adds_up(*pair.server);
}

}  // namespace
}  // namespace rodeo
