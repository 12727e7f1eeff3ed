// SPDX-License-Identifier: Apache-2.0
// Real threads, more of them than cores, so that they are preempted in the middle of pushes and pops.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "pools/ring.h"

namespace rodeo::pools {
namespace {

/// Says who pushed it and as which of that thread's items.
struct Item {
  std::uint32_t producer;
  std::uint32_t sequence;
};
constexpr std::uint32_t kItemsEach = 60000;
constexpr std::size_t kBurst = 16;

template <class Kind>
void produce(Kind& ring, std::uint32_t producer) {
  for (std::uint32_t next = 0; next < kItemsEach;) {
    std::array<Item, kBurst> items;
    const std::size_t n = std::min<std::size_t>(1 + next % kBurst, kItemsEach - next);
    for (std::size_t i = 0; i < n; ++i) items[i] = {producer, next + static_cast<std::uint32_t>(i)};
    const std::size_t taken = ring.push(std::span<const Item>(items).first(n));
    next += static_cast<std::uint32_t>(taken);
    if (taken == 0) std::this_thread::yield();
  }
}

/// Pops until all threads together have popped `total`; within one consumer each producer's items come in order.
template <class Kind>
void consume(Kind& ring, std::atomic<std::uint32_t>& popped, std::uint32_t total, std::vector<std::uint32_t>& seen,
             std::atomic<std::uint32_t>& disorders) {
  std::vector<std::int64_t> last(seen.size(), -1);
  while (popped.load() < total) {
    std::array<Item, kBurst> items;
    const std::size_t n = ring.pop(std::span<Item>(items));
    if (n == 0) std::this_thread::yield();
    for (std::size_t i = 0; i < n; ++i) {
      const Item& item = items[i];
      if (item.sequence <= last[item.producer]) ++disorders;
      last[item.producer] = item.sequence;
      ++seen[item.producer];
    }
    popped += static_cast<std::uint32_t>(n);
  }
}

template <class Kind>
void run(std::uint32_t producers, std::size_t consumers) {
  auto ring = Kind::create(64);
  ASSERT_TRUE(ring);
  const std::uint32_t total = producers * kItemsEach;
  std::atomic<std::uint32_t> popped{0};
  std::atomic<std::uint32_t> disorders{0};
  std::vector<std::vector<std::uint32_t>> seen(consumers, std::vector<std::uint32_t>(producers));
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < producers; ++i) threads.emplace_back([&, i] { produce(**ring, i); });
  for (std::size_t i = 0; i < consumers; ++i) {
    threads.emplace_back([&, i] { consume(**ring, popped, total, seen[i], disorders); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(disorders, 0U);
  EXPECT_TRUE((*ring)->empty());
  for (std::uint32_t producer = 0; producer < producers; ++producer) {
    std::uint32_t arrived = 0;
    for (const auto& counts : seen) arrived += counts[producer];
    EXPECT_EQ(arrived, kItemsEach) << "of producer " << producer;
  }
}

TEST(RingStress, OneProducerAndOneConsumerLoseNothingAndKeepOrder) { run<SpscRing<Item>>(1, 1); }
TEST(RingStress, ManyProducersAndOneConsumerLoseNothingAndKeepOrder) { run<MpscRing<Item>>(4, 1); }
TEST(RingStress, ManyProducersAndManyConsumersLoseNothingAndKeepOrder) { run<MpmcRing<Item>>(3, 3); }

}  // namespace
}  // namespace rodeo::pools
