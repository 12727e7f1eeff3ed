// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the message matrices: what both have in common. In each, variants of the parts of an RPC are generated and
// multiplied, and a model says for each case what must come out, octet by octet: the messages, and all of the memory
// that is exposed.

#include <cstdint>
#include <span>
#include <vector>

#include "engine/test_words.h"
#include "engine/xdr_pad.h"
#include "pools/sanitizers.h"

namespace rodeo::test {

inline constexpr std::uint32_t kProgram = 0x20000001;
inline constexpr std::uint32_t kThreshold = 4096;    // of both directions
inline constexpr std::uint32_t kAfter = 0xa5a5a5a5;  // stands behind whatever may be reduced
inline constexpr std::byte kCanary{0xee};

// Under a sanitizer every so-manieth case only.
inline constexpr std::size_t kStride = pools::kSanitized ? 11 : 1;

inline void append(Octets& out, std::uint32_t word) {
  out.resize(out.size() + 4);
  store_be32(out.data() + out.size() - 4, word);
}
inline void append_fixed(Octets& out, std::span<const std::byte> octets) {
  out.insert(out.end(), octets.begin(), octets.end());
  out.resize(xdr_padded(out.size()));
}
inline void append(Octets& out, std::span<const std::byte> octets) {
  append(out, static_cast<std::uint32_t>(octets.size()));
  append_fixed(out, octets);
}

/// Lengths of segments.
using Lengths = std::vector<std::uint32_t>;

/// What filler, items and results are: the model and the engine's users agree on it.
[[nodiscard]] inline Octets filler_octets(std::uint32_t length) { return pattern(length, 1000); }
[[nodiscard]] inline Octets item_octets(std::size_t item, std::uint32_t length) {
  return pattern(length, 3000 + 100 * item);
}
[[nodiscard]] inline Octets wide_octets(std::uint32_t length) { return pattern(length, 7000); }

}  // namespace rodeo::test
