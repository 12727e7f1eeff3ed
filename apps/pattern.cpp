// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
#include "apps/pattern.h"

#include <algorithm>

namespace rodeo::apps {
namespace {

constexpr std::size_t kWord = 8;

/// Bits of a word's place, stirred until neighbours share nothing.
std::uint64_t pattern_word(std::uint64_t index) noexcept {
  std::uint64_t word = (index + 1) * 0x9e3779b97f4a7c15U;
  word = (word ^ (word >> 30U)) * 0xbf58476d1ce4e5b9U;
  word = (word ^ (word >> 27U)) * 0x94d049bb133111ebU;
  return word ^ (word >> 31U);
}

}  // namespace

void fill_pattern(std::span<std::byte> out, std::uint64_t start) noexcept {
  std::size_t at = start % kPatternPeriod;
  while (!out.empty()) {
    const std::uint64_t word = pattern_word(at / kWord);
    const std::size_t skip = at % kWord;
    const std::size_t part = std::min(kWord - skip, out.size());
    std::memcpy(out.data(), reinterpret_cast<const std::byte*>(&word) + skip, part);
    out = out.subspan(part);
    at += part;
    if (at == kPatternPeriod) at = 0;
  }
}

std::uint64_t checksum(std::span<const std::byte> octets) noexcept {
  const std::size_t words = octets.size() / kWord;
  std::uint64_t sum = std::uint64_t{octets.size()} * 0xff51afd7ed558ccdU;
  for (std::size_t i = 0; i < words; ++i) {
    std::uint64_t word;
    std::memcpy(&word, octets.data() + i * kWord, kWord);
    sum += checksum_term(i, word);
  }
  if (const auto tail = octets.subspan(words * kWord); !tail.empty()) {
    std::uint64_t word = 0;
    std::memcpy(&word, tail.data(), tail.size());
    sum += checksum_term(words, word);
  }
  return sum;
}

}  // namespace rodeo::apps
