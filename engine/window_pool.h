// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// The type-2 memory windows of one connection. Each segment of a Call gets one: bound before the Send that names it,
// invalidated when the Call ends, by the peer's Reply or by us. A window goes to the back of the queue then and gets
// another tag with its next binding, so that a key of a Call that is over opens nothing (RFC 8166 §8.1).

#include <cstdint>
#include <span>
#include <vector>

#include "dv/provider.h"

namespace rodeo {

/// The windows of one Call. Trivially copyable; the pool has the rest.
struct WindowList {
  static constexpr std::uint16_t kNone = 0xffff;
  std::uint16_t first = kNone;
  std::uint16_t bound = 0;  // of them, those that neither end has begun to invalidate

  [[nodiscard]] bool empty() const noexcept { return first == kNone; }
};

class WindowPool {
 public:
  static constexpr std::size_t kMost = WindowList::kNone;

  explicit WindowPool(std::uint32_t seed) noexcept : random_(seed | 1U) {}

  /// A window that is free, by its key. Before the connection is used.
  void add(std::uint32_t key) {
    windows_.push_back({key, WindowList::kNone, false});
    append(static_cast<std::uint16_t>(windows_.size() - 1));
  }
  [[nodiscard]] std::size_t size() const noexcept { return windows_.size(); }
  [[nodiscard]] std::size_t free_count() const noexcept { return free_count_; }

  /// Posts the binding of a free window to `range`; returns its key. There must be a free one, and room in the queue.
  template <dv::QueuePair Q>
  [[nodiscard]] std::uint32_t bind(Q& qp, const dv::Sge& range, dv::WindowAccess access, WindowList& list) noexcept {
    const std::uint16_t index = first_free_;
    Window& window = windows_[index];
    first_free_ = window.next;
    --free_count_;
    const std::uint32_t old_key = window.key;
    window.key = (old_key & ~kTagMask) | ((old_key + 1 + next_random() % kTagMask) & kTagMask);
    window.bound = true;
    window.next = list.first;
    list.first = index;
    ++list.bound;
    (void)qp.post_bind(old_key, window.key, range, access, dv::kNoToken);
    return window.key;
  }

  /// The peer has invalidated `key`. False when that is no bound window of `list`.
  [[nodiscard]] bool invalidated_remotely(WindowList& list, std::uint32_t key) noexcept {
    for (std::uint16_t at = list.first; at != WindowList::kNone; at = windows_[at].next) {
      if (windows_[at].key != key || !windows_[at].bound) continue;
      windows_[at].bound = false;
      --list.bound;
      return true;
    }
    return false;
  }

  /// Posts the invalidation of what is still bound; the last one has `token`. False when the queue is full: what was
  /// posted is posted, call again.
  template <dv::QueuePair Q>
  [[nodiscard]] bool invalidate(Q& qp, WindowList& list, dv::Token token) noexcept {
    for (std::uint16_t at = list.first; list.bound != 0; at = windows_[at].next) {
      if (!windows_[at].bound) continue;
      if (!qp.post_invalidate(windows_[at].key, list.bound == 1 ? token : dv::kNoToken)) return false;
      windows_[at].bound = false;
      --list.bound;
    }
    return true;
  }

  /// All of them have been invalidated.
  void release(WindowList& list) noexcept {
    for (std::uint16_t at = list.first; at != WindowList::kNone;) {
      const std::uint16_t next = windows_[at].next;
      append(at);
      at = next;
    }
    list = {};
  }

 private:
  static constexpr std::uint32_t kTagMask = 0xff;  // what a binding may change of a key
  struct Window {
    std::uint32_t key;
    std::uint16_t next;
    bool bound;
  };

  void append(std::uint16_t index) noexcept {
    windows_[index].next = WindowList::kNone;
    (free_count_ == 0 ? first_free_ : windows_[last_free_].next) = index;
    last_free_ = index;
    ++free_count_;
  }
  [[nodiscard]] std::uint32_t next_random() noexcept {
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 17U;
    random_ ^= random_ << 5U;
    return random_;
  }

  std::vector<Window> windows_;
  std::size_t free_count_ = 0;
  std::uint16_t first_free_ = WindowList::kNone;
  std::uint16_t last_free_ = WindowList::kNone;
  std::uint32_t random_;
};

}  // namespace rodeo
