// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// The cycle counter, and what one tick of it is worth. Loops read it once per burst.

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace rodeo::pools {

/// Ticks of the invariant counter that all cores share. Not a serialising read: right for timing bursts.
[[nodiscard]] inline std::uint64_t tsc_now() noexcept {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  std::uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
#error "no cycle counter is known for this architecture"
#endif
}

/// Ticks per second. The first call measures it (5 ms at most) and belongs on the slow path; later ones only load.
[[nodiscard]] double tsc_hz() noexcept;

/// Nanoseconds in so many ticks.
[[nodiscard]] inline double ticks_to_ns(std::uint64_t ticks) noexcept {
  return static_cast<double>(ticks) * (1e9 / tsc_hz());
}

/// Ticks in so many nanoseconds, for deadlines computed ahead.
[[nodiscard]] inline std::uint64_t ns_to_ticks(double nanoseconds) noexcept {
  return static_cast<std::uint64_t>(nanoseconds * (tsc_hz() / 1e9));
}

}  // namespace rodeo::pools
