// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/fabric.h"

#include "dv/soft/fabric_device.h"

namespace rodeo::dv::soft {

Fabric::Fabric(Mode mode, std::uint64_t seed) : state_(std::make_shared<FabricState>(mode, seed)) {}
Fabric::~Fabric() = default;

Result<std::unique_ptr<mlx5::Device>> Fabric::open_device(const SoftOptions& options) {
  return std::unique_ptr<mlx5::Device>(std::make_unique<FabricDevice>(state_, options));
}

bool Fabric::step() { return state_->scheduler != nullptr && state_->scheduler->step(); }

std::size_t Fabric::run_until_idle(std::size_t limit) {
  return state_->scheduler == nullptr ? 0 : state_->scheduler->run_until_idle(limit);
}

std::uint64_t Fabric::now_ns() const noexcept { return state_->scheduler == nullptr ? 0 : state_->scheduler->now_ns(); }

const std::vector<std::uint32_t>& Fabric::choices() const noexcept {
  static const std::vector<std::uint32_t> kNone;
  return state_->scheduler == nullptr ? kNone : state_->scheduler->choices();
}

void Fabric::replay(std::vector<std::uint32_t> choices) {
  if (state_->scheduler != nullptr) state_->scheduler->replay(std::move(choices));
}

void Fabric::load_faults(FaultPlan plan) {
  if (state_->scheduler != nullptr) state_->scheduler->load(std::move(plan));
}

std::uint32_t Fabric::faults_injected() const noexcept {
  return state_->scheduler == nullptr ? 0 : state_->scheduler->injected();
}

bool Fabric::alive(std::uint32_t index) const noexcept { return state_->device(index) != nullptr; }

void Fabric::kill_device(std::uint32_t index) { state_->kill(index); }

}  // namespace rodeo::dv::soft
