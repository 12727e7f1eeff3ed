// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that polls the QP's group.
//
// A queue pair through ibv_post_send and ibv_post_recv. Both queues are rings of work requests that are linked once and
// for all; a burst is posted as one chain, by cutting the ring behind its last request for the time of the call.
//
//  - post_inline_send hands out bytes of the slot itself, which are registered: what is short enough goes inline, and
//    what is longer is fetched from there by the device. The slot is not used again before its request has retired.
//  - A request with a token is always signalled. Requests without one are signalled once per quarter of the ring, so
//    that the ring can never fill up with requests of which no completion will tell.
//  - What the device refuses to take (its driver's error from a post) comes back as flushed, through the group.

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <memory>
#include <span>

#include "dv/provider.h"
#include "dv/verbs/cq.h"

namespace rodeo::dv::verbs {

class PollGroup;

inline constexpr std::uint32_t kMaxSges = 4;
inline constexpr std::uint32_t kMaxWindows = 128;  // of one QP

/// What a QP is made of. Depths are powers of two.
struct QpParts {
  ibv_qp* qp = nullptr;
  PollGroup* group = nullptr;
  std::byte* staging = nullptr;  // send_depth slots of staging_bytes, registered
  std::uint32_t staging_lkey = 0;
  std::uint32_t staging_bytes = 0;
  std::uint32_t device_inline = 0;  // what the device takes inline; 0: nothing
  std::uint32_t send_depth = 0;
  std::uint32_t receive_depth = 0;
  std::span<ibv_mr* const> regions;  // what windows can be bound to; does not change any more
};

class Qp {
 public:
  explicit Qp(const QpParts& parts);
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  /// What a request takes of send_room().
  static constexpr std::uint32_t kSendRoom = 1;
  static constexpr std::uint32_t kBindRoom = 1;
  static constexpr std::uint32_t kInvalidateRoom = 1;

  [[nodiscard]] std::uint32_t qpn() const noexcept { return qpn_; }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return staging_bytes_; }
  [[nodiscard]] NoSrq* srq() const noexcept { return nullptr; }

  /// Free slots of the send ring.
  [[nodiscard]] std::uint32_t send_room() const noexcept {
    return send_depth_ - static_cast<std::uint16_t>(producer_ - consumer_);
  }
  [[nodiscard]] std::uint32_t receives_posted() const noexcept {
    return static_cast<std::uint16_t>(rq_head_ - rq_tail_);
  }
  /// Nothing posted is outstanding: every send has retired and every receive has come back.
  [[nodiscard]] bool drained() const noexcept { return producer_ == consumer_ && rq_head_ == rq_tail_; }

  /// Posts a Send of `length` bytes and says where they go: to be written before the doorbell. nullptr when the ring
  /// has no room or `length` exceeds max_inline.
  [[nodiscard]] std::byte* post_plain_send(std::uint32_t length) noexcept { return post_inline_send(length); }
  [[nodiscard]] std::byte* post_inline_send(std::uint32_t length) noexcept {
    if (length > staging_bytes_ || send_room() == 0) [[unlikely]]
      return nullptr;
    const std::uint32_t index = producer_ & send_mask_;
    std::byte* bytes = staging_ + index * std::size_t{staging_bytes_};
    Slot& slot = sends_[index];
    slot.sges[0] = {reinterpret_cast<std::uintptr_t>(bytes), length, staging_lkey_};
    slot.wr.num_sge = length == 0 ? 0 : 1;
    finish(slot, IBV_WR_SEND, kNoToken, length <= device_inline_ ? unsigned{IBV_SEND_INLINE} : 0U);
    return bytes;
  }

  [[nodiscard]] bool post_send(std::span<const Sge> sges, Token token) noexcept {
    Slot* slot = reserve(sges);
    if (slot == nullptr) return false;
    finish(*slot, IBV_WR_SEND, token, 0);
    return true;
  }
  /// The peer's device makes its `rkey` unusable when it delivers the message.
  [[nodiscard]] bool post_send_invalidate(std::span<const Sge> sges, std::uint32_t rkey, Token token) noexcept {
    Slot* slot = reserve(sges);
    if (slot == nullptr) return false;
    slot->wr.invalidate_rkey = rkey;
    finish(*slot, IBV_WR_SEND_WITH_INV, token, 0);
    return true;
  }
  [[nodiscard]] bool post_write(std::span<const Sge> sges, RemoteAddress remote, Token token) noexcept {
    return post_rdma(IBV_WR_RDMA_WRITE, sges, remote, token);
  }
  [[nodiscard]] bool post_read(std::span<const Sge> sges, RemoteAddress remote, Token token) noexcept {
    return post_rdma(IBV_WR_RDMA_READ, sges, remote, token);
  }

