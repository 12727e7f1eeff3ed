// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sched.h>

#include <cstddef>

namespace rodeo::bench {

/// Binds the calling thread to one core. False when that core is not to be had.
[[nodiscard]] inline bool pin_to_core(int core) noexcept {
  if (core < 0 || core >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace rodeo::bench
