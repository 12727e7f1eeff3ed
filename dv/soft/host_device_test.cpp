// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/host_device.h"

#include <cstdlib>
#include <filesystem>

#include "dv/provider_suite.h"

namespace rodeo::dv::suite {

namespace {

/// Two devices of one process, over a real socket and mapped memory.
class HostBed final : public Bed {
 public:
  explicit HostBed(std::uint32_t rnr_retry) {
    for (auto& device : devices_) device = std::move(*soft::open({.rnr_retry = rnr_retry}));
  }
  mlx5::Device& device(std::size_t end) override { return *devices_[end]; }
  [[nodiscard]] Address address() const override { return {Address::Scheme::kSoft, "suite", 0}; }

 private:
  std::array<std::unique_ptr<mlx5::Device>, 2> devices_;
};

/// A folder of sockets that is gone afterwards.
class RuntimeFolder final : public testing::Environment {
 public:
  void SetUp() override {
    char name[] = "/tmp/rodeo-dv-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RODEO_RUNTIME_DIR", name, 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

 private:
  std::string folder_;
};
const auto* const kFolder = testing::AddGlobalTestEnvironment(new RuntimeFolder);

BedMaker two_devices() {
  return {"TwoDevices", [](std::uint32_t rnr_retry) { return std::make_unique<HostBed>(rnr_retry); }};
}

std::string name_of(const testing::TestParamInfo<BedMaker>& param) { return param.param.name; }

INSTANTIATE_TEST_SUITE_P(Host, ProviderSuite, testing::Values(two_devices()), name_of);

}  // namespace

}  // namespace rodeo::dv::suite
