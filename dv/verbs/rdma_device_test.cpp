// SPDX-License-Identifier: Apache-2.0
#include "dv/verbs/rdma_device.h"

#include <gtest/gtest.h>
#include <sys/utsname.h>

#include <cstdlib>

#include "dv/provider_suite.h"

// The suite needs an RDMA device: RODEO_RDMA_ADDRESS is an address of this host that one has, such as
// rdma://192.0.2.1:7471. scripts/kernel-interop runs it over soft-RoCE.

namespace rodeo::dv::suite {

namespace {

std::string linux_release() {
  utsname name{};
  return uname(&name) == 0 ? name.release : "";
}

class RdmaBed final : public Bed {
 public:
  RdmaBed(Address address, std::uint32_t rnr_retry) : address_(std::move(address)) {
    for (auto& device : devices_) {
      auto made = verbs::RdmaDevice::open(address_, {.rnr_retry = static_cast<std::uint8_t>(rnr_retry)});
      EXPECT_TRUE(made) << made.error().message();
      if (made) device = std::move(*made);
    }
  }
  tested::Device& device(std::size_t end) override { return *devices_[end]; }
  [[nodiscard]] Address address() const override { return address_; }
  /// Those of soft-RoCE in Linux 6.1 and 6.12.
  [[nodiscard]] Traits traits() const override {
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

 private:
  Address address_;
  std::array<std::unique_ptr<tested::Device>, 2> devices_;
};

std::vector<BedMaker> beds() {
  const char* text = std::getenv("RODEO_RDMA_ADDRESS");
  if (text == nullptr) return {};
  const auto address = Address::parse(text);
  if (!address) return {};
  return {{"Rdma",
           [address = *address](std::uint32_t rnr_retry) { return std::make_unique<RdmaBed>(address, rnr_retry); }}};
}

std::string name_of(const testing::TestParamInfo<BedMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Verbs, ProviderSuite, testing::ValuesIn(beds()), name_of);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(ProviderSuite);

TEST(RdmaDevice, AnAddressThatNoDeviceHasIsAnErrorThatNamesIt) {
  const auto device = verbs::RdmaDevice::open(*Address::parse("rdma://127.0.0.1:9?device=no_such_device"), {});
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().message().find("no_such_device"), std::string::npos);
  EXPECT_FALSE(device.error().next.empty());
}

}  // namespace

}  // namespace rodeo::dv::suite
