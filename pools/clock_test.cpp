// SPDX-License-Identifier: Apache-2.0
#include "pools/clock.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace rodeo::pools {
namespace {

TEST(Clock, NeverRunsBackwards) {
  std::uint64_t last = tsc_now();
  for (int i = 0; i < 100000; ++i) {
    const std::uint64_t now = tsc_now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(Clock, AgreesWithTheSteadyClock) {
  ASSERT_GT(tsc_hz(), 1e6);
  const auto wall_start = std::chrono::steady_clock::now();
  const std::uint64_t start = tsc_now();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const double ticks_ns = ticks_to_ns(tsc_now() - start);
  const double wall_ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - wall_start).count();
  EXPECT_LE(ticks_ns, wall_ns * 1.005);
  EXPECT_GE(ticks_ns, 30e6 * 0.995);
}

TEST(Clock, ConvertsBothWays) {
  EXPECT_NEAR(ticks_to_ns(ns_to_ticks(1e9)), 1e9, 10);
  EXPECT_NEAR(ticks_to_ns(static_cast<std::uint64_t>(tsc_hz())), 1e9, 10);
}

}  // namespace
}  // namespace rodeo::pools
