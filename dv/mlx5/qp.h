// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that polls the QP's group.
//
// A queue pair as mlx5 hardware sees it: a ring of 64-byte basic blocks that holds send WQEs, a ring of 16-byte receive
// WQEs, and two doorbell records. The code builds WQEs in place, rings once per burst and signals sparingly:
//
//  - A WQE never wraps: when the rest of the ring is too short, one NOP fills it. Inline data is therefore contiguous,
//    and post_inline_send can hand out the very bytes of the WQE for a header to be written into.
//  - A request with a token is always signalled, since somebody waits for it. Requests without one are signalled once
//    per quarter of the ring, so that the ring can never fill up with requests of which no completion will tell.
//  - The receive ring keeps a private shadow of the buffer addresses. A slot that gets the same buffer again is not
//    written, so its cache line stays shared with the device, and what a peer scribbles there is never believed.
//  - Receives from a shared receive queue take the ways that are unlikely with a ring of our own, at no cost to it: the
//    ring is then empty but for one receive that no message can come in, and which a flush gives back.
//
// The software HCA consumes these very rings; `soft` is then set and one predictable branch at the doorbell calls it.

#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "dv/barriers.h"
#include "dv/mlx5/srq.h"
#include "dv/mlx5/wqe.h"
#include "dv/provider.h"
#include "pools/byte_order.h"
#include "pools/state_memory.h"

namespace rodeo::dv::soft {
struct SendEngine;  // executes a send queue on the posting core
void execute(SendEngine& engine) noexcept;
void prefetch_peer(const SendEngine& engine) noexcept;
void prefetch_target(const SendEngine& engine, std::uint32_t ahead) noexcept;
}  // namespace rodeo::dv::soft

namespace rodeo::dv::mlx5 {

/// A BlueFlame register. All QPs of one core may share it, and no QP of another may: its two halves are written in
/// turn, whoever writes.
struct BlueFlame {
  std::byte* reg = nullptr;
  std::uint32_t bytes = 0;  // of a half; 0: it takes doorbells of 8 bytes only, and these from any core
  std::uint32_t offset = 0;
};

/// Where a QP lives: what mlx5dv_init_obj or the software HCA hands out. Counts are powers of two.
struct QpRings {
  std::byte* sq = nullptr;
  std::uint32_t sq_bbs = 0;
  std::byte* rq = nullptr;
  std::uint32_t rq_wqes = 0;  // 0: receives come from `srq`
  Srq* srq = nullptr;
  Be32* dbrec = nullptr;       // [0] receive, [1] send
  Be32* send_dbrec = nullptr;  // where the send record is not at dbrec[1]: the software HCA keeps it private
  BlueFlame* bf = nullptr;     // outlives the QP; null for the software HCA, which has none
  std::uint32_t qpn = 0;
  std::uint32_t max_inline = 0;
  soft::SendEngine* soft = nullptr;
};

class alignas(64) Qp : public pools::InStateMemory {
 public:
  explicit Qp(const QpRings& rings);
  Qp(const Qp&) = delete;
  Qp& operator=(const Qp&) = delete;

  /// What a request takes of send_room().
  static constexpr std::uint32_t kSendRoom = 16;  // the longest WQE
  static constexpr std::uint32_t kBindRoom = kBindBbs;
  static constexpr std::uint32_t kInvalidateRoom = kInvalidateBbs;

  [[nodiscard]] std::uint32_t qpn() const noexcept { return qpn_; }
  [[nodiscard]] std::uint32_t max_inline() const noexcept { return max_inline_; }

  /// The software HCA's share of the QP; null on a real device.
  [[nodiscard]] soft::SendEngine* soft() const noexcept { return soft_; }

  /// Free basic blocks of the send ring.
  [[nodiscard]] std::uint32_t send_room() const noexcept {
    return sq_bbs_ - static_cast<std::uint16_t>(producer_ - consumer_);
  }
  [[nodiscard]] std::uint32_t receives_posted() const noexcept {
    return static_cast<std::uint16_t>(rq_head_ - rq_tail_);
  }
  /// Nothing posted is outstanding: every send WQE has retired and every receive has come back.
  [[nodiscard]] bool drained() const noexcept { return producer_ == consumer_ && rq_head_ == rq_tail_; }

