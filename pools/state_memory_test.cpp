// SPDX-License-Identifier: Apache-2.0
#include "pools/state_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include "pools/host_memory.h"
#include "pools/sanitizers.h"

namespace rodeo::pools {
namespace {

struct alignas(64) State : InStateMemory {
  std::uint32_t words[1500] = {};  // larger than the blocks of other tests
};

TEST(StateMemory, BlocksStartOnALineAndDoNotOverlap) {
  std::vector<std::pair<std::byte*, std::size_t>> blocks;
  for (std::size_t i = 0; i < 3000; ++i) {
    const std::size_t bytes = i * 37 % 5000;
    auto* block = static_cast<std::byte*>(state_memory().allocate(bytes));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
    std::fill_n(block, bytes, static_cast<std::byte>(i));
    blocks.emplace_back(block, bytes);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, bytes] = blocks[i];
    EXPECT_EQ(std::count(block, block + bytes, static_cast<std::byte>(i)), static_cast<std::ptrdiff_t>(bytes));
    state_memory().deallocate(block, bytes);
  }
}

TEST(StateMemory, AFreedBlockServesTheNextOfItsSize) {
  if (kSanitized) GTEST_SKIP() << "the heap's own rules hold";
  void* first = state_memory().allocate(1000);
  state_memory().deallocate(first, 1000);
  void* other = state_memory().allocate(2000);
  EXPECT_NE(other, first);
  void* again = state_memory().allocate(1000);
  EXPECT_EQ(again, first);
  state_memory().deallocate(again, 1000);
  state_memory().deallocate(other, 2000);
}

TEST(StateMemory, ObjectsLieCloseTogether) {
  if (kSanitized) GTEST_SKIP() << "the heap's own rules hold";
  std::vector<std::unique_ptr<State>> states;
  std::set<std::uintptr_t> pages;
  for (int i = 0; i < 1000; ++i) {
    states.push_back(std::make_unique<State>());
    pages.insert(reinterpret_cast<std::uintptr_t>(states.back().get()) / kHugepageBytes);
  }
  EXPECT_LE(pages.size(), 1000 * sizeof(State) / kHugepageBytes + 2);
}

TEST(StateMemory, WhatIsLargeOrMoreAlignedIsServedToo) {
  for (const auto& [bytes, alignment] : {std::pair<std::size_t, std::size_t>{16 << 20, 64}, {100, 4096}}) {
    void* block = state_memory().allocate(bytes, alignment);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0U);
    static_cast<std::byte*>(block)[bytes - 1] = std::byte{1};
    state_memory().deallocate(block, bytes, alignment);
  }
}

TEST(StateMemory, ArraysAreValueInitialisedAndMove) {
  StateArray<std::uint32_t> first(100);
  first[7] = 7;
  StateArray<std::uint32_t> second(std::move(first));
  EXPECT_EQ(second[7], 7U);
  second = StateArray<std::uint32_t>(100);
  for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(second[i], 0U);
  const StateArray<std::uint32_t> none;
  EXPECT_EQ(none.get(), nullptr);
}

TEST(StateMemory, ThreadsMayShareIt) {
  const auto work = [] {
    for (int i = 0; i < 2000; ++i) {
      const auto one = std::make_unique<State>();
      one->words[0] = 1;
      const StateArray<std::uint64_t> many(static_cast<std::size_t>(i % 100));
    }
  };
  std::thread other(work);
  work();
  other.join();
}

}  // namespace
}  // namespace rodeo::pools
