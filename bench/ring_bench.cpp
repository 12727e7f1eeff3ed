// SPDX-License-Identifier: Apache-2.0
// Hand-off through our typed rings beside the bare rte_ring burst, in the same run: one push and one pop of a burst on
// one core, so that what is compared is the code and not the distance between two cores.

#include <benchmark/benchmark.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <span>

#include "bench/per_operation.h"
#include "pools/ring.h"

namespace {

using rodeo::bench::PerOperation;

constexpr std::size_t kCapacity = 1024;
constexpr std::size_t kMaxBurst = 64;
using Item = std::uint64_t;  // as wide as the pointer to a Call
using Items = std::array<Item, kMaxBurst>;

template <class Ring>
void rodeo_ring(benchmark::State& state) {
  auto ring = Ring::create(kCapacity);
  if (!ring) {
    state.SkipWithError(ring.error().message().c_str());
    return;
  }
  const auto burst = static_cast<std::size_t>(state.range(0));
  Items in{};
  Items out{};
  PerOperation per_operation(state);
  for (auto _ : state) {
    const std::size_t pushed = (*ring)->push(std::span<const Item>(in.data(), burst));
    const std::size_t popped = (*ring)->pop(std::span<Item>(out.data(), burst));
    if (pushed != burst || popped != burst) state.SkipWithError("the ring took less than a burst");
    benchmark::DoNotOptimize(out);
  }
  per_operation.report(burst);
}

struct FreeRing {
  void operator()(rte_ring* ring) const noexcept { std::free(ring); }
};

template <unsigned kFlags>
void bare_rte_ring(benchmark::State& state) {
  const auto bytes = static_cast<std::size_t>(rte_ring_get_memsize_elem(sizeof(Item), 2 * kCapacity));
  const std::unique_ptr<rte_ring, FreeRing> ring(
      static_cast<rte_ring*>(std::aligned_alloc(128, (bytes + 127) / 128 * 128)));
  if (ring == nullptr || rte_ring_init(ring.get(), "bare", 2 * kCapacity, kFlags) != 0) {
    state.SkipWithError("rte_ring could not be made");
    return;
  }
  const auto burst = static_cast<unsigned>(state.range(0));
  Items in{};
  Items out{};
  PerOperation per_operation(state);
  for (auto _ : state) {
    const unsigned pushed = rte_ring_enqueue_burst_elem(ring.get(), in.data(), sizeof(Item), burst, nullptr);
    const unsigned popped = rte_ring_dequeue_burst_elem(ring.get(), out.data(), sizeof(Item), burst, nullptr);
    if (pushed != burst || popped != burst) state.SkipWithError("the ring took less than a burst");
    benchmark::DoNotOptimize(out);
  }
  per_operation.report(burst);
}

constexpr unsigned kSpsc = RING_F_SP_ENQ | RING_F_SC_DEQ;
constexpr unsigned kMpsc = RING_F_SC_DEQ;
constexpr unsigned kMpmc = 0;

void bursts(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgName("burst")->Arg(1)->Arg(8)->Arg(32)->Arg(64);
}

BENCHMARK(rodeo_ring<rodeo::pools::SpscRing<Item>>)->Name("ring/spsc/ours")->Apply(bursts);
BENCHMARK(bare_rte_ring<kSpsc>)->Name("ring/spsc/bare")->Apply(bursts);
BENCHMARK(rodeo_ring<rodeo::pools::MpscRing<Item>>)->Name("ring/mpsc/ours")->Apply(bursts);
BENCHMARK(bare_rte_ring<kMpsc>)->Name("ring/mpsc/bare")->Apply(bursts);
BENCHMARK(rodeo_ring<rodeo::pools::MpmcRing<Item>>)->Name("ring/mpmc/ours")->Apply(bursts);
BENCHMARK(bare_rte_ring<kMpmc>)->Name("ring/mpmc/bare")->Apply(bursts);

}  // namespace

BENCHMARK_MAIN();
