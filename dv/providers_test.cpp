// SPDX-License-Identifier: Apache-2.0
#include "dv/providers.h"

#include <gtest/gtest.h>

namespace rodeo::dv {

namespace {

TEST(Providers, OpenTheDeviceOfTheAddressesScheme) {
  const auto soft = open_soft_device(*Address::parse("soft:x"));
  ASSERT_TRUE(soft);
  EXPECT_EQ((*soft)->capabilities().name, "software HCA");
  EXPECT_TRUE((*soft)->capabilities().remote_invalidate);
  const auto any = open_device(*Address::parse("soft:x"));
  ASSERT_TRUE(any);
  EXPECT_TRUE(std::holds_alternative<std::unique_ptr<mlx5::Device>>(*any));
  EXPECT_FALSE(open_soft_device(*Address::parse("rdma://host")));
  const auto rdma = open_device(*Address::parse("rdma://127.0.0.1?device=no_such_device"));
  ASSERT_FALSE(rdma);
  EXPECT_NE(rdma.error().message().find("open rdma://127.0.0.1:20049?device=no_such_device"), std::string::npos);
  EXPECT_FALSE(rdma.error().next.empty());
  EXPECT_FALSE(open_device(*Address::parse("sim:x")));
}

TEST(Providers, DirectVerbsDriveWhatTheyCanUnlessPlainOnesAreAskedFor) {
  const RdmaChoice choice = choose_verbs(true, false, {});
  EXPECT_TRUE(choice.direct);
  EXPECT_EQ(choice.why, "");
}

TEST(Providers, PlainVerbsComeWithTheReasonForThem) {
  const RdmaChoice other = choose_verbs(false, false, {});
  EXPECT_FALSE(other.direct);
  EXPECT_EQ(other.why, ", as it is no mlx5 device");
  const RdmaChoice asked = choose_verbs(true, true, {});
  EXPECT_FALSE(asked.direct);
  EXPECT_EQ(asked.why, ", as the address asks for them");
  const RdmaChoice failed = choose_verbs(true, false, fail("ConnectX", "the CQ has CQEs of 128 bytes", "do this"));
  EXPECT_FALSE(failed.direct);
  EXPECT_NE(failed.why.find("direct verbs cannot drive it"), std::string::npos);
  EXPECT_NE(failed.why.find("128 bytes"), std::string::npos);
  EXPECT_NE(failed.why.find("do this"), std::string::npos);
}

}  // namespace

}  // namespace rodeo::dv
