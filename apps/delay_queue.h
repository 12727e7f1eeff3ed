// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: one poll core.
// Calls that one loop holds back until their time has come.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/call.h"

namespace rodeo::apps {

class DelayQueue {
 public:
  /// As many as the largest grant times a handful of connections; more are refused.
  static constexpr std::size_t kCapacity = 16'384;

  DelayQueue() { heap_.reserve(kCapacity); }

  [[nodiscard]] bool full() const noexcept { return heap_.size() == kCapacity; }
  [[nodiscard]] bool empty() const noexcept { return heap_.empty(); }

  /// Precondition: not full.
  void hold(DeferredCall call, std::uint64_t due_ticks) noexcept {
    heap_.push_back({due_ticks, call});  // within the reserve: never allocates
    std::push_heap(heap_.begin(), heap_.end(), kLater);
  }

  /// Answers what is due, at most a burst of it. Returns how many.
  std::size_t release(std::uint64_t now_ticks) noexcept {
    constexpr std::size_t kBurst = 64;
    std::size_t released = 0;
    while (released < kBurst && !heap_.empty() && heap_.front().due <= now_ticks) {
      std::pop_heap(heap_.begin(), heap_.end(), kLater);
      DeferredCall call = heap_.back().call;
      heap_.pop_back();
      call.reply();
      ++released;
    }
    return released;
  }

 private:
  struct Held {
    std::uint64_t due;
    DeferredCall call;
  };
  static constexpr auto kLater = [](const Held& a, const Held& b) { return a.due > b.due; };

  std::vector<Held> heap_;
};

}  // namespace rodeo::apps