  /// Posts a SEND of `length` inline bytes and says where they go: to be written before the doorbell. nullptr when the
  /// ring has no room or `length` exceeds max_inline. What is left of the WQE's last basic block may be scribbled on.
  [[nodiscard, gnu::always_inline]] std::byte* post_inline_send(std::uint32_t length) noexcept {
    if (length > kLeastInline && length > max_inline_) [[unlikely]]
      return nullptr;
    if (std::byte* out = post_plain_send(length); out != nullptr) [[likely]]
      return out;
    return post_signalled_send(length);
  }
  /// The same for at most max_inline() bytes where nothing is to be looked after. nullptr also where post_inline_send
  /// would do it. Calls nothing.
  [[nodiscard, gnu::always_inline]] std::byte* post_plain_send(std::uint32_t length) noexcept {
    const std::uint32_t ds = ds_of_inline_send(length);
    const std::uint32_t bbs = bbs_of_ds(ds);
    if (bbs > plain_) [[unlikely]]
      return nullptr;
    plain_ -= bbs;
    return begin_inline(begin(bbs, plain_send_ | ds, 0), length);
  }

  [[nodiscard]] bool post_send(std::span<const Sge> sges, Token token) noexcept {
    return post_message(MLX5_OPCODE_SEND, 0, sges, token);
  }
  /// The peer's device makes its `rkey` unusable when it delivers the message.
  [[nodiscard]] bool post_send_invalidate(std::span<const Sge> sges, std::uint32_t rkey, Token token) noexcept {
    return post_message(MLX5_OPCODE_SEND_INVAL, rkey, sges, token);
  }
  [[nodiscard]] bool post_write(std::span<const Sge> sges, RemoteAddress remote, Token token) noexcept {
    return post_rdma(MLX5_OPCODE_RDMA_WRITE, sges, remote, token);
  }
  [[nodiscard]] bool post_read(std::span<const Sge> sges, RemoteAddress remote, Token token) noexcept {
    return post_rdma(MLX5_OPCODE_RDMA_READ, sges, remote, token);
  }

  /// Makes a memory window's key unusable for the peer (LOCAL_INV). The completion says that no access is under way.
  [[nodiscard]] bool post_invalidate(std::uint32_t rkey, Token token) noexcept;

  /// Binds a free type-2 window, whose present key is `old_rkey`, to [address, address+length) of region `lkey`; from
  /// then on its key is `new_rkey` (same index, fresh low 8 bits).
  [[nodiscard]] bool post_bind(std::uint32_t old_rkey, std::uint32_t new_rkey, const Sge& range, WindowAccess access,
                               Token token) noexcept;

  /// A signalled NOP. In the error state it is flushed like everything else, and its completion retires whatever was
  /// posted before it: unsignalled requests that succeeded just before the error have no completion of their own.
  [[nodiscard]] bool post_drain(Token token) noexcept;

  /// Hands everything posted since the last ring to the device.
  [[gnu::always_inline]] void ring_doorbell() noexcept {
    if (rung_ == producer_) return;
    rung_ = producer_;
    before_doorbell_record();
    // Pairs with the device's read of the record.
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(send_dbrec_), htobe32(producer_), __ATOMIC_RELEASE);
    if (soft_ != nullptr) {
      soft::execute(*soft_);
    } else {
      ring_mmio();
    }
  }

  /// Retires the send WQEs that `completion` covers and calls on_token(token) for each that had one, in order.
  template <class F>
  [[gnu::always_inline]] void retire_send(const Completion& completion, F&& on_token) noexcept {
    while (signalled_tail_ != signalled_head_) {
      const Signalled& oldest = signalled_[signalled_tail_ & (sq_bbs_ - 1)];
      // A flush tells of unsignalled WQEs, too; those are not in this list, and the ones before them are done.
      if (static_cast<std::int16_t>(oldest.first_bb - completion.wqe_counter()) > 0) break;
      consumer_ = oldest.next_bb;
      ++signalled_tail_;
      if (oldest.token != kNoToken) on_token(oldest.token);
    }
    if (completion.status != Status::kSuccess) [[unlikely]]
      retire_unsignalled(completion);
  }

