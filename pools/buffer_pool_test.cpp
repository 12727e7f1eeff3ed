// SPDX-License-Identifier: Apache-2.0
#include "pools/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <set>
#include <thread>

#include "pools/arena.h"

namespace rodeo::pools {
namespace {

struct Fixture {
  Arena arena;
  std::unique_ptr<BufferPool> pool;
};

Fixture make(std::size_t buffer_bytes, std::size_t count) {
  auto arena = Arena::create({.bytes = BufferPool::footprint(buffer_bytes, count), .hugepages = false});
  EXPECT_TRUE(arena) << arena.error().message();
  auto pool = BufferPool::create("test", arena->bytes(), buffer_bytes, count);
  EXPECT_TRUE(pool) << pool.error().message();
  return {std::move(*arena), std::move(*pool)};
}

/// The counts, and in debug builds that the ledger of owners agrees with them.
void expect_places(const BufferPool& pool, std::size_t in_pool, std::size_t in_caches, std::size_t held) {
  const Audit audit = pool.audit();
  EXPECT_TRUE(audit.adds_up()) << audit.to_string();
  EXPECT_EQ(audit.in_pool, in_pool);
  EXPECT_EQ(audit.in_caches, in_caches);
  EXPECT_EQ(audit.held, held);
}

TEST(BufferPool, SpreadsItsBuffersOverTheSetsOfTheL1Cache) {
  EXPECT_EQ(BufferPool::stride_for(4096), 4224U);
  EXPECT_EQ(BufferPool::stride_for(1), 128U);
  EXPECT_EQ(BufferPool::stride_for(128), 128U);
  EXPECT_EQ(BufferPool::stride_for(129), 384U);
  std::set<std::size_t> sets;
  for (std::size_t i = 0; i < 32; ++i) sets.insert(i * BufferPool::stride_for(4096) / 64 % 64);
  EXPECT_EQ(sets.size(), 32U);  // of 64 sets, each buffer's two leading lines have two to themselves
}

TEST(BufferPool, FindsIndexAndStartOfABufferFromAnyAddressInIt) {
  for (const std::size_t bytes : {1U, 128U, 129U, 1000U, 4096U, 65536U}) {
    const auto [arena, pool] = make(bytes, 37);
    for (std::uint32_t i = 0; i < 37; ++i) {
      std::byte* start = pool->at(i);
      ASSERT_EQ(start, arena.bytes().data() + i * pool->stride());
      for (const std::size_t at : {std::size_t{0}, bytes / 2, bytes - 1, pool->stride() - 1}) {
        ASSERT_EQ(pool->index_of(start + at), i) << bytes << " " << at;
        ASSERT_EQ(pool->base_of(start + at), start);
      }
    }
    EXPECT_TRUE(pool->contains(pool->at(36)));
    EXPECT_FALSE(pool->contains(pool->at(36) + pool->stride()));
    EXPECT_FALSE(pool->contains(pool->at(0) - 1));
    EXPECT_FALSE(pool->contains(nullptr));
  }
}

TEST(BufferPool, RefusesWhatDoesNotFit) {
  auto arena = Arena::create({.bytes = 1 << 16, .hugepages = false});
  ASSERT_TRUE(arena);
  const auto bytes = arena->bytes();
  EXPECT_TRUE(BufferPool::create("p", bytes, 4096, 15));
  EXPECT_FALSE(BufferPool::create("p", bytes, 4096, 16));
  EXPECT_FALSE(BufferPool::create("p", bytes, 0, 1));
  EXPECT_FALSE(BufferPool::create("p", bytes, 1, 0));
  EXPECT_FALSE(BufferPool::create("p", bytes, ~std::size_t{0}, 1));
  EXPECT_FALSE(BufferPool::create("p", bytes, 128, ~std::size_t{0}));
  EXPECT_FALSE(BufferPool::create("p", bytes.subspan(8), 128, 1));
  EXPECT_EQ(BufferPool::create("p", bytes, 4096, 16).error().next, "choose at most 15 buffers or a larger arena");
}

TEST(BufferPool, HandsOutEachBufferOnceAndThenNullptr) {
  const auto [arena, pool] = make(256, 10);
  BufferCache cache(*pool, 4);
  std::set<std::byte*> got;
  for (int i = 0; i < 10; ++i) {
    std::byte* buffer = cache.get(Owner::kCall);
    ASSERT_NE(buffer, nullptr);
    EXPECT_EQ(pool->base_of(buffer), buffer);
    EXPECT_TRUE(got.insert(buffer).second);
  }
  EXPECT_EQ(cache.get(Owner::kCall), nullptr);
  expect_places(*pool, 0, 0, 10);
  for (std::byte* buffer : got) cache.put(buffer);
  EXPECT_EQ(pool->audit().held, 0U);
  cache.flush();
  expect_places(*pool, 10, 0, 0);
}

TEST(BufferPool, GivesTheBufferPutLastFirst) {
  const auto [arena, pool] = make(256, 8);
  BufferCache cache(*pool, 8);
  std::byte* first = cache.get(Owner::kCall);
  std::byte* second = cache.get(Owner::kCall);
  cache.put(first);
  cache.put(second);
  EXPECT_EQ(cache.get(Owner::kSend), second);
  EXPECT_EQ(cache.get(Owner::kSend), first);
  const std::array<std::byte*, 2> both{first, second};
  cache.put_burst(both);
}

TEST(BufferPool, RefillsAndSpillsByHalvesOfTheCache) {
  const auto [arena, pool] = make(256, 32);
  BufferCache cache(*pool, 8);
  std::array<std::byte*, 9> buffers{};
  buffers[0] = cache.get(Owner::kCall);
  expect_places(*pool, 28, 3, 1);
  ASSERT_EQ(cache.get_burst(std::span(buffers).subspan(1), Owner::kCall), 8U);
  expect_places(*pool, 20, 3, 9);
  cache.put_burst(std::span(buffers).first(5));
  expect_places(*pool, 20, 8, 4);
  cache.put(buffers[5]);
  expect_places(*pool, 24, 5, 3);
  EXPECT_EQ(cache.get(Owner::kCall), buffers[5]);  // the warm end stayed
  cache.put_burst(std::span(buffers).subspan(5));
  EXPECT_EQ(pool->audit().held, 0U);
}

TEST(BufferPool, ReturnsFewerFromABurstWhenItRunsDry) {
  const auto [arena, pool] = make(256, 5);
  BufferCache cache(*pool, 4);
  std::array<std::byte*, 8> buffers{};
  EXPECT_EQ(cache.get_burst(buffers, Owner::kPosted), 5U);
  EXPECT_EQ(cache.get_burst(std::span(buffers).subspan(5), Owner::kPosted), 0U);
  pool->hand_back(std::span(buffers).first(5));
  expect_places(*pool, 5, 0, 0);
}

TEST(BufferPool, CachesFlushWhenTheyGo) {
  const auto [arena, pool] = make(256, 16);
  {
    BufferCache cache(*pool, 7);
    EXPECT_EQ(cache.capacity(), 8U);
    cache.put(cache.get(Owner::kCall));
    expect_places(*pool, 12, 4, 0);
  }
  expect_places(*pool, 16, 0, 0);
}

TEST(BufferPool, NamesEachHolderInDebugBuilds) {
  if constexpr (!kTracksOwners) GTEST_SKIP() << "owners are tracked in debug builds only";
  const auto [arena, pool] = make(256, 8);
  BufferCache cache(*pool, 4);
  std::byte* call = cache.get(Owner::kCall);
  std::byte* posted = cache.get(Owner::kPosted);
  pool->set_owner(call, Owner::kApplication);
  EXPECT_EQ(pool->audit().to_string(), "8 buffers: 6 in the pool, 0 in caches, 2 held, posted 1, application 1");
  cache.put(call);
  cache.put(posted);
  EXPECT_TRUE(pool->audit().adds_up());
}

TEST(BufferPoolDeathTest, AbortsOnDoublePutAndForeignPointersInDebugBuilds) {
  if constexpr (!kTracksOwners) GTEST_SKIP() << "owners are tracked in debug builds only";
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto [arena, pool] = make(256, 8);
  BufferCache cache(*pool, 4);
  std::byte* buffer = cache.get(Owner::kCall);
  EXPECT_DEATH(cache.put(buffer + 64), "pool test: .* is not the start of one of its buffers");
  std::byte elsewhere{};
  EXPECT_DEATH(cache.put(&elsewhere), "is not the start");
  EXPECT_DEATH(pool->set_owner(buffer, Owner::kCache), "cannot go to \"cache\"");
  cache.put(buffer);
  EXPECT_DEATH(cache.put(buffer), "it is with \"cache\"");
  EXPECT_DEATH(pool->hand_back(std::span(&buffer, 1)), "cannot go to \"pool\": it is with \"cache\"");
  EXPECT_DEATH(pool->set_owner(buffer, Owner::kSend), "it is with \"cache\"");
}

TEST(Audit, DoesNotAddUpWhenABufferIsLostOrTwice) {
  Audit audit{.total = 4, .in_pool = 2, .in_caches = 1, .held = 1};
  EXPECT_TRUE(audit.adds_up());
  audit.in_pool = 4;
  EXPECT_FALSE(audit.adds_up());
  audit = {.total = 4, .in_pool = 2, .in_caches = 1, .held = 1, .owners_known = true, .by_owner = {2, 1, 1, 0, 0, 0}};
  EXPECT_TRUE(audit.adds_up());
  audit.by_owner[0] = 3;
  EXPECT_FALSE(audit.adds_up());
}

TEST(BufferPool, TakesBuffersBackFromOtherThreadsWithoutLosingAny) {
  const auto [arena, pool_owner] = make(128, 256);
  BufferPool& pool = *pool_owner;
  constexpr int kRounds = 20000;
  auto crossing = MpmcRing<std::uint32_t>::create(256);
  ASSERT_TRUE(crossing);
  std::atomic<int> getters{2};
  std::atomic<int> moved{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      BufferCache cache(pool, 32);
      for (int round = 0; round < kRounds; ++round) {
        std::byte* buffer = cache.get(Owner::kCall);
        if (buffer == nullptr) {
          std::this_thread::yield();
          continue;
        }
        if (round % 3 == 0) {
          cache.put(buffer);
        } else if ((*crossing)->push(pool.index_of(buffer))) {
          ++moved;
        } else {
          cache.put(buffer);
          std::this_thread::yield();
        }
      }
      --getters;
    });
    threads.emplace_back([&] {
      std::array<std::uint32_t, 16> indices{};
      for (;;) {
        const bool last_look = getters == 0;
        const std::size_t n = (*crossing)->pop(std::span<std::uint32_t>(indices));
        std::array<std::byte*, 16> buffers{};
        for (std::size_t i = 0; i < n; ++i) buffers[i] = pool.at(indices[i]);
        pool.hand_back(std::span(buffers).first(n));
        if (n == 0 && last_look) return;
        if (n == 0) std::this_thread::yield();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(moved, 256);  // so that some crossed more than once
  expect_places(pool, 256, 0, 0);
  std::set<std::byte*> all;
  BufferCache cache(pool, 64);
  while (std::byte* buffer = cache.get(Owner::kApplication)) EXPECT_TRUE(all.insert(buffer).second);
  EXPECT_EQ(all.size(), 256U);
  for (std::byte* buffer : all) cache.put(buffer);
}

}  // namespace
}  // namespace rodeo::pools
