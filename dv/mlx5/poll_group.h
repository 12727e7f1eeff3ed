// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that owns the group.
//
// All completion queues of one core, polled as one: the group's send CQ first (it frees buffers and send queue room),
// then every receive CQ, going on where the last call stopped, so that a busy peer cannot starve the others.
//
// Receive CQs come and go with connections, on the control thread, while this core polls. The control thread publishes
// a whole new list; this core adopts it at its next poll and says so; only then does the control thread free whatever
// the old list named. No lock, and one load per poll when nothing changes.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "dv/mlx5/cq.h"

namespace rodeo::dv::soft {
struct Group;  // the software HCA's side of a poll group: timers, and state that peers changed
void progress(Group& group) noexcept;
void adopt(Group& group, std::span<mlx5::Cq* const> receive_cqs) noexcept;
}  // namespace rodeo::dv::soft

namespace rodeo::dv::mlx5 {

class PollGroup {
 public:
  /// The receive CQs; immutable once published.
  struct Members {
    std::uint64_t generation = 0;
    std::vector<Cq*> receive_cqs;
  };

  /// `soft` is null for a real device.
  PollGroup(const CqRing& send_ring, soft::Group* soft, const Members* members) noexcept
      : members_(members),
        soft_(soft),
        send_cq_(send_ring),
        published_(members),
        adopted_generation_(members->generation) {}
  PollGroup(const PollGroup&) = delete;
  PollGroup& operator=(const PollGroup&) = delete;

  /// Hands up to `most` completions to take(const Completion&); returns how many.
  template <class F>
  [[gnu::always_inline]] std::size_t poll(std::size_t most, F&& take) noexcept {
    // Acquire: pairs with publish.
    if (const Members* latest = published_.load(std::memory_order_acquire); latest != members_) [[unlikely]]
      adopt(latest);
    std::size_t n = send_cq_.poll(most, take);
    const auto count = static_cast<std::uint32_t>(members_->receive_cqs.size());
    for (std::uint32_t i = 0; i < count && n < most; ++i) {
      n += members_->receive_cqs[next_]->poll(most - n, take);
      if (++next_ == count) next_ = 0;
    }
    return n;
  }

  /// Timers and peers' state. Call it once per turn, when every completion of the last poll has been handled.
  void progress() noexcept {
    if (soft_ != nullptr) soft::progress(*soft_);
  }

  /// Whether poll would find something. Call it when poll found nothing.
  [[nodiscard]] bool ready() const noexcept {
    if (send_cq_.ready()) return true;
    for (const Cq* cq : members_->receive_cqs) {
      if (cq->ready()) return true;
    }
    return false;
  }

  [[nodiscard]] const Cq& send_cq() const noexcept { return send_cq_; }

  /// Replaces the list at the next poll. `members` must live until a later generation is adopted. Runs on: control
  /// thread.
  void publish(const Members* members) noexcept { published_.store(members, std::memory_order_release); }
  /// Nothing of an older generation is in use any more. Runs on: any. Acquire: pairs with adopt.
  [[nodiscard]] std::uint64_t adopted_generation() const noexcept {
    return adopted_generation_.load(std::memory_order_acquire);
  }

 private:
  [[gnu::noinline, gnu::cold]] void adopt(const Members* latest) noexcept {
    members_ = latest;
    next_ = 0;
    if (soft_ != nullptr) soft::adopt(*soft_, latest->receive_cqs);
    adopted_generation_.store(latest->generation, std::memory_order_release);
  }

  const Members* members_;
  soft::Group* soft_;
  std::uint32_t next_ = 0;
  Cq send_cq_;
  // Written by the control thread, rarely.
  alignas(64) std::atomic<const Members*> published_;
  std::atomic<std::uint64_t> adopted_generation_;
};

static_assert(PollableGroup<PollGroup>);

}  // namespace rodeo::dv::mlx5
