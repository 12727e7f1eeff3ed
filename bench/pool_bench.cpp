// SPDX-License-Identifier: Apache-2.0
// Buffers: got and put on their own core (the cache), and handed back from another core (the pool's ring).

#include <benchmark/benchmark.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "bench/per_operation.h"
#include "pools/buffer_pool.h"

namespace {

using rodeo::bench::PerOperation;
using rodeo::pools::BufferCache;
using rodeo::pools::BufferPool;
using rodeo::pools::Owner;

constexpr std::size_t kBufferBytes = 4096;
constexpr std::size_t kBuffers = 1024;
constexpr std::size_t kMaxBurst = 64;
using Burst = std::array<std::byte*, kMaxBurst>;

/// A pool over ordinary memory.
struct Fixture {
  Fixture()
      : memory(new (std::align_val_t{128}) std::byte[BufferPool::footprint(kBufferBytes, kBuffers)]),
        pool(BufferPool::create("bench", {memory.get(), BufferPool::footprint(kBufferBytes, kBuffers)}, kBufferBytes,
                                kBuffers)) {}
  /// Otherwise the benchmark says why it cannot run.
  [[nodiscard]] bool ready(benchmark::State& state) const {
    if (!pool) state.SkipWithError(pool.error().message().c_str());
    return pool.has_value();
  }
  struct Free {
    void operator()(std::byte* bytes) const noexcept { ::operator delete[](bytes, std::align_val_t{128}); }
  };
  std::unique_ptr<std::byte[], Free> memory;
  rodeo::Result<std::unique_ptr<BufferPool>> pool;
};

void get_and_put(benchmark::State& state) {
  Fixture fixture;
  if (!fixture.ready(state)) return;
  BufferCache cache(**fixture.pool, 128);
  const auto burst = static_cast<std::size_t>(state.range(0));
  Burst buffers{};
  PerOperation per_operation(state);
  for (auto _ : state) {
    for (std::size_t i = 0; i < burst; ++i) buffers[i] = cache.get(Owner::kCall);
    for (std::size_t i = 0; i < burst; ++i) cache.put(buffers[i]);
    benchmark::DoNotOptimize(buffers);
  }
  per_operation.report(burst);
}
BENCHMARK(get_and_put)->ArgName("burst")->Arg(1)->Arg(32)->Arg(64);

/// The burst leaves by the cache and comes back through the ring, as if another core had finished with it.
void get_and_hand_back(benchmark::State& state) {
  Fixture fixture;
  if (!fixture.ready(state)) return;
  BufferCache cache(**fixture.pool, 128);
  const auto burst = static_cast<std::size_t>(state.range(0));
  Burst buffers{};
  PerOperation per_operation(state);
  for (auto _ : state) {
    const std::size_t got = cache.get_burst(std::span(buffers.data(), burst), Owner::kCall);
    if (got != burst) state.SkipWithError("the pool ran dry");
    (*fixture.pool)->hand_back(std::span<std::byte* const>(buffers.data(), got));
  }
  per_operation.report(burst);
}
BENCHMARK(get_and_hand_back)->ArgName("burst")->Arg(1)->Arg(32)->Arg(64);

void index_of_an_address(benchmark::State& state) {
  Fixture fixture;
  if (!fixture.ready(state)) return;
  const BufferPool& pool = **fixture.pool;
  const std::byte* address = pool.at(777) + 123;
  PerOperation per_operation(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(address);
    std::uint32_t index = pool.index_of(address);
    benchmark::DoNotOptimize(index);
  }
  per_operation.report(1);
}
BENCHMARK(index_of_an_address);

}  // namespace

BENCHMARK_MAIN();
