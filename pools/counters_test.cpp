// SPDX-License-Identifier: Apache-2.0
#include "pools/counters.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>

namespace rodeo::pools {
namespace {

enum class Fruit : std::uint8_t { kApple, kPear, kCount };
constexpr std::array<CounterInfo, 2> counter_table(Fruit) {
  return {{{"apples", "Apples seen"}, {"pears", "Pears seen"}}};
}

TEST(Counters, CountEachByItself) {
  CounterBlock<Fruit> block;
  block.add(Fruit::kApple);
  block.add(Fruit::kPear, 41);
  block.add(Fruit::kPear);
  EXPECT_EQ(block.read(Fruit::kApple), 1U);
  EXPECT_EQ(block.read(Fruit::kPear), 42U);
}

TEST(Counters, AreListedWithNamesInOrder) {
  CounterBlock<Fruit> block;
  block.add(Fruit::kPear, 3);
  std::string text;
  block.for_each([&](const CounterInfo& info, std::uint64_t value) {
    text += std::string(info.name) + "=" + std::to_string(value) + " ";
  });
  EXPECT_EQ(text, "apples=0 pears=3 ");
  EXPECT_EQ(CounterBlock<Fruit>::info(Fruit::kPear).help, "Pears seen");
}

TEST(Counters, RefuseATableThatLacksARowANameOrAHelpText) {
  EXPECT_TRUE(counter_table_is_complete(std::array<CounterInfo, 1>{{{"a", "A"}}}, 1));
  EXPECT_FALSE(counter_table_is_complete(std::array<CounterInfo, 1>{{{"a", "A"}}}, 2));
  EXPECT_FALSE(counter_table_is_complete(std::array<CounterInfo, 2>{{{"a", "A"}, {}}}, 2));
  EXPECT_FALSE(counter_table_is_complete(std::array<CounterInfo, 2>{{{"a", "A"}, {"b", ""}}}, 2));
  EXPECT_FALSE(counter_table_is_complete(std::array<CounterInfo, 2>{{{"a", "A"}, {"a", "B"}}}, 2));
}

TEST(Counters, BelongToOneCacheLineEach) {
  EXPECT_EQ(alignof(CounterBlock<Fruit>), 64U);
  EXPECT_EQ(sizeof(CounterBlock<Fruit>), 64U);
}

TEST(Counters, AreReadWhileTheirOwnerWrites) {
  CounterBlock<Fruit> block;
  constexpr std::uint64_t kRounds = 200000;
  std::thread writer([&] {
    for (std::uint64_t i = 0; i < kRounds; ++i) block.add(Fruit::kApple);
  });
  std::uint64_t last = 0;
  while (last < kRounds) {
    const std::uint64_t now = block.read(Fruit::kApple);
    ASSERT_GE(now, last);
    last = now;
    std::this_thread::yield();
  }
  writer.join();
  EXPECT_EQ(block.read(Fruit::kApple), kRounds);
}

}  // namespace
}  // namespace rodeo::pools