  /// One buffer for a message of the peer. False when the ring is full. Not visible before publish_receives.
  [[nodiscard]] bool post_receive(std::byte* buffer, std::uint32_t length, std::uint32_t lkey) noexcept {
    if (srq_ != nullptr) return srq_->post_receive(buffer, length, lkey);
    if (receives_posted() == rq_wqes_) return false;
    receive_bytes_ = length;
    receive_lkey_ = lkey;
    repost_receive(buffer);
    return true;
  }
  /// Posts a buffer that take_receive has returned, as long and of the same region as the last one given to
  /// post_receive: there is room for it.
  [[gnu::always_inline]] void repost_receive(std::byte* buffer) noexcept {
    if (rq_shadow_[rq_head_ & rq_mask_] != buffer) [[unlikely]]
      return write_receive(buffer);
    ++rq_head_;
  }
  [[gnu::always_inline]] void publish_receives() noexcept {
    before_doorbell_record();
    before_giving_back();
    // Pairs with the device's read of the record when it has used up the receives it knew of.
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(dbrec_ + MLX5_RCV_DBR), htobe32(rq_head_), __ATOMIC_RELEASE);
  }

  /// The buffer of a receive completion, or nullptr when the completion does not match what is posted (a forged or
  /// stale CQE): RC receives complete in posting order, and those of a shared receive queue in any. nullptr, too, where
  /// a flush says that no more will come from there.
  [[nodiscard]] std::byte* take_receive(const Completion& completion) noexcept {
    return srq_ != nullptr ? take_shared_receive(completion) : take_own_receive(completion);
  }
  /// The same for one who knows which.
  [[nodiscard, gnu::always_inline]] std::byte* take_shared_receive(const Completion& completion) noexcept {
    if (std::byte* buffer = srq_->take(completion.wqe_counter()); buffer != nullptr) [[likely]]
      return buffer;
    return take_own_receive(completion);
  }
  [[nodiscard, gnu::always_inline]] std::byte* take_own_receive(const Completion& completion) noexcept {
    const std::uint16_t tail = rq_tail_;
    if (completion.wqe_counter() != tail || tail == rq_head_) [[unlikely]]
      return nullptr;
    rq_tail_ = static_cast<std::uint16_t>(tail + 1);
    return rq_shadow_[tail & rq_mask_];
  }
  /// Free running count of the receives taken, and of those posted: what a flush has to cover.
  [[nodiscard]] std::uint16_t receive_tail() const noexcept { return rq_tail_; }
  [[nodiscard]] std::uint16_t receive_head() const noexcept { return rq_head_; }

  /// Where receives come from; nullptr where the QP has a ring of its own. What is posted there is published there.
  [[nodiscard]] Srq* srq() const noexcept { return srq_; }

  // For a core with many connections, whose state is rarely in its nearest cache. Each asks for what the one before
  // had to be there for, so run one over a whole burst before the next.

  /// The QP itself: what messages and Sends need of it.
  [[gnu::always_inline]] void prefetch_self() const noexcept {
    __builtin_prefetch(this);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 64);
  }
  /// The next WQE, to be written, and what executes it.
  [[gnu::always_inline]] void prefetch_next_send() const noexcept {
    __builtin_prefetch(soft_, 1);
    __builtin_prefetch(next_wqe_, 1);
    __builtin_prefetch(next_wqe_ + kBbBytes, 1);
  }
  /// What the doorbell will touch.
  [[gnu::always_inline]] void prefetch_doorbell() const noexcept {
    if (soft_ != nullptr) soft::prefetch_peer(*soft_);
  }
  /// Where the doorbell will put its first message, the `ahead`th of the burst.
  [[gnu::always_inline]] void prefetch_target(std::uint32_t ahead) const noexcept {
    if (soft_ != nullptr) soft::prefetch_target(*soft_, ahead);
  }

  /// Fetches the buffer that the next receive completion will name.
  [[gnu::always_inline]] void prefetch_next_receive() const noexcept {
    if (srq_ != nullptr) return srq_->prefetch_next();
    // As a number: where nothing is posted it is null, and no pointer may be computed from that.
    const auto buffer = reinterpret_cast<std::uintptr_t>(rq_shadow_[rq_tail_ & rq_mask_]);
    __builtin_prefetch(reinterpret_cast<const void*>(buffer));
    __builtin_prefetch(reinterpret_cast<const void*>(buffer + 64));
  }

 private:
  void plan() noexcept;
  /// The next WQE waits until this one has taken effect.
  void fence_next() noexcept {
    next_fence_ = std::byte{MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE};
    plan();
  }
  [[nodiscard, gnu::cold]] bool make_room(std::uint32_t bbs) noexcept;

  struct Signalled {
    std::uint16_t first_bb;
    std::uint16_t next_bb;
    Token token;
  };

  /// Writes the control segment of a WQE of `bbs` blocks at the producer, without flags, and moves the producer behind
  /// it. `what`: opcode, QPN and DS as they stand in its first word.
  [[gnu::always_inline]] std::byte* begin(std::uint32_t bbs, std::uint64_t what, std::uint32_t immediate) noexcept {
    std::byte* wqe = next_wqe_;
    // opmod 0, index and opcode; QPN and DS. Then signature, stream channel and flags in one word, and the immediate.
    store_be64(wqe, (std::uint64_t{producer_} << 40) | what);
    const std::uint64_t rest = std::uint64_t{htobe32(immediate)} << 32;
    std::memcpy(wqe + 8, &rest, sizeof rest);
    producer_ = static_cast<std::uint16_t>(producer_ + bbs);
    next_wqe_ = wqe + bbs * std::size_t{kBbBytes};
    return wqe;
  }
  [[nodiscard]] static constexpr std::uint64_t control_word(std::uint8_t opcode, std::uint32_t qpn) noexcept {
    return (std::uint64_t{opcode} << 32) | (qpn << 8);
  }

  [[gnu::always_inline]] static std::byte* begin_inline(std::byte* wqe, std::uint32_t length) noexcept {
    *reinterpret_cast<std::uint32_t*>(wqe + sizeof(mlx5_wqe_ctrl_seg)) = htobe32(MLX5_INLINE_SEG | length);
    return wqe + kInlineOffset;
  }

  /// Whether there is room for `bbs` contiguous blocks at next_wqe_, after a NOP where the ring ends too early.
  [[nodiscard]] bool reserve(std::uint32_t bbs) noexcept;
  /// Begins the WQE for which room was reserved, with the flags that it needs.
  void finish(std::uint8_t opcode, std::uint32_t ds, std::uint32_t immediate, Token token) noexcept;
  /// A Send that may have to be signalled or fenced, or for which there may be no room: nullptr.
  [[nodiscard, gnu::noinline]] std::byte* post_signalled_send(std::uint32_t length) noexcept;

  /// Posts a buffer that the ring does not hold at its head.
  [[gnu::noinline]] void write_receive(std::byte* buffer) noexcept {
    if (srq_ != nullptr) return srq_->repost(buffer);
    const std::uint32_t slot = rq_head_++ & rq_mask_;
    rq_shadow_[slot] = buffer;
    auto* data = reinterpret_cast<mlx5_wqe_data_seg*>(rq_ + slot * std::size_t{kReceiveStride});
    data->byte_count = htobe32(receive_bytes_);
    data->lkey = htobe32(receive_lkey_);
    data->addr = htobe64(reinterpret_cast<std::uintptr_t>(buffer));
  }

  [[nodiscard]] bool post_message(std::uint8_t opcode, std::uint32_t rkey, std::span<const Sge> sges,
                                  Token token) noexcept;
  [[nodiscard]] bool post_rdma(std::uint8_t opcode, std::span<const Sge> sges, RemoteAddress remote,
                               Token token) noexcept;
  void ring_mmio() noexcept;
  /// The WQE that begins with block `index`, and where the next one does.
  [[nodiscard]] const std::byte* wqe_at(std::uint16_t index) const noexcept;
  [[nodiscard]] std::uint16_t next_of(std::uint16_t index) const noexcept;
  [[gnu::noinline, gnu::cold]] void retire_unsignalled(const Completion& completion) noexcept;

  // The first line: what a Send, its doorbell, and a message in a shared receive touch.
  std::byte* next_wqe_;       // at the producer
  std::uint64_t plain_send_;  // the control word of a Send but for index and DS
  soft::SendEngine* soft_;
  Be32* send_dbrec_;
  Srq* srq_;
  std::byte** rq_shadow_;
  std::uint32_t plain_ = 0;     // blocks that inline Sends may take there and need neither a look at the room nor flags
  std::uint16_t producer_ = 0;  // in BBs, free running, as the device counts
  std::uint16_t rung_ = 0;
  std::uint16_t rq_head_ = 0;
  std::uint32_t rq_mask_;
  // The second line: a receive ring of our own, and the send queue's other state.
  Be32* dbrec_;
  std::uint16_t rq_tail_ = 0;
  std::uint16_t consumer_ = 0;
  std::uint16_t signalled_head_ = 0;
  std::uint16_t signalled_tail_ = 0;
  std::uint32_t planned_ = 0;  // what plain_ was when room_ and until_signal_ were right
  std::byte next_fence_{0};
  std::uint32_t rq_wqes_;
  std::byte* rq_;
  std::uint32_t receive_bytes_ = 0;
  std::uint32_t receive_lkey_ = 0;
  std::uint32_t room_ = 0;      // blocks free at next_wqe_, up to the end of the ring
  std::uint32_t until_signal_;  // the WQE that contains the block so many from here is signalled
  std::uint32_t max_inline_;
  std::uint32_t qpn_;
  // Now and then.
  pools::StateArray<std::byte*> shadow_memory_;
  static std::byte* no_shadow_;  // of every QP without a ring
  std::uint32_t signal_every_;
  std::uint32_t sq_bbs_;
  std::byte* sq_;
  pools::StateArray<Signalled> signalled_;
  // The MMIO doorbell, which the software HCA does not have.
  BlueFlame* bf_;
  std::uint16_t mmio_rung_ = 0;
};

static_assert(QueuePair<Qp>);

}  // namespace rodeo::dv::mlx5
