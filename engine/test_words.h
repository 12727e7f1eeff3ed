// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: messages as lists of words, and octets whose place can be told from their value.

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "pools/byte_order.h"

namespace rodeo::test {

using Words = std::vector<std::uint32_t>;
using Octets = std::vector<std::byte>;

[[nodiscard]] inline Octets bytes_of(const Words& words) {
  Octets out(words.size() * 4);
  for (std::size_t i = 0; i < words.size(); ++i) store_be32(out.data() + 4 * i, words[i]);
  return out;
}

[[nodiscard]] inline Words joined(std::initializer_list<Words> parts) {
  Words out;
  for (const Words& part : parts) out.insert(out.end(), part.begin(), part.end());
  return out;
}

[[nodiscard]] inline std::byte pattern_at(std::size_t i) noexcept {
  return static_cast<std::byte>((i * 7 + (i >> 8U)) & 0xffU);
}
/// At most 65536 octets of it.
[[nodiscard]] inline Octets pattern(std::size_t length, std::size_t from = 0) {
  static const Octets all = [] {
    Octets octets(65536);
    for (std::size_t i = 0; i < octets.size(); ++i) octets[i] = pattern_at(i);
    return octets;
  }();
  const auto part = std::span(all).subspan(from, length);
  return {part.begin(), part.end()};
}

}  // namespace rodeo::test
