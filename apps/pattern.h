// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs on: any.
// What the test program's payloads are made of, so that each end can check what the other says it sent: an endless
// byte pattern that repeats after kPatternPeriod, and a 64-bit checksum.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rodeo::apps {

/// 64 times a prime: whole cache lines, and no power of two, so that data misplaced by a page or a buffer shows.
inline constexpr std::size_t kPatternPeriod = std::size_t{64} * 1021;

/// Octets [start, start + out.size()) of the pattern.
void fill_pattern(std::span<std::byte> out, std::uint64_t start) noexcept;

/// What word `index` (eight octets, little-endian, zero-padded at the end) adds to a checksum. Sums of products of both
/// halves with keys that depend on the place: words that change, vanish or trade places show, and one word can be
/// replaced in a known checksum.
[[nodiscard]] constexpr std::uint64_t checksum_term(std::uint64_t index, std::uint64_t word) noexcept {
  const auto place = static_cast<std::uint32_t>(index);
  const std::uint32_t low = static_cast<std::uint32_t>(word) + place * 0x9e3779b1U + 0x85ebca6bU;
  const std::uint32_t high = static_cast<std::uint32_t>(word >> 32U) + place * 0xc2b2ae3dU + 0x27d4eb2fU;
  return std::uint64_t{low} * high;
}

/// Fast and not cryptographic. Octets that were never sent are told from zeros by the length, which is part of it.
[[nodiscard]] std::uint64_t checksum(std::span<const std::byte> octets) noexcept;

}  // namespace rodeo::apps
