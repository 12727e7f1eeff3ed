// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ConnectX through direct verbs: makes the objects whose rings mlx5::Qp and mlx5::Cq then drive by themselves, as
// they drive the software HCA's. Connections are made as those of plain verbs (dv/rdma/cm_device.h).
//
// - A poll group has a register of its own to ring its QPs by, from a thread domain; where the kernel has none to give,
//   its QPs get 8-byte doorbells, which cores may share a register for.
// - A CQ that direct verbs drive cannot grow. A group begins with a small one, and gets another, twice as long, when
//   its QPs could complete more than it holds. The QPs of a group use them for both of their queues.
// - Shared receive queues are not offered here yet.
//
// No ConnectX was at hand when this was written: what has been tested is all but this file and its calls of mlx5dv_*.
// scripts/connectx-selftest tests it where there is one.
//
// Runs on: control thread, but for move_to_error.

#include <cstdint>
#include <memory>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/rdma/device.h"

namespace rodeo::dv::mlx5 {

class ConnectX final : public rdma::Device<Provider> {
 public:
  /// Whether `opened` is a device that direct verbs drive: makes one of each object, and looks at them.
  [[nodiscard]] static Result<void> check(const rdma::CmDevice& opened);

  /// `opened` has passed check().
  explicit ConnectX(std::unique_ptr<rdma::CmDevice> opened);
  ~ConnectX() override;

  [[nodiscard]] Result<PollGroup*> make_poll_group() override;
  void move_to_error(Qp& qp) noexcept override;

 private:
  struct SharedCq;
  struct Group;
  class HardwareQueues;

  [[nodiscard]] Result<Made> make_queues(std::uint32_t group, const QpSizes& sizes) override;

  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace rodeo::dv::mlx5
