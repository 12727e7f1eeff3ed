// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/connectx.h"

#include <gtest/gtest.h>

#include <string>

#include "dv/rdma/test_bed.h"

// scripts/connectx-selftest runs the suite on a ConnectX. It has not been run on one yet.

namespace rodeo::dv::suite {

namespace {

/// What is expected of a ConnectX: the software HCA's answers were written to be the same.
Traits traits_of_connectx() {
  return {.patience = std::chrono::seconds(60),
          .hears_at_once = false,
          .carries_reasons = false,
          .pads_private_data = true};
}

std::unique_ptr<tested::Device> make(std::unique_ptr<rdma::CmDevice> opened) {
  const auto checked = mlx5::ConnectX::check(*opened);
  EXPECT_TRUE(checked) << checked.error().message();
  return checked ? std::make_unique<mlx5::ConnectX>(std::move(opened)) : nullptr;
}

std::string name_of(const testing::TestParamInfo<BedMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(ConnectX, ProviderSuite, testing::ValuesIn(rdma_beds(traits_of_connectx(), make)), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProviderSuite);

}  // namespace

}  // namespace rodeo::dv::suite
