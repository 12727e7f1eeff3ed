// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path.

namespace rodeo::dv::soft {

/// Asks for the line in a state that can be written. The compiler's builtin would ask for a shared copy on baseline
/// x86-64, and the store would then have to ask again. Any address is fine; a bad one is ignored.
inline void prefetch_for_write(const void* line) noexcept {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

}  // namespace rodeo::dv::soft
