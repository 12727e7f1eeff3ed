// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that polls the QPs which take receives from here.
//
// A shared receive queue as mlx5 hardware sees it: 32-byte WQEs (a next segment and one data segment) in a linked list.
// The device uses them in the order of the links; what they complete in is another matter, since messages of several
// queue pairs overtake each other. A WQE whose completion has come joins the end of the list; one always stays
// unposted, so that the list never ends under the device. The links and addresses that were written are remembered
// here: what a peer scribbles there is never believed.

#include <cstddef>
#include <cstdint>

#include "dv/barriers.h"
#include "dv/mlx5/wqe.h"
#include "pools/byte_order.h"
#include "pools/state_memory.h"

namespace rodeo::dv::mlx5 {

/// Where an SRQ lives: what mlx5dv_init_obj or the software HCA hands out.
struct SrqRing {
  std::byte* wqes = nullptr;
  std::uint32_t wqe_count = 0;  // a power of two, at most 32,768
  Be32* dbrec = nullptr;        // [0]: how many have been posted ever, 16 bits
  /// Of the software HCA: how often the queue has begun anew.
  std::uint32_t* restarts = nullptr;
};

class Srq : public pools::InStateMemory {
 public:
  explicit Srq(const SrqRing& ring) : ring_(ring), entries_(ring.wqe_count) { begin_anew(); }
  Srq(const Srq&) = delete;
  Srq& operator=(const Srq&) = delete;

  [[nodiscard]] std::uint32_t capacity() const noexcept { return ring_.wqe_count - 1; }
  /// Those that no completion has come for.
  [[nodiscard]] std::uint32_t posted() const noexcept { return posted_; }

  /// One more buffer, for a message of whoever comes first. False when the queue is full. Not visible before publish.
  [[nodiscard]] bool post_receive(std::byte* buffer, std::uint32_t length, std::uint32_t lkey) noexcept {
    if (posted_ == capacity()) return false;
    bytes_ = length;
    lkey_ = lkey;
    repost(buffer);
    return true;
  }
  /// Posts a buffer that take() has returned, as long and of the same region as the last one given to post_receive:
  /// there is room for it.
  void repost(std::byte* buffer) noexcept {
    Entry& entry = entries_[head_];
    if (entry.buffer != buffer) write(head_, buffer);
    entry.posted = true;
    head_ = entry.next;
    ++posted_;
    ++counter_;
  }
  void publish() noexcept {
    if (published_ == counter_) return;
    published_ = counter_;
    before_doorbell_record();
    before_giving_back();
    // Pairs with the device's read of the record when it has used up the receives it knew of.
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(ring_.dbrec), htobe32(counter_), __ATOMIC_RELEASE);
  }

  /// The buffer of WQE `index`, which a completion names; nullptr when that is not posted (a forged or stale CQE).
  [[nodiscard]] std::byte* take(std::uint32_t index) noexcept {
    if (index >= ring_.wqe_count || !entries_[index].posted) return nullptr;
    entries_[index].posted = false;
    --posted_;
    if (entries_[tail_].next != index) link(tail_, static_cast<std::uint16_t>(index));
    tail_ = static_cast<std::uint16_t>(index);
    return entries_[index].buffer;
  }

  /// Gives each posted buffer back, give(std::byte*). Only while no queue pair can receive any more; the first that
  /// does so again finds the queue as new.
  template <class F>
  void take_back(F&& give) noexcept {
    for (std::uint32_t i = 0; i < ring_.wqe_count; ++i) {
      if (entries_[i].posted) give(entries_[i].buffer);
    }
    begin_anew();
  }

  /// The buffer that the next message most likely comes in, and its lines.
  void prefetch_next() const noexcept {
    // As a number: where nothing was posted it is null, and no pointer may be computed from that.
    const auto buffer = reinterpret_cast<std::uintptr_t>(entries_[entries_[tail_].next].buffer);
    __builtin_prefetch(reinterpret_cast<const void*>(buffer));
    __builtin_prefetch(reinterpret_cast<const void*>(buffer + 64));
  }

 private:
  /// What a WQE says.
  struct Entry {
    std::byte* buffer;
    std::uint16_t next;
    bool posted;
  };

  [[nodiscard]] std::byte* wqe(std::uint32_t index) const noexcept { return ring_.wqes + index * kSharedReceiveStride; }

  [[gnu::cold]] void begin_anew() noexcept {
    for (std::uint32_t i = 0; i < ring_.wqe_count; ++i) {
      link(i, static_cast<std::uint16_t>((i + 1) & (ring_.wqe_count - 1)));
      entries_[i].posted = false;
    }
    head_ = 0;
    tail_ = static_cast<std::uint16_t>(ring_.wqe_count - 1);
    posted_ = 0;
    counter_ = published_ = 0;
    __atomic_store_n(reinterpret_cast<std::uint32_t*>(ring_.dbrec), 0U, __ATOMIC_RELEASE);
    // Read by whoever connects to a queue pair of ours next, which happens after this.
    if (ring_.restarts != nullptr) __atomic_fetch_add(ring_.restarts, 1, __ATOMIC_RELEASE);
  }
  void link(std::uint32_t index, std::uint16_t next) noexcept {
    entries_[index].next = next;
    reinterpret_cast<mlx5_wqe_srq_next_seg*>(wqe(index))->next_wqe_index = htobe16(next);
  }
  void write(std::uint32_t index, std::byte* buffer) noexcept {
    entries_[index].buffer = buffer;
    auto* data = reinterpret_cast<mlx5_wqe_data_seg*>(wqe(index) + sizeof(mlx5_wqe_srq_next_seg));
    data->byte_count = htobe32(bytes_);
    data->lkey = htobe32(lkey_);
    data->addr = htobe64(reinterpret_cast<std::uintptr_t>(buffer));
  }

  SrqRing ring_;
  pools::StateArray<Entry> entries_;
  std::uint16_t head_ = 0;     // the next to be posted
  std::uint16_t tail_ = 0;     // the last of the list
  std::uint16_t counter_ = 0;  // posted ever, free running, as the device counts
  std::uint16_t published_ = 0;
  std::uint32_t posted_ = 0;
  std::uint32_t bytes_ = 0;
  std::uint32_t lkey_ = 0;
};

}  // namespace rodeo::dv::mlx5
