// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "apps/ping.h"
#include "apps/sum.h"

namespace rodeo::apps {
namespace {

TEST(SumLine, IsHashTwoSpacesAndName) { EXPECT_EQ(sum_line("abcd", "some file"), "abcd  some file"); }

TEST(SumLine, EscapesNamesAsSha256sumDoes) {
  EXPECT_EQ(sum_line("abcd", "a\\b"), "\\abcd  a\\\\b");
  EXPECT_EQ(sum_line("abcd", "a\nb"), "\\abcd  a\\nb");
  EXPECT_EQ(sum_line("abcd", "a\rb"), "\\abcd  a\\rb");
}

TEST(PingStatistics, SayLossAndSpread) {
  PingStatistics statistics;
  for (const double microseconds : {1.0, 2.0, 3.0}) {
    statistics.sent();
    statistics.received(microseconds * 1e3);
  }
  statistics.sent();
  EXPECT_EQ(statistics.text(),
            "4 calls, 3 replies, 25% loss\nround trip min/avg/max/mdev = 1.000/2.000/3.000/0.816 us\n");
}

TEST(PingStatistics, SayOnlyLossWhenNothingCameBack) {
  PingStatistics statistics;
  statistics.sent();
  EXPECT_EQ(statistics.text(), "1 call, 0 replies, 100% loss\n");
}

}  // namespace
}  // namespace rodeo::apps
