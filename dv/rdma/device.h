// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device over rdma_cm, whatever drives its queues: what a provider has to add is poll groups and queues.
// Runs on: control thread, but for move_to_error.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "dv/rdma/cm_device.h"

namespace rodeo::dv::rdma {

template <Provider P>
class Device : public dv::Device<P> {
 public:
  using typename dv::Device<P>::Qp;
  using typename dv::Device<P>::PollGroup;

  [[nodiscard]] const Capabilities& capabilities() const noexcept final { return cm_->capabilities(); }
  [[nodiscard]] Usage usage() const noexcept final { return cm_->usage(); }
  [[nodiscard]] Result<MemoryRegion> register_memory(std::span<std::byte> range, int /*fd*/, std::size_t /*fd_offset*/,
                                                     Access access) final {
    return cm_->register_memory(range, access);
  }
  [[nodiscard]] Result<CmId> listen(const Address& address) final { return cm_->listen(address); }
  [[nodiscard]] Result<CmId> connect(const Address& address, PollGroup& group) final {
    return cm_->connect(address, &group);
  }
  [[nodiscard]] Result<Qp*> make_qp(CmId id, const QpSizes& sizes) final {
    const auto group = cm_->group_for_queues(id, sizes);
    if (!group) return tl::unexpected(group.error());
    auto made = make_queues(*group, sizes);
    if (!made) return tl::unexpected(made.error());
    if (auto attached = cm_->attach(id, std::move(made->queues)); !attached) return tl::unexpected(attached.error());
    return made->qp;
  }
  [[nodiscard]] Result<void> finish_connect(CmId id, std::span<const std::byte> private_data) final {
    return cm_->finish_connect(id, private_data);
  }
  [[nodiscard]] Result<void> accept(CmId id, std::span<const std::byte> private_data) final {
    return cm_->accept(id, private_data);
  }
  void reject(CmId id, std::span<const std::byte> private_data, const std::string& /*reason*/) final {
    cm_->reject(id, private_data);
  }
  [[nodiscard]] Result<std::uint32_t> allocate_window(CmId id) final { return cm_->allocate_window(id); }
  void free_window(std::uint32_t key) final { cm_->free_window(key); }
  void disconnect(CmId id) final { cm_->disconnect(id); }
  void destroy(CmId id) final { cm_->destroy(id); }
  [[nodiscard]] std::optional<CmEvent> next_event() final { return cm_->next_event(); }
  [[nodiscard]] int event_fd() const noexcept final { return cm_->event_fd(); }

 protected:
  struct Made {
    std::unique_ptr<Queues> queues;
    Qp* qp = nullptr;  // part of them
  };

  explicit Device(std::unique_ptr<CmDevice> cm) : cm_(std::move(cm)) {}
  [[nodiscard]] CmDevice& cm() noexcept { return *cm_; }

  /// Queues for a connection of a group, with a QP in the state RESET. `sizes` are possible.
  [[nodiscard]] virtual Result<Made> make_queues(std::uint32_t group, const QpSizes& sizes) = 0;

 private:
  std::unique_ptr<CmDevice> cm_;  // a derived class whose members the queues need closes it before they go
};

}  // namespace rodeo::dv::rdma
