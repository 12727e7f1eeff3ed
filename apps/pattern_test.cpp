// SPDX-License-Identifier: Apache-2.0
#include "apps/pattern.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

namespace rodeo::apps {
namespace {

std::vector<std::byte> pattern(std::uint64_t start, std::size_t length) {
  std::vector<std::byte> out(length);
  fill_pattern(out, start);
  return out;
}

TEST(Pattern, AnyPieceIsTheSameOctetsOfTheWhole) {
  const auto whole = pattern(0, 3 * kPatternPeriod);
  for (const std::size_t start : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{4093}, kPatternPeriod - 3,
                                  kPatternPeriod, kPatternPeriod + 5}) {
    for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{9}, std::size_t{5000}}) {
      const auto piece = pattern(start, length);
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), whole.begin() + static_cast<std::ptrdiff_t>(start)))
          << start << " + " << length;
    }
  }
}

TEST(Pattern, RepeatsAfterItsPeriodAndNotBefore) {
  EXPECT_EQ(pattern(12345 + std::uint64_t{kPatternPeriod} * 1'000'000, 64), pattern(12345, 64));
  const auto whole = pattern(0, kPatternPeriod);
  std::set<std::vector<std::byte>> lines;
  for (std::size_t at = 0; at < whole.size(); at += 8) {
    lines.emplace(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.begin() + static_cast<std::ptrdiff_t>(at) + 8);
  }
  EXPECT_EQ(lines.size(), kPatternPeriod / 8);
}

TEST(Checksum, ChangesWithEveryOctetAndWithTheLength) {
  auto octets = pattern(3, 1003);
  const std::uint64_t before = checksum(octets);
  for (std::size_t i = 0; i < octets.size(); ++i) {
    octets[i] ^= std::byte{0x10};
    EXPECT_NE(checksum(octets), before) << i;
    octets[i] ^= std::byte{0x10};
  }
  EXPECT_EQ(checksum(octets), before);
  octets.push_back(std::byte{0});
  EXPECT_NE(checksum(octets), before);
}

TEST(Checksum, ChangesWhenTwoWordsTradePlaces) {
  auto octets = pattern(0, 4096);
  const std::uint64_t before = checksum(octets);
  std::swap_ranges(octets.begin(), octets.begin() + 8, octets.begin() + 1024);
  EXPECT_NE(checksum(octets), before);
}

TEST(Checksum, OneWordCanBeReplacedWithoutReadingTheRest) {
  auto octets = pattern(0, 777);
  const std::uint64_t before = checksum(octets);
  std::uint64_t old_word;
  std::memcpy(&old_word, octets.data(), 8);
  const std::uint64_t new_word = 0x1122334455667788;
  std::memcpy(octets.data(), &new_word, 8);
  EXPECT_EQ(before - checksum_term(0, old_word) + checksum_term(0, new_word), checksum(octets));
}

}  // namespace
}  // namespace rodeo::apps
