// SPDX-License-Identifier: Apache-2.0
#include "pools/ring.h"

#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <vector>

namespace rodeo::pools {
namespace {

struct Pair {
  std::uint32_t first;
  std::uint32_t second;
  bool operator==(const Pair&) const = default;
};
struct Quad {
  std::uint64_t head;
  std::uint32_t middle;
  std::uint32_t tail;
  bool operator==(const Quad&) const = default;
};

template <class Kind>
class RingOf : public testing::Test {};
using Kinds = testing::Types<SpscRing<std::uint32_t>, MpscRing<std::uint32_t>, MpmcRing<std::uint32_t>>;
TYPED_TEST_SUITE(RingOf, Kinds);

TYPED_TEST(RingOf, HoldsExactlyItsCapacityAndTakesTheLeadingItemsThatFit) {
  for (const std::size_t capacity : {1U, 2U, 7U, 8U, 100U}) {
    auto ring = TypeParam::create(capacity);
    ASSERT_TRUE(ring) << ring.error().message();
    EXPECT_EQ((*ring)->capacity(), capacity);
    EXPECT_TRUE((*ring)->empty());
    std::vector<std::uint32_t> in(capacity + 3);
    std::iota(in.begin(), in.end(), 1U);
    EXPECT_EQ((*ring)->push(std::span<const std::uint32_t>(in)), capacity);
    EXPECT_EQ((*ring)->count(), capacity);
    EXPECT_FALSE((*ring)->push(9U));
    std::vector<std::uint32_t> out(capacity + 5);
    EXPECT_EQ((*ring)->pop(std::span<std::uint32_t>(out)), capacity);
    for (std::size_t i = 0; i < capacity; ++i) EXPECT_EQ(out[i], in[i]);
    std::uint32_t one = 0;
    EXPECT_FALSE((*ring)->pop(one));
  }
}

TYPED_TEST(RingOf, KeepsOrderAcrossManyWraps) {
  auto ring = TypeParam::create(13);
  ASSERT_TRUE(ring);
  std::uint32_t pushed = 0;
  std::uint32_t popped = 0;
  for (std::size_t round = 0; round < 10000; ++round) {
    std::array<std::uint32_t, 16> items{};
    const std::size_t offered = round % 11;
    for (std::size_t i = 0; i < offered; ++i) items[i] = pushed + static_cast<std::uint32_t>(i);
    pushed += static_cast<std::uint32_t>((*ring)->push(std::span<const std::uint32_t>(items).first(offered)));
    const std::size_t taken = (*ring)->pop(std::span<std::uint32_t>(items).first(round % 7));
    for (std::size_t i = 0; i < taken; ++i) ASSERT_EQ(items[i], popped++);
    ASSERT_EQ((*ring)->count(), pushed - popped);
  }
  EXPECT_GT(popped, 10000U);
}

TYPED_TEST(RingOf, DoesNothingWithAnEmptySpan) {
  auto ring = TypeParam::create(4);
  ASSERT_TRUE(ring);
  EXPECT_EQ((*ring)->push(std::span<const std::uint32_t>()), 0U);
  EXPECT_EQ((*ring)->pop(std::span<std::uint32_t>()), 0U);
}

TYPED_TEST(RingOf, RefusesCapacitiesOutOfRange) {
  EXPECT_FALSE(TypeParam::create(0));
  EXPECT_FALSE(TypeParam::create(TypeParam::kMaxCapacity + 1));
  EXPECT_FALSE(TypeParam::create(~std::size_t{0}));
}

TEST(Ring, CarriesItemsOfEightAndSixteenBytesWhole) {
  auto pairs = SpscRing<Pair>::create(3);
  auto quads = MpscRing<Quad>::create(3);
  ASSERT_TRUE(pairs && quads);
  for (std::uint32_t i = 0; i < 20; ++i) {
    const Pair pair{i, ~i};
    const Quad quad{i * 0x100000001ULL, i + 1, i + 2};
    ASSERT_TRUE((*pairs)->push(pair));
    ASSERT_TRUE((*quads)->push(quad));
    Pair pair_out{};
    Quad quad_out{};
    ASSERT_TRUE((*pairs)->pop(pair_out));
    ASSERT_TRUE((*quads)->pop(quad_out));
    EXPECT_EQ(pair_out, pair);
    EXPECT_EQ(quad_out, quad);
  }
}

}  // namespace
}  // namespace rodeo::pools
