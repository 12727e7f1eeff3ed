// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any; immutable once connections exist.
//
// Registered memory by key. Every device has a private table of its own regions and one for each peer process, filled
// when the peer's pools are mapped: what a peer writes into shared memory later cannot change what a key means.

#include <array>
#include <cstddef>
#include <cstdint>

#include "dv/device.h"

namespace rodeo::dv::soft {

/// key = index[31:8] | tag[7:0]. Index 0 is never used, nor 1: its tag 0 is mlx5's terminator of scatter lists.
inline constexpr std::uint32_t kFirstRegionIndex = 2;
inline constexpr std::uint32_t kRegionSlots = 64;
/// Windows follow the regions in the space of indexes.
inline constexpr std::uint32_t kFirstWindowIndex = kRegionSlots;

[[nodiscard]] constexpr std::uint32_t key_index(std::uint32_t key) noexcept { return key >> 8; }

struct Region {
  std::uint32_t key = 0;  // 0: the slot is unused
  Access access = Access::kLocal;
  std::uint64_t address = 0;  // as its owner sees it, and as WQEs name it
  std::uint64_t length = 0;
  std::byte* local = nullptr;  // as this process sees it

  [[nodiscard]] bool holds(std::uint64_t at, std::uint64_t bytes) const noexcept {
    const std::uint64_t offset = at - address;
    return at >= address && offset <= length && bytes <= length - offset;
  }
  [[nodiscard]] std::byte* translate(std::uint64_t at) const noexcept { return local + (at - address); }
};

[[nodiscard]] constexpr bool allows(Access granted, Access wanted) noexcept {
  return (static_cast<std::uint8_t>(granted) & static_cast<std::uint8_t>(wanted)) == static_cast<std::uint8_t>(wanted);
}

struct RegionTable {
  std::array<Region, kRegionSlots> slots{};

  /// The region of `key`, or nullptr.
  [[nodiscard]] const Region* find(std::uint32_t key) const noexcept {
    const std::uint32_t index = key_index(key);
    if (index >= kRegionSlots || key == 0) return nullptr;
    const Region& region = slots[index];
    return region.key == key ? &region : nullptr;
  }
};

}  // namespace rodeo::dv::soft