  /// Makes a memory window's key unusable for the peer. The completion says that no access is under way.
  [[nodiscard]] bool post_invalidate(std::uint32_t rkey, Token token) noexcept;
  /// Binds a free type-2 window of this QP, whose present key is `old_rkey`; from then on its key is `new_rkey`. False
  /// also when the QP has no such window or the device no such region: verbs name both by object, not by key.
  [[nodiscard]] bool post_bind(std::uint32_t old_rkey, std::uint32_t new_rkey, const Sge& range, WindowAccess access,
                               Token token) noexcept;

  /// A signalled request that moves nothing, to be flushed: its completion comes behind all that was posted before.
  [[nodiscard]] bool post_drain(Token token) noexcept {
    Slot* slot = reserve({});
    if (slot == nullptr) return false;
    slot->wr.wr.rdma = {};
    finish(*slot, IBV_WR_RDMA_WRITE, token, IBV_SEND_SIGNALED);
    return true;
  }

  /// Hands everything posted since the last ring to the device.
  void ring_doorbell() noexcept {
    if (rung_ == producer_) return;
    ibv_send_wr* first = &sends_[rung_ & send_mask_].wr;
    ibv_send_wr& last = sends_[static_cast<std::uint16_t>(producer_ - 1) & send_mask_].wr;
    ibv_send_wr* const next = last.next;
    last.next = nullptr;
    ibv_send_wr* bad = nullptr;
    const int error = ibv_post_send(qp_, first, &bad);
    last.next = next;
    rung_ = producer_;
    if (error != 0) [[unlikely]]
      refuse_sends(bad);
  }

  /// Retires the requests that `completion` covers and calls on_token(token) for each that had one, in order.
  template <class F>
  void retire_send(const Completion& completion, F&& on_token) noexcept {
    if (completion.status != Status::kSuccess) [[unlikely]]
      failed_ = true;
    const auto next = static_cast<std::uint16_t>(completion.wqe_counter() + 1);
    const auto outstanding = static_cast<std::uint16_t>(producer_ - consumer_);
    if (static_cast<std::uint16_t>(next - consumer_) > outstanding) [[unlikely]]
      return;  // stale
    while (consumer_ != next) {
      const Token token = tokens_[consumer_++ & send_mask_];
      if (token != kNoToken) on_token(token);
    }
  }

  /// One buffer for a message of the peer. False when the ring is full. Not visible before publish_receives.
  [[nodiscard]] bool post_receive(std::byte* buffer, std::uint32_t length, std::uint32_t lkey) noexcept {
    if (receives_posted() == receive_depth_) [[unlikely]]
      return false;
    receive_bytes_ = length;
    receive_lkey_ = lkey;
    repost_receive(buffer);
    return true;
  }
  /// Posts a buffer that take_receive has returned, as long and of the same region as the last one given to
  /// post_receive: there is room for it.
  void repost_receive(std::byte* buffer) noexcept {
    Receive& receive = receives_[rq_head_ & receive_mask_];
    receive.sge = {reinterpret_cast<std::uintptr_t>(buffer), receive_bytes_, receive_lkey_};
    receive.wr.wr_id = rq_head_;
    ++rq_head_;
  }
  void publish_receives() noexcept {
    if (rq_published_ == rq_head_) return;
    ibv_recv_wr* first = &receives_[rq_published_ & receive_mask_].wr;
    ibv_recv_wr& last = receives_[static_cast<std::uint16_t>(rq_head_ - 1) & receive_mask_].wr;
    ibv_recv_wr* const next = last.next;
    last.next = nullptr;
    ibv_recv_wr* bad = nullptr;
    const int error = ibv_post_recv(qp_, first, &bad);
    last.next = next;
    rq_published_ = rq_head_;
    if (error != 0 || failed_) [[unlikely]]
      receives_in_error(error == 0 ? nullptr : bad);
  }

  /// The buffer of a receive completion, or nullptr when the completion does not match what is posted: RC receives
  /// complete in posting order.
  [[nodiscard]] std::byte* take_receive(const Completion& completion) noexcept {
    if (completion.wqe_counter() != rq_tail_ || rq_tail_ == rq_head_) [[unlikely]]
      return nullptr;
    if (completion.status != Status::kSuccess) [[unlikely]]
      failed_ = true;
    return buffer_at(rq_tail_++);
  }

  [[nodiscard]] std::byte* take_own_receive(const Completion& completion) noexcept { return take_receive(completion); }
  [[nodiscard]] std::byte* take_shared_receive(const Completion& completion) noexcept {
    return take_receive(completion);
  }

