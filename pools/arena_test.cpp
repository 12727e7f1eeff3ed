// SPDX-License-Identifier: Apache-2.0
#include "pools/arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "pools/host_memory.h"

namespace rodeo::pools {
namespace {

Result<Arena> ordinary(std::size_t bytes) { return Arena::create({.bytes = bytes, .hugepages = false}); }

TEST(Arena, IsZeroedWritableAndFullyResident) {
  const auto arena = ordinary(1'000'000);
  ASSERT_TRUE(arena) << arena.error().message();
  ASSERT_GE(arena->size(), 1'000'000U);
  EXPECT_EQ(arena->size() % arena->page_bytes(), 0U);
  EXPECT_FALSE(arena->warning());
  EXPECT_TRUE(std::all_of(arena->bytes().begin(), arena->bytes().end(), [](std::byte b) { return b == std::byte{0}; }));
  std::vector<unsigned char> resident(arena->size() / arena->page_bytes());
  ASSERT_EQ(mincore(arena->bytes().data(), arena->size(), resident.data()), 0);
  EXPECT_TRUE(std::all_of(resident.begin(), resident.end(), [](unsigned char r) { return (r & 1U) != 0; }));
  arena->bytes().back() = std::byte{7};
}

TEST(Arena, IsSealedAgainstShrinkingAndGrowingByAnyHolder) {
  const auto arena = ordinary(1 << 16);
  ASSERT_TRUE(arena);
  EXPECT_EQ(fcntl(arena->fd(), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  EXPECT_NE(ftruncate(arena->fd(), 0), 0);
  EXPECT_NE(ftruncate(arena->fd(), 1 << 20), 0);
}

TEST(Arena, IsTheSameMemoryForWhoeverMapsItsDescriptor) {
  const auto arena = ordinary(1 << 16);
  ASSERT_TRUE(arena);
  void* peer = mmap(nullptr, arena->size(), PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd(), 0);
  ASSERT_NE(peer, MAP_FAILED);
  arena->bytes()[5] = std::byte{42};
  EXPECT_EQ(static_cast<std::byte*>(peer)[5], std::byte{42});
  munmap(peer, arena->size());
}

TEST(Arena, UsesHugepagesOrFallsBackWithTheCommandThatReservesThem) {
  const Hugepages before = host_hugepages();
  constexpr std::size_t kPages = 4;
  const auto arena = Arena::create({.bytes = kPages * kHugepageBytes - 1});
  ASSERT_TRUE(arena) << arena.error().message();
  arena->bytes().back() = std::byte{1};
  if (arena->hugepages()) {
    EXPECT_EQ(arena->page_bytes(), kHugepageBytes);
    EXPECT_EQ(arena->size(), kPages * kHugepageBytes);
    EXPECT_FALSE(arena->warning());
  } else {
    ASSERT_TRUE(arena->warning());
    const std::string command =
        "`sudo sysctl -w vm.nr_hugepages=" + std::to_string(before.reserved + kPages - before.free) + "`";
    EXPECT_NE(arena->warning()->find(command), std::string::npos) << *arena->warning();
  }
}

TEST(Arena, RefusesAbsurdSizesInsteadOfWakingTheOomKiller) {
  for (const std::size_t bytes :
       {std::size_t{0}, std::numeric_limits<std::size_t>::max(), std::numeric_limits<std::size_t>::max() / 4,
        std::size_t{1} << 50, static_cast<std::size_t>(host_available_bytes())}) {
    for (const bool hugepages : {false, true}) {
      const auto arena = Arena::create({.bytes = bytes, .hugepages = hugepages});
      ASSERT_FALSE(arena) << bytes;
      EXPECT_FALSE(arena.error().next.empty());
    }
  }
}

TEST(Arena, RefusesANumaNodeThatDoesNotExist) {
  const auto arena = Arena::create({.bytes = 4096, .hugepages = false, .numa_node = 4096});
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().what, "NUMA node 4096 does not exist");
}

TEST(Arena, ServesFromTheNodeThatIsAsked) {
  const auto arena = Arena::create({.bytes = 1 << 16, .hugepages = false, .numa_node = 0});
  ASSERT_TRUE(arena) << arena.error().message();
  arena->bytes()[0] = std::byte{1};
}

TEST(Arena, ClosesItsDescriptorAndMovesWithoutCopying) {
  int fd = -1;
  {
    auto first = ordinary(4096);
    ASSERT_TRUE(first);
    fd = first->fd();
    const std::byte* address = first->bytes().data();
    Arena second = std::move(*first);
    EXPECT_EQ(second.bytes().data(), address);
    EXPECT_EQ(first->fd(), -1);
    EXPECT_TRUE(first->bytes().empty());
    EXPECT_NE(fcntl(fd, F_GETFD), -1);
  }
  EXPECT_EQ(fcntl(fd, F_GETFD), -1);
}

}  // namespace
}  // namespace rodeo::pools
