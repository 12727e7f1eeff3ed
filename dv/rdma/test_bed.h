// SPDX-License-Identifier: Apache-2.0
#pragma once

// The bed of the provider suite for a device over rdma_cm: both ends are of one device of this host. RODEO_RDMA_ADDRESS
// is an address of this host that the device has, such as rdma://192.0.2.1:7471; where it is not set there is no bed.

#include <array>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "dv/provider_suite.h"
#include "dv/rdma/cm_device.h"

namespace rodeo::dv::suite {

/// Makes the device under test of what was opened.
using MakeDevice = std::unique_ptr<tested::Device> (*)(std::unique_ptr<rdma::CmDevice> opened);

class RdmaBed final : public Bed {
 public:
  RdmaBed(Address address, std::uint32_t rnr_retry, Traits traits, MakeDevice make)
      : address_(std::move(address)), traits_(traits) {
    for (auto& device : devices_) {
      auto opened = rdma::CmDevice::open(address_, {.rnr_retry = static_cast<std::uint8_t>(rnr_retry)});
      EXPECT_TRUE(opened) << opened.error().message();
      if (opened) device = make(std::move(*opened));
    }
  }
  tested::Device& device(std::size_t end) override { return *devices_[end]; }
  [[nodiscard]] Address address() const override { return address_; }
  [[nodiscard]] Traits traits() const override { return traits_; }

 private:
  Address address_;
  Traits traits_;
  std::array<std::unique_ptr<tested::Device>, 2> devices_;
};

inline std::vector<BedMaker> rdma_beds(const Traits& traits, MakeDevice make) {
  const char* text = std::getenv("RODEO_RDMA_ADDRESS");
  if (text == nullptr) return {};
  const auto address = Address::parse(text);
  if (!address) return {};
  return {{"Rdma", [address = *address, traits, make](std::uint32_t rnr_retry) {
             return std::make_unique<RdmaBed>(address, rnr_retry, traits, make);
           }}};
}

}  // namespace rodeo::dv::suite