  // The driver's queues are its own; what can be fetched early is the messages.
  void prefetch_self() const noexcept { __builtin_prefetch(this); }
  void prefetch_next_send() const noexcept { __builtin_prefetch(&sends_[producer_ & send_mask_], 1); }
  void prefetch_doorbell() const noexcept {}
  void prefetch_target(std::uint32_t /*ahead*/) const noexcept {}
  void prefetch_next_receive() const noexcept { __builtin_prefetch(buffer_at(rq_tail_)); }

  /// QP → ERR.
  void fail() noexcept;

  /// Control thread: a window that may be bound here from now on, or no longer. False: there are too many.
  [[nodiscard]] bool add_window(ibv_mw* window) noexcept;
  void remove_window(const ibv_mw* window) noexcept;

 private:
  friend class PollGroup;
  struct Slot {
    ibv_send_wr wr;
    std::array<ibv_sge, kMaxSges> sges;
  };
  struct Receive {
    ibv_recv_wr wr;
    ibv_sge sge;
  };

  [[nodiscard]] std::byte* buffer_at(std::uint16_t counter) const noexcept {
    return reinterpret_cast<std::byte*>(receives_[counter & receive_mask_].sge.addr);
  }
  /// The slot at the producer with `sges` in it, or nullptr.
  [[nodiscard]] Slot* reserve(std::span<const Sge> sges) noexcept {
    if (send_room() == 0 || sges.size() > kMaxSges) [[unlikely]]
      return nullptr;
    Slot& slot = sends_[producer_ & send_mask_];
    slot.wr.num_sge = 0;
    for (const Sge& sge : sges) {
      if (sge.length == 0) continue;  // means 2 GiB to some devices
      slot.sges[static_cast<std::size_t>(slot.wr.num_sge++)] = {reinterpret_cast<std::uintptr_t>(sge.address),
                                                                sge.length, sge.lkey};
    }
    return &slot;
  }
  void finish(Slot& slot, ibv_wr_opcode opcode, Token token, unsigned flags) noexcept {
    slot.wr.opcode = opcode;
    slot.wr.wr_id = kSendQueueBit | producer_;
    tokens_[producer_ & send_mask_] = token;
    if (token != kNoToken || --until_signal_ == 0) {
      flags |= IBV_SEND_SIGNALED;
      until_signal_ = signal_every_;
    }
    slot.wr.send_flags = flags;
    ++producer_;
  }
  [[nodiscard]] bool post_rdma(ibv_wr_opcode opcode, std::span<const Sge> sges, RemoteAddress remote,
                               Token token) noexcept {
    Slot* slot = reserve(sges);
    if (slot == nullptr) return false;
    slot->wr.wr.rdma.remote_addr = remote.offset;
    slot->wr.wr.rdma.rkey = remote.rkey;
    finish(*slot, opcode, token, 0);
    return true;
  }
  /// Cold: the requests from `bad` on have not been taken; the group reports them as flushed.
  void refuse_sends(const ibv_send_wr* bad) noexcept;
  void receives_in_error(const ibv_recv_wr* bad) noexcept;

  std::unique_ptr<Slot[]> sends_;
  std::unique_ptr<Token[]> tokens_;
  std::byte* staging_;
  std::uint32_t staging_bytes_;
  std::uint32_t staging_lkey_;
  std::uint32_t device_inline_;
  std::uint32_t send_depth_;
  std::uint32_t send_mask_;
  std::uint32_t signal_every_;
  std::uint32_t until_signal_;  // requests until one is signalled for want of another reason
  std::uint16_t producer_ = 0;  // free running
  std::uint16_t consumer_ = 0;
  std::uint16_t rung_ = 0;
  std::uint16_t rq_head_ = 0;
  std::uint16_t rq_tail_ = 0;
  std::uint16_t rq_published_ = 0;
  bool failed_ = false;  // in error, as far as we know
  ibv_qp* qp_;
  std::unique_ptr<Receive[]> receives_;
  std::uint32_t receive_depth_;
  std::uint32_t receive_mask_;
  std::uint32_t receive_bytes_ = 0;
  std::uint32_t receive_lkey_ = 0;
  std::uint32_t qpn_;
  // What the device refused: reported as flushed from here to the ring's end.
  std::uint16_t refused_send_ = 0;
  std::uint16_t refused_receive_ = 0;
  bool sends_refused_ = false;
  bool receives_refused_ = false;
  Qp* next_refusing_ = nullptr;  // of the group's list
  PollGroup* group_;
  std::span<ibv_mr* const> regions_;
  std::array<std::atomic<ibv_mw*>, kMaxWindows> windows_{};
};

static_assert(QueuePair<Qp>);

}  // namespace rodeo::dv::verbs
