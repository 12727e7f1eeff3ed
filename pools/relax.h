// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.

namespace rodeo::pools {

/// What a spinning loop does between two looks: lets the other hyperthread and the writer of the line get on.
inline void relax() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb" ::: "memory");
#endif
}

}  // namespace rodeo::pools
