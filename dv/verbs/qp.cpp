// SPDX-License-Identifier: Apache-2.0
#include "dv/verbs/qp.h"

#include <algorithm>
#include <utility>

#include "dv/verbs/poll_group.h"

// Hot path. Runs on: the one core that polls the QP's group.

namespace rodeo::dv::verbs {

Qp::Qp(const QpParts& parts)
    : sends_(std::make_unique<Slot[]>(parts.send_depth)),
      tokens_(std::make_unique<Token[]>(parts.send_depth)),
      staging_(parts.staging),
      staging_bytes_(parts.staging_bytes),
      staging_lkey_(parts.staging_lkey),
      device_inline_(parts.device_inline),
      send_depth_(parts.send_depth),
      send_mask_(parts.send_depth - 1),
      signal_every_(std::max(1U, parts.send_depth / 4)),
      until_signal_(signal_every_),
      qp_(parts.qp),
      receives_(std::make_unique<Receive[]>(parts.receive_depth)),
      receive_depth_(parts.receive_depth),
      receive_mask_(parts.receive_depth - 1),
      qpn_(parts.qp->qp_num),
      group_(parts.group),
      regions_(parts.regions) {
  for (std::uint32_t i = 0; i < send_depth_; ++i) {
    sends_[i].wr.sg_list = sends_[i].sges.data();
    sends_[i].wr.next = &sends_[(i + 1) & send_mask_].wr;
  }
  for (std::uint32_t i = 0; i < receive_depth_; ++i) {
    receives_[i].wr.sg_list = &receives_[i].sge;
    receives_[i].wr.num_sge = 1;
    receives_[i].wr.next = &receives_[(i + 1) & receive_mask_].wr;
  }
}

bool Qp::post_invalidate(std::uint32_t rkey, Token token) noexcept {
  Slot* slot = reserve({});
  if (slot == nullptr) return false;
  slot->wr.invalidate_rkey = rkey;
  finish(*slot, IBV_WR_LOCAL_INV, token, 0);
  return true;
}

bool Qp::post_bind(std::uint32_t old_rkey, std::uint32_t new_rkey, const Sge& range, WindowAccess access,
                   Token token) noexcept {
  const auto region =
      std::find_if(regions_.begin(), regions_.end(), [&](const ibv_mr* mr) { return mr->lkey == range.lkey; });
  ibv_mw* window = nullptr;
  for (const auto& entry : windows_) {
    // Acquire: pairs with add_window.
    ibv_mw* candidate = entry.load(std::memory_order_acquire);
    if (candidate != nullptr && candidate->rkey >> 8U == old_rkey >> 8U) window = candidate;
  }
  if (region == regions_.end() || window == nullptr) return false;
  Slot* slot = reserve({});
  if (slot == nullptr) return false;
  slot->wr.invalidate_rkey = 0;  // of an earlier request in this slot: drivers refuse a binding with one
  window->rkey = old_rkey;       // what a driver takes for the present key
  slot->wr.bind_mw.mw = window;
  slot->wr.bind_mw.rkey = new_rkey;
  slot->wr.bind_mw.bind_info = {.mr = *region,
                                .addr = reinterpret_cast<std::uintptr_t>(range.address),
                                .length = range.length,
                                .mw_access_flags = access == WindowAccess::kRemoteRead
                                                       ? unsigned{IBV_ACCESS_REMOTE_READ}
                                                       : unsigned{IBV_ACCESS_REMOTE_WRITE}};
  finish(*slot, IBV_WR_BIND_MW, token, 0);
  return true;
}

void Qp::fail() noexcept {
  failed_ = true;
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  (void)ibv_modify_qp(qp_, &attributes, IBV_QP_STATE);  // refused only when the device is gone, and then posts are, too
}

void Qp::refuse_sends(const ibv_send_wr* bad) noexcept {
  failed_ = true;
  if (!sends_refused_) {
    sends_refused_ = true;
    refused_send_ = bad == nullptr ? static_cast<std::uint16_t>(producer_ - 1) : static_cast<std::uint16_t>(bad->wr_id);
  }
  group_->add_refusing(*this);
}

void Qp::receives_in_error(const ibv_recv_wr* bad) noexcept {
  if (bad == nullptr) {
    // Soft-RoCE looks at the receive queue of a QP in error only when its state is set.
    fail();
    return;
  }
  failed_ = true;
  if (!receives_refused_) {
    receives_refused_ = true;
    refused_receive_ = static_cast<std::uint16_t>(bad->wr_id);
  }
  group_->add_refusing(*this);
}

bool Qp::add_window(ibv_mw* window) noexcept {
  for (auto& entry : windows_) {
    if (entry.load(std::memory_order_relaxed) != nullptr) continue;
    entry.store(window, std::memory_order_release);  // pairs with post_bind
    return true;
  }
  return false;
}

void Qp::remove_window(const ibv_mw* window) noexcept {
  for (auto& entry : windows_) {
    if (entry.load(std::memory_order_relaxed) == window) entry.store(nullptr, std::memory_order_relaxed);
  }
}

void PollGroup::add_refusing(Qp& qp) noexcept {
  for (const Qp* other = refusing_; other != nullptr; other = other->next_refusing_) {
    if (other == &qp) return;
  }
  qp.next_refusing_ = refusing_;
  refusing_ = &qp;
}

bool PollGroup::next_refused(Completion& completion) noexcept {
  while (refusing_ != nullptr) {
    Qp& qp = *refusing_;
    completion = {.status = Status::kFlushed};
    if (qp.sends_refused_ && qp.refused_send_ != qp.rung_) {
      completion.kind = CompletionKind::kSendQueue;
      completion.origin = Completion::origin_of(qp.qpn_, qp.refused_send_++);
      return true;
    }
    if (qp.receives_refused_ && qp.refused_receive_ != qp.rq_published_) {
      if (qp.refused_receive_ != qp.rq_tail_) return false;  // those before it come first, in order
      completion.origin = Completion::origin_of(qp.qpn_, qp.refused_receive_++);
      return true;
    }
    qp.sends_refused_ = qp.receives_refused_ = false;
    refusing_ = std::exchange(qp.next_refusing_, nullptr);
  }
  return false;
}

}  // namespace rodeo::dv::verbs
