// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/srq.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

// The WQEs that a ConnectX would fetch, octet by octet, over memory of our own, and the discipline of the list.

namespace rodeo::dv::mlx5 {
namespace {

constexpr std::uint32_t kWqes = 8;

class SrqLayout : public testing::Test {
 protected:
  SrqLayout() : srq_({.wqes = wqes_.data(), .wqe_count = kWqes, .dbrec = dbrec_.data(), .restarts = &restarts_}) {}

  [[nodiscard]] std::byte* buffer(std::size_t index) { return &buffers_[index * 64]; }
  [[nodiscard]] std::uint32_t word(std::size_t offset) const { return load_be32(wqes_.data() + offset); }
  /// As the device follows it.
  [[nodiscard]] std::uint32_t next(std::uint32_t index) const { return word(index * kSharedReceiveStride) & 0xffffU; }
  [[nodiscard]] std::byte* address(std::uint32_t index) const {
    return reinterpret_cast<std::byte*>(load_be64(wqes_.data() + index * kSharedReceiveStride + 24));
  }
  void post(std::size_t index) { ASSERT_TRUE(srq_.post_receive(buffer(index), 64, 0x1234)); }

  alignas(64) std::array<std::byte, kWqes * kSharedReceiveStride> wqes_{};
  alignas(64) std::array<Be32, 2> dbrec_{};
  std::uint32_t restarts_ = 0;
  std::array<std::byte, 64 * 64> buffers_{};
  Srq srq_;
};

TEST_F(SrqLayout, AWqeIsANextSegmentAndADataSegment) {
  post(5);
  EXPECT_EQ(word(0), 1U) << "next_wqe_index in octets 2 and 3";
  EXPECT_EQ(word(16), 64U);
  EXPECT_EQ(word(20), 0x1234U);
  EXPECT_EQ(address(0), buffer(5));
}

TEST_F(SrqLayout, NothingIsPostedBeforeItIsPublished) {
  post(0);
  post(1);
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), 0U);
  srq_.publish();
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), 2U);
}

TEST_F(SrqLayout, OneWqeStaysUnposted) {
  EXPECT_EQ(srq_.capacity(), kWqes - 1);
  for (std::size_t i = 0; i < kWqes - 1; ++i) post(i);
  EXPECT_FALSE(srq_.post_receive(buffer(9), 64, 0x1234));
  EXPECT_EQ(srq_.posted(), kWqes - 1);
}

TEST_F(SrqLayout, WhatCompletesJoinsTheEndOfTheListInAnyOrder) {
  for (std::size_t i = 0; i < kWqes - 1; ++i) post(i);
  // The device uses 0, 1, 2; they complete as 2, 0, 1.
  EXPECT_EQ(srq_.take(2), buffer(2));
  EXPECT_EQ(srq_.take(0), buffer(0));
  EXPECT_EQ(srq_.take(1), buffer(1));
  for (const std::size_t i : {20U, 21U, 22U}) srq_.repost(buffer(i));
  // 3, 4, 5, 6 are still posted; then comes what was unposted, and then 2 and 0, in the order of their completions.
  std::uint32_t at = 3;
  for (const std::uint32_t expected : {3U, 4U, 5U, 6U, 7U, 2U, 0U}) {
    EXPECT_EQ(at, expected);
    at = next(at);
  }
  EXPECT_EQ(address(7), buffer(20));
  EXPECT_EQ(address(2), buffer(21));
  EXPECT_EQ(address(0), buffer(22));
}

TEST_F(SrqLayout, ADeviceThatFollowsTheLinksMeetsEachBufferOnce) {
  // A device that uses WQEs in list order and completes up to four at once in another order, for many laps.
  std::uint32_t device = 0;
  std::set<std::byte*> free;
  for (std::size_t i = 0; i < 6; ++i) free.insert(buffer(i));
  std::vector<std::uint32_t> used;
  std::uint32_t random = 1;
  for (int round = 0; round < 20'000; ++round) {
    random = random * 1664525U + 1013904223U;
    if ((random >> 16U) % 2 == 0 && !free.empty()) {
      ASSERT_TRUE(srq_.post_receive(*free.begin(), 64, 0x1234));
      free.erase(free.begin());
    } else if (used.size() < 4 && srq_.posted() > used.size()) {
      used.push_back(device);
      device = next(device);
    } else if (!used.empty()) {
      const auto which = static_cast<std::ptrdiff_t>((random >> 20U) % used.size());
      const std::uint32_t index = used[static_cast<std::size_t>(which)];
      used.erase(used.begin() + which);
      std::byte* const expected = address(index);
      ASSERT_EQ(srq_.take(index), expected);
      ASSERT_TRUE(free.insert(expected).second);
    }
  }
}

TEST_F(SrqLayout, ACompletionOfWhatIsNotPostedIsForged) {
  EXPECT_EQ(srq_.take(0), nullptr);
  post(0);
  EXPECT_EQ(srq_.take(1), nullptr);
  EXPECT_EQ(srq_.take(kWqes), nullptr);
  EXPECT_EQ(srq_.take(0xffff), nullptr);
  EXPECT_EQ(srq_.take(0), buffer(0));
  EXPECT_EQ(srq_.take(0), nullptr) << "the same once more";
  EXPECT_EQ(srq_.posted(), 0U);
}

TEST_F(SrqLayout, WhatAPeerScribblesIsNeverBelieved) {
  post(0);
  post(1);
  wqes_.fill(std::byte{0xff});
  EXPECT_EQ(srq_.take(1), buffer(1));
  EXPECT_EQ(srq_.take(0), buffer(0));
}

TEST_F(SrqLayout, TakenBackItBeginsAnew) {
  EXPECT_EQ(restarts_, 1U);
  for (std::size_t i = 0; i < 5; ++i) post(i);
  srq_.publish();
  EXPECT_EQ(srq_.take(1), buffer(1));
  std::set<std::byte*> back;
  srq_.take_back([&](std::byte* one) { back.insert(one); });
  EXPECT_EQ(back, (std::set<std::byte*>{buffer(0), buffer(2), buffer(3), buffer(4)}));
  EXPECT_EQ(restarts_, 2U);
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), 0U);
  EXPECT_EQ(srq_.posted(), 0U);
  post(7);
  EXPECT_EQ(address(0), buffer(7));
  srq_.publish();
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), 1U);
}

}  // namespace
}  // namespace rodeo::dv::mlx5
