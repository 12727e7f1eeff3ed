// SPDX-License-Identifier: Apache-2.0
#include "dv/provider_suite.h"

// What only a provider whose work requests can be reached in memory has to stand.

namespace rodeo::dv::suite {

TEST_P(ProviderSuite, AMalformedWqeFailsTheQueue) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  std::byte* bytes = a_.qp->post_inline_send(8);
  ASSERT_NE(bytes, nullptr);
  bytes[-static_cast<std::ptrdiff_t>(mlx5::kInlineOffset) + 3] = std::byte{0x3f};  // the opcode
  ASSERT_TRUE(a_.qp->post_drain(1));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; }));
  ASSERT_EQ(a_.send_errors.size(), 2U);
  EXPECT_EQ(a_.send_errors[0].status, Status::kLocalQpOperation);
  EXPECT_EQ(a_.send_errors[1].status, Status::kFlushed);
  ASSERT_NO_FATAL_FAILURE(close());
}

}  // namespace rodeo::dv::suite
