// SPDX-License-Identifier: Apache-2.0
#pragma once

// Counts every operator new of the program it is linked into, from any thread.

#include <cstdint>

namespace rodeo::bench {

/// How often memory was allocated since the program started.
[[nodiscard]] std::uint64_t allocation_count() noexcept;

}  // namespace rodeo::bench
