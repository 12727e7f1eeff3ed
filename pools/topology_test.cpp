// SPDX-License-Identifier: Apache-2.0
#include "pools/topology.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <array>
#include <thread>

namespace rodeo::pools {
namespace {

TEST(Topology, AllowsTheCoreWeRunOnAndListsIt) {
  const auto topology = Topology::load();
  ASSERT_TRUE(topology) << topology.error().message();
  const int here = sched_getcpu();
  ASSERT_GE(here, 0);
  EXPECT_TRUE(topology->core_exists(static_cast<unsigned>(here)));
  EXPECT_TRUE(topology->core_allowed(static_cast<unsigned>(here)));
  EXPECT_FALSE(topology->core_list().empty());
}

TEST(Topology, RefusesACoreThatDoesNotExistAndListsThoseThatDo) {
  const auto topology = Topology::load();
  ASSERT_TRUE(topology);
  const std::array<unsigned, 1> cores{1000};
  const auto checked = topology->check_cores(cores);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message(), "cores: core 1000 does not exist here; choose from " + topology->core_list());
}

TEST(Topology, TellsACoreOutsideOurAffinityFromOneThatDoesNotExist) {
  const auto whole = Topology::load();
  ASSERT_TRUE(whole);
  if (whole->allowed_cores().size() < 2) GTEST_SKIP() << "needs two cores";
  const unsigned kept = whole->allowed_cores()[0];
  const unsigned lost = whole->allowed_cores()[1];
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(kept, &one);
    ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
    const auto narrowed = Topology::load();
    ASSERT_TRUE(narrowed);
    EXPECT_TRUE(narrowed->core_allowed(kept));
    EXPECT_TRUE(narrowed->core_exists(lost));
    EXPECT_FALSE(narrowed->core_allowed(lost));
    const std::array<unsigned, 1> cores{lost};
    EXPECT_NE(narrowed->check_cores(cores).error().what.find("may use"), std::string::npos);
  }).join();
}

TEST(Topology, KnowsTheNodeOfTouchedMemory) {
  const auto topology = Topology::load();
  ASSERT_TRUE(topology);
  int touched = 1;
  const int node = topology->numa_node_of_memory(&touched);
  EXPECT_TRUE(node == -1 || topology->node_exists(node)) << node;
  EXPECT_EQ(topology->numa_node_of_memory(nullptr), -1);
  EXPECT_FALSE(topology->node_exists(4096));
  EXPECT_FALSE(topology->node_exists(-1));
}

TEST(Topology, WarnsOnceForEachThingOnAnotherNode) {
  const std::array<unsigned, 2> cores{0, 8};
  const std::array<int, 2> nodes{0, 1};
  EXPECT_TRUE(numa_mismatches(cores, nodes, -1, -1).empty());
  const auto memory = numa_mismatches(cores, nodes, 0, -1);
  ASSERT_EQ(memory.size(), 1U);
  EXPECT_EQ(memory[0], "core 8 is on NUMA node 1 but its buffers are on node 0: every access crosses the interconnect");
  EXPECT_EQ(numa_mismatches(cores, nodes, 0, 0).size(), 2U);
  EXPECT_EQ(numa_mismatches(cores, nodes, 0, 1).size(), 3U);
}

}  // namespace
}  // namespace rodeo::pools
