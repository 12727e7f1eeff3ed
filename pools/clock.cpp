// SPDX-License-Identifier: Apache-2.0
#include "pools/clock.h"

#include <time.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rodeo::pools {
namespace {

/// The frequency that the processor itself states, or 0 where it does not.
double stated_hz() noexcept {
#if defined(__x86_64__)
  // Leaf 15h: the counter runs at crystal * ebx / eax.
  unsigned denominator = 0;
  unsigned numerator = 0;
  unsigned crystal_hz = 0;
  unsigned unused = 0;
  if (__get_cpuid(0x15, &denominator, &numerator, &crystal_hz, &unused) != 0 && denominator != 0 && numerator != 0 &&
      crystal_hz != 0) {
    return static_cast<double>(crystal_hz) * numerator / denominator;
  }
  return 0;
#else
  std::uint64_t hz;
  asm volatile("mrs %0, cntfrq_el0" : "=r"(hz));
  return static_cast<double>(hz);
#endif
}

struct Sample {
  std::uint64_t ticks;
  std::int64_t nanoseconds;
};

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Both clocks at once: of several attempts the one that was least disturbed between its two counter reads.
Sample sample() noexcept {
  Sample best{};
  std::uint64_t best_gap = ~std::uint64_t{0};
  for (int attempt = 0; attempt < 16; ++attempt) {
    const std::uint64_t before = tsc_now();
    const std::int64_t now = monotonic_ns();
    const std::uint64_t gap = tsc_now() - before;
    if (gap < best_gap) {
      best_gap = gap;
      best = {before + gap / 2, now};
    }
  }
  return best;
}

double measured_hz() noexcept {
  constexpr std::int64_t kSpanNs = 4'000'000;
  const Sample first = sample();
  while (monotonic_ns() - first.nanoseconds < kSpanNs) {
  }
  const Sample last = sample();
  return static_cast<double>(last.ticks - first.ticks) * 1e9 /
         static_cast<double>(last.nanoseconds - first.nanoseconds);
}

}  // namespace

double tsc_hz() noexcept {
  static const double hz = [] {
    const double stated = stated_hz();
    return stated > 0 ? stated : measured_hz();
  }();
  return hz;
}

}  // namespace rodeo::pools
