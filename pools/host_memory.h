// SPDX-License-Identifier: Apache-2.0
#pragma once

// How much memory the host would give us, asked before it is touched.
// Runs on: control thread (slow path).

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rodeo::pools {

inline constexpr std::size_t kHugepageBytes = std::size_t{2} << 20;

/// The 2 MiB hugepages of the machine.
struct Hugepages {
  std::uint64_t reserved = 0;  ///< what vm.nr_hugepages says
  std::uint64_t free = 0;      ///< not in use and not promised to anyone
};
[[nodiscard]] Hugepages host_hugepages();

/// Bytes that can be touched without swapping or waking the OOM killer: the kernel's MemAvailable, or what the limits
/// of our memory cgroups leave if that is less. 0 when /proc does not say.
[[nodiscard]] std::uint64_t host_available_bytes();

/// The value in bytes of a `Name:  123 kB` line of a file such as /proc/meminfo; 0 when it is not there.
[[nodiscard]] std::uint64_t kib_line(std::string_view text, std::string_view name);

}  // namespace rodeo::pools
