// SPDX-License-Identifier: Apache-2.0
// A process of its own, as an embedder's would be: it initialises DPDK before it meets us.
#include <gtest/gtest.h>
#include <rte_eal.h>
#include <rte_lcore.h>
#include <sched.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "pools/eal.h"
#include "pools/eal_log.h"
#include "pools/topology.h"

namespace rodeo::pools {
namespace {

TEST(BorrowedEal, LaunchesOnTheEmbeddersWorkerCores) {
  const auto topology = Topology::load();
  ASSERT_TRUE(topology);
  const unsigned core = topology->allowed_cores().front();
  capture_eal_log();
  std::vector<std::string> words{"embedder",
                                 "--no-pci",
                                 "--no-telemetry",
                                 "--no-shconf",
                                 "--no-huge",
                                 "-m",
                                 "32",
                                 "--lcores",
                                 "100@(" + topology->core_list() + "),3@" + std::to_string(core),
                                 "--file-prefix",
                                 "rodeo-embedder-" + std::to_string(getpid()),
                                 "--main-lcore",
                                 "100"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ASSERT_GE(rte_eal_init(static_cast<int>(words.size()), arguments.data()), 0) << last_eal_log_line();
  rmdir(rte_eal_get_runtime_dir());

  const auto started = Eal::start({.cores = {core}});
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().what, "this process has initialised DPDK already");

  const auto eal = Eal::borrow();
  ASSERT_TRUE(eal) << eal.error().message();
  EXPECT_EQ((*eal)->cores(), std::vector<unsigned>{core});
  int ran_on = -1;
  ASSERT_TRUE((*eal)->launch(
      core, [](void* where) { *static_cast<int*>(where) = sched_getcpu(); }, &ran_on));
  (*eal)->join(core);
  EXPECT_EQ(ran_on, static_cast<int>(core));
  EXPECT_FALSE(last_eal_log_line().empty());
}

}  // namespace
}  // namespace rodeo::pools
