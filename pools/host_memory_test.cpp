// SPDX-License-Identifier: Apache-2.0
#include "pools/host_memory.h"

#include <gtest/gtest.h>

namespace rodeo::pools {
namespace {

TEST(HostMemory, ReadsTheNamedLineAndNoOther) {
  constexpr std::string_view kText = "MemTotal:       2048 kB\nMemAvailableX: 9 kB\nMemAvailable:  1024 kB\n";
  EXPECT_EQ(kib_line(kText, "MemAvailable"), 1024U * 1024U);
  EXPECT_EQ(kib_line(kText, "MemTotal"), 2048U * 1024U);
  EXPECT_EQ(kib_line(kText, "Mem"), 0U);
  EXPECT_EQ(kib_line("", "MemTotal"), 0U);
  EXPECT_EQ(kib_line("MemTotal: many kB", "MemTotal"), 0U);
  EXPECT_EQ(kib_line("MemTotal: 18446744073709551615 kB", "MemTotal"), 0U);
}

TEST(HostMemory, IsPlausibleOnThisHost) {
  EXPECT_GT(host_available_bytes(), std::uint64_t{16} << 20);
  EXPECT_LT(host_available_bytes(), std::uint64_t{1} << 50);
  EXPECT_LE(host_hugepages().free, host_hugepages().reserved + host_hugepages().free);
}

}  // namespace
}  // namespace rodeo::pools
