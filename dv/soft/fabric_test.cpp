// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/fabric.h"

#include "dv/provider_suite.h"

namespace rodeo::dv::suite {

namespace {

class FabricBed final : public Bed {
 public:
  FabricBed(soft::Fabric::Mode mode, std::uint64_t seed, std::uint32_t rnr_retry) : fabric_(mode, seed) {
    for (auto& device : devices_) device = std::move(*fabric_.open_device({.rnr_retry = rnr_retry}));
  }
  mlx5::Device& device(std::size_t end) override { return *devices_[end]; }
  [[nodiscard]] Address address() const override { return {Address::Scheme::kSimulated, "suite", 0}; }
  void settle() override {
    // A few steps a turn, so that what the users do falls between any two events.
    for (int i = 0; i < 5 && fabric_.step(); ++i) {
    }
  }

 private:
  soft::Fabric fabric_;
  std::array<std::unique_ptr<mlx5::Device>, 2> devices_;
};

BedMaker immediate() {
  return {"Immediate", [](std::uint32_t rnr_retry) {
            return std::make_unique<FabricBed>(soft::Fabric::Mode::kImmediate, 0, rnr_retry);
          }};
}

BedMaker scheduled(std::uint64_t seed) {
  return {"Seed" + std::to_string(seed), [seed](std::uint32_t rnr_retry) {
            return std::make_unique<FabricBed>(soft::Fabric::Mode::kScheduled, seed, rnr_retry);
          }};
}

std::string name_of(const testing::TestParamInfo<BedMaker>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Fabric, ProviderSuite,
                         testing::Values(immediate(), scheduled(1), scheduled(2), scheduled(3), scheduled(4)), name_of);

}  // namespace

}  // namespace rodeo::dv::suite
