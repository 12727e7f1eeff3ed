// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: worker core.
// A worker takes Calls from its ring, runs one stage of each handler, and sends them home in bursts.

#include <array>
#include <atomic>
#include <memory>

#include "engine/call_core.h"
#include "engine/loop_context.h"
#include "engine/memory.h"
#include "pools/relax.h"

namespace rodeo {

class Worker {
 public:
  Worker(Memory& memory, std::unique_ptr<WorkRing> ring) : memory_(memory), ring_(std::move(ring)) {}

  [[nodiscard]] WorkRing& ring() noexcept { return *ring_; }

  /// One turn; returns how many Calls it served.
  std::size_t step() noexcept {
    std::array<CallCore*, kBurst> calls;
    const std::size_t n = ring_->pop(std::span<CallCore*>(calls));
    std::size_t kept = 0;
    for (std::size_t i = 0; i < n; ++i) {
      CallCore* call = calls[i];
      ReturnRing* home = call->home;
      if (run_stage(*call)) continue;  // deferred: no longer ours to look at
      if (kept != 0 && home != homes_) send_home(calls, kept);
      homes_ = home;
      calls[kept++] = call;
    }
    if (kept != 0) send_home(calls, kept);
    return n;
  }

  /// Until `stop`.
  void run(const std::atomic<bool>& stop) noexcept {
    const OnCore on_core(memory_);
    while (!stop.load(std::memory_order_relaxed)) {
      if (step() == 0) pools::relax();
    }
    memory_.flush();
  }

 private:
  static constexpr std::size_t kBurst = 32;

  void send_home(std::array<CallCore*, kBurst>& calls, std::size_t& count) noexcept {
    for (std::size_t done = 0; done < count;) {
      // A loop's return ring holds every Call of the loop, so this takes all at once.
      done += homes_->push(std::span<CallCore* const>(calls.data() + done, count - done));
    }
    count = 0;
  }

  CoreMemory memory_;
  std::unique_ptr<WorkRing> ring_;
  ReturnRing* homes_ = nullptr;  // where the Calls kept so far go
};

}  // namespace rodeo
