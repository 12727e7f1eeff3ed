// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "dv/provider_suite.h"

// Connections whose receives come from a shared receive queue, for providers that have one.

namespace rodeo::dv::suite {

namespace {

constexpr QpSizes kShared{.send_depth = 64, .receive_depth = 0};

void repost(End& end, std::byte* buffer) {
  end.qp->repost_receive(buffer);
  end.qp->srq()->publish();
}

}  // namespace

TEST_P(ProviderSuite, SharedReceivesCarryManyMessagesInOrder) {
  ASSERT_NO_FATAL_FAILURE(connect(8, kShared));
  ASSERT_NE(a_.qp->srq(), nullptr);
  const std::uint32_t count = bed_->traits().many_messages / 10;
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  ASSERT_TRUE(run_until([&] {
    // Bursts of all lengths, some of them more than there are receives.
    for (std::uint32_t burst = sent % 13 + 1; burst != 0 && sent < count; --burst) {
      if (!a_.send("message " + std::to_string(sent))) break;
      ++sent;
    }
    a_.qp->ring_doorbell();
    for (; !b_.arrivals.empty(); b_.arrivals.pop_front(), ++received) {
      const End::Arrival& arrival = b_.arrivals.front();
      EXPECT_EQ(arrival.completion.status, Status::kSuccess);
      EXPECT_EQ(End::text(arrival), "message " + std::to_string(received));
      repost(b_, arrival.buffer);
    }
    return received == count;
  }));
  ASSERT_NO_FATAL_FAILURE(close());
  EXPECT_EQ(a_.taken_back.size(), 8U);
  EXPECT_EQ(b_.taken_back.size(), 8U);
}

TEST_P(ProviderSuite, ASendWaitsForASharedReceive) {
  ASSERT_NO_FATAL_FAILURE(connect(0, kShared));
  ASSERT_TRUE(a_.send("early"));
  a_.qp->ring_doorbell();
  run_a_while();
  EXPECT_TRUE(b_.arrivals.empty());
  b_.post_receives(1);
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 1; }));
  EXPECT_EQ(End::text(b_.arrivals[0]), "early");
  ASSERT_NO_FATAL_FAILURE(close());
  EXPECT_TRUE(b_.taken_back.empty());
}

TEST_P(ProviderSuite, WhatIsLeftOfASharedQueueIsTakenBackAndItBeginsAnew) {
  ASSERT_NO_FATAL_FAILURE(listen());
  for (std::size_t round = 0; round < 5; ++round) {
    ASSERT_NO_FATAL_FAILURE(connect_again(4 + round, kShared));
    for (std::size_t i = 0; i < 3; ++i) ASSERT_TRUE(a_.send(std::to_string(10 * round + i)));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 3; }));
    std::set<std::byte*> buffers;
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(End::text(b_.arrivals[i]), std::to_string(10 * round + i));
      buffers.insert(b_.arrivals[i].buffer);
    }
    ASSERT_NO_FATAL_FAILURE(close());
    EXPECT_EQ(b_.taken_back.size(), 1 + round);
    EXPECT_EQ(a_.taken_back.size(), 4 + round);
    buffers.insert(b_.taken_back.begin(), b_.taken_back.end());
    EXPECT_EQ(buffers.size(), 4 + round) << "each buffer was either filled or given back";
  }
}

TEST_P(ProviderSuite, AMessageTooLongForASharedReceiveEndsTheConnection) {
  ASSERT_NO_FATAL_FAILURE(connect(0, kShared));
  ASSERT_TRUE(b_.qp->post_receive(b_.buffer(0), 16, b_.region.lkey));
  b_.qp->srq()->publish();
  ASSERT_TRUE(a_.send("seventeen octets!"));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return !a_.send_errors.empty() && b_.arrivals.size() == 1; }));
  EXPECT_EQ(a_.send_errors[0].status, Status::kRemoteInvalidRequest);
  EXPECT_EQ(b_.arrivals[0].completion.status, Status::kLocalLength);
  EXPECT_EQ(b_.arrivals[0].buffer, b_.buffer(0));
  ASSERT_NO_FATAL_FAILURE(close());
  EXPECT_TRUE(b_.taken_back.empty());
}

}  // namespace rodeo::dv::suite
