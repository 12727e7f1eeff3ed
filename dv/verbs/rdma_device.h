// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device of any kind through plain verbs: one CQ for each poll group, which grows as connections come.
// Runs on: control thread, but for move_to_error.

#include <memory>
#include <string>
#include <vector>

#include "dv/rdma/device.h"
#include "dv/verbs/provider.h"

namespace rodeo::dv::verbs {

class RdmaDevice final : public rdma::Device<Provider> {
 public:
  /// `why`: not another provider, in words that follow "plain verbs".
  RdmaDevice(std::unique_ptr<rdma::CmDevice> opened, const std::string& why);
  ~RdmaDevice() override { cm().close(); }

  [[nodiscard]] Result<PollGroup*> make_poll_group() override;
  void move_to_error(Qp& qp) noexcept override { qp.fail(); }

 private:
  struct Group {
    rdma::Owned<ibv_cq> cq;
    std::unique_ptr<PollGroup> poll_group;
    std::uint32_t cqes = 0;      // that it holds
    std::uint32_t promised = 0;  // to the queues of its QPs
  };
  class PlainQueues;

  [[nodiscard]] Result<Made> make_queues(std::uint32_t group, const QpSizes& sizes) override;
  [[nodiscard]] std::uint32_t probe_inline();
  [[nodiscard]] Result<void> make_cq_room(Group& group, std::uint32_t more);

  std::vector<std::unique_ptr<Group>> groups_;
};

}  // namespace rodeo::dv::verbs
