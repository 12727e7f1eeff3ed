// SPDX-License-Identifier: Apache-2.0
#include "pools/core_set.h"

#include <gtest/gtest.h>

namespace rodeo::pools {
namespace {

std::string parsed(std::string_view text) {
  const auto set = CoreSet::parse(text);
  return set ? set->to_string() : "error: " + set.error().message();
}

TEST(CoreSet, ReadsMasksBitByBit) {
  EXPECT_EQ(parsed("0x5"), "0,2");
  EXPECT_EQ(parsed("0X0f"), "0-3");
  EXPECT_EQ(parsed("0x8000000000000000000000000000000000"), "135");
}

TEST(CoreSet, ReadsABareDecimalAsACoreNumber) { EXPECT_EQ(parsed("5"), "5"); }

TEST(CoreSet, ReadsListsAndRangesMixed) {
  EXPECT_EQ(parsed("0,2-3"), "0,2-3");
  EXPECT_EQ(parsed("0-1,4"), "0-1,4");
  EXPECT_EQ(parsed(" 7 , 1 - 2 "), "1-2,7");
  EXPECT_EQ(parsed("1023"), "1023");
}

TEST(CoreSet, FoldsDuplicatesAndSorts) { EXPECT_EQ(parsed("3,1,2-3,1"), "1-3"); }

TEST(CoreSet, ContainsExactlyTheNamedCores) {
  const auto set = CoreSet::parse("0,2-3");
  ASSERT_TRUE(set);
  EXPECT_EQ(set->size(), 3U);
  EXPECT_TRUE(set->contains(2));
  EXPECT_FALSE(set->contains(1));
}

TEST(CoreSet, RefusesWhatIsNoSetAndSaysWhatIsAllowed) {
  for (const char* text : {"", "  ", ",", "0,", "a", "0xg", "0x", "0x0", "-1", "1-", "0,0x2", "1024", "0-4000000000",
                           "99999999999", "1.5", "+1", "0x1,2"}) {
    const auto set = CoreSet::parse(text);
    ASSERT_FALSE(set) << text;
    EXPECT_NE(set.error().next.find("0x5"), std::string::npos) << text;
  }
  EXPECT_EQ(CoreSet::parse("3-1").error().message(),
            "core set: the range \"3-1\" runs backwards; write the smaller core first");
  const std::string wide = "0x1" + std::string(256, '0');
  EXPECT_NE(parsed(wide).find("names core 1024"), std::string::npos);
}

TEST(CoreSet, WritesNoneForNoCores) { EXPECT_EQ(CoreSet().to_string(), "none"); }

}  // namespace
}  // namespace rodeo::pools
