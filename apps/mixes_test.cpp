// SPDX-License-Identifier: Apache-2.0
#include "apps/mixes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace rodeo::apps {
namespace {

TEST(Mixes, ReadProcedureSizeAndWeight) {
  const auto mix = parse_mix("null=80,fill:1M=15,echo=5", 4096, 100);
  ASSERT_TRUE(mix.has_value()) << mix.error().message();
  ASSERT_EQ(mix->entries.size(), 3U);
  EXPECT_EQ(mix->entries[0].proc, TestProc::kNull);
  EXPECT_EQ(mix->entries[0].bytes, 0U);
  EXPECT_EQ(mix->entries[0].weight, 80U);
  EXPECT_EQ(mix->entries[1].proc, TestProc::kFill);
  EXPECT_EQ(mix->entries[1].bytes, 1048576U);
  EXPECT_EQ(mix->entries[2].bytes, 4096U);
  EXPECT_EQ(largest_bytes(*mix), 1048576U);
}

TEST(Mixes, TakeADelayInMicroseconds) {
  const auto mix = parse_mix("delay:250,delay", 4096, 100);
  ASSERT_TRUE(mix.has_value());
  EXPECT_EQ(mix->entries[0].bytes, 250U);
  EXPECT_EQ(mix->entries[1].bytes, 100U);
  EXPECT_EQ(largest_bytes(*mix), 0U);
}

TEST(Mixes, TakeTheNumberOfCallsBack) {
  const auto mix = parse_mix("callback:5,callback", 4096, 100);
  ASSERT_TRUE(mix.has_value());
  EXPECT_EQ(mix->entries[0].bytes, 5U);
  EXPECT_EQ(mix->entries[1].bytes, 1U);
  EXPECT_EQ(largest_bytes(*mix), 0U);
}

TEST(Mixes, SayWhatIsWrongAndWhatIsAllowed) {
  const struct {
    const char* text;
    const char* said;
  } cases[] = {
      {"", "\"\" is no procedure; use one of null, echo"},
      {"nul", "\"nul\" is no procedure"},
      {"null=80,", "\"\" is no procedure"},
      {"null=0", "the weight in \"null=0\""},
      {"null=x", "the weight in \"null=x\""},
      {"null=1000001", "from 1 to 1000000"},
      {"fill:257M", "the size in \"fill:257M\""},
      {"fill:-1", "the size in \"fill:-1\""},
      {"fill:18446744073709551615K", "the size in"},
      {"delay:10000001", "above 10000000 microseconds"},
      {"callback:1001", "more than 1000 calls back"},
      {"nfs-read:0", "not of 1 to 1048576 bytes"},
      {"nfs-write:2M", "not of 1 to 1048576 bytes"},
      {"kernel-nfs4", "use one of kernel-nfs3, kernel-nfs42"},
  };
  for (const auto& bad : cases) {
    const auto mix = parse_mix(bad.text, 1, 1);
    ASSERT_FALSE(mix.has_value()) << bad.text;
    EXPECT_NE(mix.error().message().find(bad.said), std::string::npos) << mix.error().message();
  }
}

TEST(Mixes, ScheduleEachEntryExactlyByItsWeight) {
  const auto mix = parse_mix("null=80,fill=15,echo=5", 64, 1);
  const auto order = schedule(*mix);
  EXPECT_EQ(order.size(), 20U);
  EXPECT_EQ(std::count(order.begin(), order.end(), 0), 16);
  EXPECT_EQ(std::count(order.begin(), order.end(), 1), 3);
  EXPECT_EQ(std::count(order.begin(), order.end(), 2), 1);
  EXPECT_EQ(order, schedule(*mix));
}

TEST(Mixes, LeaveNothingOutHoweverSmallItsWeight) {
  const auto mix = parse_mix("null=1000000,fill=1", 64, 1);
  const auto order = schedule(*mix);
  EXPECT_LE(order.size(), 8193U);
  EXPECT_EQ(std::count(order.begin(), order.end(), 1), 1);
}

TEST(Mixes, KnowEveryProcedureTheyName) {
  for (const auto& name : proc_names()) EXPECT_TRUE(mix_of_proc(name, 64, 1).has_value()) << name;
  for (const auto& name : recorded_mix_names()) EXPECT_TRUE(parse_mix(name, 64, 1).has_value()) << name;
}

}  // namespace
}  // namespace rodeo::apps
