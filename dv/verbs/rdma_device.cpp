// SPDX-License-Identifier: Apache-2.0
#include "dv/verbs/rdma_device.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <utility>

namespace rodeo::dv::verbs {

namespace {

constexpr const char* kWhere = "RDMA device";
constexpr int kFirstCqes = 4096;
constexpr std::uint32_t kStagingBytes = 512;  // of a slot: every reply of a NULL call, and most small calls

/// Depths are powers of two.
ibv_qp_init_attr queues_of(ibv_cq& cq, std::uint32_t send_depth, std::uint32_t receive_depth,
                           std::uint32_t inline_bytes) {
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = &cq;
  wanted.cap = {.max_send_wr = send_depth,
                .max_recv_wr = receive_depth,
                .max_send_sge = kMaxSges,
                .max_recv_sge = 1,
                .max_inline_data = inline_bytes};
  wanted.qp_type = IBV_QPT_RC;
  return wanted;
}

}  // namespace

/// A QP with the memory that short Sends are staged in.
class RdmaDevice::PlainQueues final : public rdma::Queues {
 public:
  PlainQueues(Group& group, std::uint32_t send_depth, std::uint32_t receive_depth)
      : group_(group),
        send_depth_(send_depth),
        receive_depth_(receive_depth),
        staging_(std::size_t{send_depth} * kStagingBytes) {
    group_.promised += send_depth_ + receive_depth_;
  }
  ~PlainQueues() override { group_.promised -= send_depth_ + receive_depth_; }

  [[nodiscard]] Result<Qp*> make(ibv_pd& pd, std::uint32_t device_inline, std::span<ibv_mr* const> regions) {
    staging_region_.reset(ibv_reg_mr(&pd, staging_.data(), staging_.size(), IBV_ACCESS_LOCAL_WRITE));
    if (staging_region_ == nullptr) {
      return fail(kWhere, "ibv_reg_mr failed: " + errno_text(), "raise the limit on locked memory (`ulimit -l`)");
    }
    ibv_qp_init_attr wanted = queues_of(*group_.cq, send_depth_, receive_depth_, device_inline);
    hardware_.reset(ibv_create_qp(&pd, &wanted));
    if (hardware_ == nullptr) {
      return fail(kWhere, "ibv_create_qp failed: " + errno_text(), "use fewer connections or smaller queues");
    }
    qp_ = std::make_unique<Qp>(QpParts{.qp = hardware_.get(),
                                       .group = group_.poll_group.get(),
                                       .staging = staging_.data(),
                                       .staging_lkey = staging_region_->lkey,
                                       .staging_bytes = kStagingBytes,
                                       .device_inline = device_inline,
                                       .send_depth = send_depth_,
                                       .receive_depth = receive_depth_,
                                       .regions = regions});
    return qp_.get();
  }

  [[nodiscard]] ibv_qp& hardware() const noexcept override { return *hardware_; }
  [[nodiscard]] bool add_window(ibv_mw& window) noexcept override { return qp_->add_window(&window); }
  void remove_window(const ibv_mw& window) noexcept override { qp_->remove_window(&window); }

 private:
  Group& group_;
  const std::uint32_t send_depth_;
  const std::uint32_t receive_depth_;
  std::vector<std::byte> staging_;
  rdma::Owned<ibv_mr> staging_region_;
  rdma::Owned<ibv_qp> hardware_;
  std::unique_ptr<Qp> qp_;
};

RdmaDevice::RdmaDevice(std::unique_ptr<rdma::CmDevice> opened, const std::string& why)
    : rdma::Device<Provider>(std::move(opened)) {
  Capabilities& can = cm().capabilities();
  can.driver = "plain verbs" + why;
  can.max_inline = probe_inline();
  can.max_sges = std::min(kMaxSges, can.max_sges);
  can.max_windows = std::min(kMaxWindows, can.max_windows);
}

/// What a QP of this device takes inline, of what is useful: drivers round up, or refuse.
std::uint32_t RdmaDevice::probe_inline() {
  const rdma::Owned<ibv_cq> cq(ibv_create_cq(&cm().context(), 16, nullptr, nullptr, 0));
  if (cq == nullptr) return 0;
  for (std::uint32_t bytes = kStagingBytes; bytes >= 64; bytes /= 2) {
    ibv_qp_init_attr wanted = queues_of(*cq, 4, 4, bytes);
    const rdma::Owned<ibv_qp> qp(ibv_create_qp(&cm().pd(), &wanted));
    if (qp != nullptr) return std::min(wanted.cap.max_inline_data, kStagingBytes);
  }
  return 0;
}

Result<PollGroup*> RdmaDevice::make_poll_group() {
  auto group = std::make_unique<Group>();
  group->cqes = static_cast<std::uint32_t>(std::min(kFirstCqes, cm().attributes().max_cqe));
  group->cq.reset(ibv_create_cq(&cm().context(), static_cast<int>(group->cqes), nullptr, nullptr, 0));
  if (group->cq == nullptr) return fail(kWhere, "ibv_create_cq failed: " + errno_text(), "use fewer poll cores");
  group->poll_group = std::make_unique<PollGroup>(group->cq.get());
  groups_.push_back(std::move(group));
  cm().add_group(groups_.back()->poll_group.get());
  return groups_.back()->poll_group.get();
}

/// Every request of a queue may complete before anybody polls: in error, all do.
Result<void> RdmaDevice::make_cq_room(Group& group, std::uint32_t more) {
  const std::uint32_t needed = group.promised + more;
  if (needed <= group.cqes) return {};
  const auto most = static_cast<std::uint32_t>(cm().attributes().max_cqe);
  const std::uint32_t wanted = std::min(most, std::bit_ceil(needed));
  const int error = needed > most ? ENOMEM : ibv_resize_cq(group.cq.get(), static_cast<int>(wanted));
  if (error != 0) {
    return fail(kWhere,
                "a completion queue of " + std::to_string(needed) + " entries is not possible: " + errno_text(error),
                "use more poll cores, fewer connections or fewer credits");
  }
  group.cqes = wanted;
  return {};
}

Result<RdmaDevice::Made> RdmaDevice::make_queues(std::uint32_t group, const QpSizes& sizes) {
  const std::uint32_t send_depth = std::bit_ceil(sizes.send_depth);
  const std::uint32_t receive_depth = std::bit_ceil(sizes.receive_depth);
  Group& owner = *groups_[group];
  if (auto room = make_cq_room(owner, send_depth + receive_depth); !room) return tl::unexpected(room.error());
  auto queues = std::make_unique<PlainQueues>(owner, send_depth, receive_depth);
  auto qp = queues->make(cm().pd(), cm().capabilities().max_inline, cm().regions());
  if (!qp) return tl::unexpected(qp.error());
  return Made{std::move(queues), *qp};
}

}  // namespace rodeo::dv::verbs
