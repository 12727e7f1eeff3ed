// SPDX-License-Identifier: Apache-2.0
// One process has one EAL, so these tests share it and build on each other in the order they stand.
#include "pools/eal.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>

#include "pools/topology.h"

namespace rodeo::pools {
namespace {

std::vector<unsigned> allowed_cores() {
  const auto topology = Topology::load();
  EXPECT_TRUE(topology);
  return {topology->allowed_cores().begin(), topology->allowed_cores().end()};
}

struct Seen {
  std::atomic<int> core{-1};
  std::atomic<int> runs{0};
};
void look_around(void* seen) {
  static_cast<Seen*>(seen)->core = sched_getcpu();
  ++static_cast<Seen*>(seen)->runs;
}

TEST(Eal, IsNotBorrowedBeforeAnyoneStartsIt) {
  const auto eal = Eal::borrow();
  ASSERT_FALSE(eal);
  EXPECT_EQ(eal.error().what, "this process has not initialised DPDK");
}

TEST(Eal, RefusesCoresThatDoNotExistWithoutAWordFromDpdk) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto eal = Eal::start({.cores = {999}});
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
  ASSERT_FALSE(eal);
  EXPECT_EQ(eal.error().what, "core 999 does not exist here");
}

TEST(Eal, StartsQuietlyAndLeavesTheCallersAffinityAlone) {
  const std::vector<unsigned> before = allowed_cores();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto eal = Eal::start({.cores = {before.front(), before.front()}});
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
  ASSERT_TRUE(eal) << eal.error().message();
  EXPECT_EQ((*eal)->cores(), std::vector<unsigned>{before.front()});
  EXPECT_EQ(allowed_cores(), before);
}

TEST(Eal, LeavesNoRuntimeDirectoryBehind) {
  const char* own = std::getenv("XDG_RUNTIME_DIR");
  for (const char* base : {"/var/run", "/tmp", own == nullptr ? "/tmp" : own}) {
    std::error_code unreadable;  // another user's: then ours is not in there either
    EXPECT_FALSE(std::filesystem::exists(std::string(base) + "/dpdk/rodeo-" + std::to_string(getpid()), unreadable));
  }
}

TEST(Eal, RunsTasksOnTheCoreThatIsNamedOneAfterAnother) {
  const unsigned core = allowed_cores().front();
  const auto eal = Eal::start({.cores = {core}});
  ASSERT_TRUE(eal);
  Seen seen;
  for (int round = 1; round <= 3; ++round) {
    const auto launched = (*eal)->launch(core, look_around, &seen);
    ASSERT_TRUE(launched) << launched.error().message();
    (*eal)->join(core);
    EXPECT_EQ(seen.core, static_cast<int>(core));
    EXPECT_EQ(seen.runs, round);
  }
}

TEST(Eal, RefusesASecondTaskWhileTheFirstRuns) {
  const unsigned core = allowed_cores().front();
  const auto eal = Eal::start({.cores = {core}});
  ASSERT_TRUE(eal);
  std::atomic<bool> stop{false};
  const auto wait = [](void* flag) {
    while (!*static_cast<std::atomic<bool>*>(flag)) sched_yield();
  };
  ASSERT_TRUE((*eal)->launch(core, wait, &stop));
  Seen seen;
  const auto second = (*eal)->launch(core, look_around, &seen);
  stop = true;
  (*eal)->join(core);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().what.find("busy"), std::string::npos);
  EXPECT_EQ(seen.runs, 0);
}

TEST(Eal, IsTheSameOneAtALaterStartAndWhenBorrowed) {
  const unsigned core = allowed_cores().front();
  const auto first = Eal::start({.cores = {core}});
  const auto second = Eal::start({});
  const auto borrowed = Eal::borrow();
  ASSERT_TRUE(first && second && borrowed);
  EXPECT_EQ(*first, *second);
  EXPECT_EQ(*first, *borrowed);
}

TEST(Eal, RefusesCoresThatTheRunningOneLacks) {
  const auto eal = Eal::start({.cores = {777}});
  ASSERT_FALSE(eal);
  EXPECT_EQ(eal.error().what, "DPDK runs in this process already, without core 777");
  const auto running = Eal::borrow();
  ASSERT_TRUE(running);
  EXPECT_FALSE((*running)->launch(777, look_around, nullptr));
  (*running)->join(777);
}

}  // namespace
}  // namespace rodeo::pools
