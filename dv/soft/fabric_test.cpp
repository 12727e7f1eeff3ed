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

TEST(Fabric, QpNumbersThatRunOutAreSaidSoAndComeBack) {
  soft::Fabric fabric;
  auto server = std::move(*fabric.open_device());
  auto client = std::move(*fabric.open_device({.qp_numbers = 2}));
  const Address address{Address::Scheme::kSimulated, "numbers", 0};
  ASSERT_TRUE(server->make_poll_group());
  mlx5::PollGroup& group = **client->make_poll_group();
  ASSERT_TRUE(server->listen(address));
  const auto resolved = [&] {
    const CmId id = *client->connect(address, group);
    while (server->next_event()) {
    }
    const auto event = client->next_event();
    EXPECT_TRUE(event && event->kind == CmEventKind::kRouteResolved && event->id == id);
    return id;
  };
  const CmId ids[] = {resolved(), resolved(), resolved()};
  const auto first = client->make_qp(ids[0], {});
  const auto second = client->make_qp(ids[1], {});
  ASSERT_TRUE(first && second);
  EXPECT_NE((*first)->qpn(), (*second)->qpn());
  for (int i = 0; i < 3; ++i) {
    const auto refused = client->make_qp(ids[2], {});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().what.find("2 QP numbers are taken"), std::string::npos) << refused.error().message();
    EXPECT_EQ(client->usage().queue_pairs, 2U);
  }
  client->destroy(ids[0]);
  std::array<Completion, 4> batch;
  poll_into(group, batch);  // the core lets go of the old QP
  EXPECT_TRUE(client->make_qp(ids[2], {}));
}

}  // namespace

}  // namespace rodeo::dv::suite
