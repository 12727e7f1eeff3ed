// SPDX-License-Identifier: Apache-2.0
#include "dv/verbs/rdma_device.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <string>

#include "dv/rdma/test_bed.h"

// scripts/kernel-interop runs the suite over soft-RoCE.

namespace rodeo::dv::suite {

namespace {

std::string linux_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "";
}

/// Those of soft-RoCE in Linux 6.1 and 6.12.
Traits traits_of_soft_roce() {
  return {.patience = std::chrono::seconds(60),
          .many_messages = 5'000,
          .many_connections = 20,
          .names_objects_by_key = false,
          .hears_at_once = false,
          .carries_reasons = false,
          // The kernel of soft-RoCE dereferences the region that such a window does not have (6.1.192: a panic).
          .stands_bad_invalidates = false,
          .pads_private_data = true,
          .bounds_windows = false,
          .unknown_local_key = Status::kLocalQpOperation,
          .too_long_at_receiver = Status::kLocalQpOperation,
          .too_long_at_sender = Status::kRemoteOperation,
          .names_send_faults = linux_release().starts_with("6.1.")};
}

std::unique_ptr<tested::Device> make(std::unique_ptr<rdma::CmDevice> opened) {
  return std::make_unique<verbs::RdmaDevice>(std::move(opened), "");
}

std::string name_of(const testing::TestParamInfo<BedMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Verbs, ProviderSuite, testing::ValuesIn(rdma_beds(traits_of_soft_roce(), make)), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProviderSuite);

TEST(RdmaDevice, AnAddressThatNoDeviceHasIsAnErrorThatNamesIt) {
  const auto device = rdma::CmDevice::open(*Address::parse("rdma://127.0.0.1:9?device=no_such_device"), {});
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message().find("no_such_device"), std::string::npos);
  EXPECT_FALSE(device.error().next.empty());
}

}  // namespace

}  // namespace rodeo::dv::suite
