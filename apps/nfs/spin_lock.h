// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// A lock for a few dozen instructions, between poll cores. With one poll core nobody ever waits for it.

#include <atomic>

namespace rodeo::nfs {

class SpinLock {
 public:
  void lock() noexcept {
    // acquire: pairs with the release in unlock
    while (held_.exchange(true, std::memory_order_acquire)) {
      while (held_.load(std::memory_order_relaxed)) {
      }
    }
  }
  void unlock() noexcept { held_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> held_{false};
};

}  // namespace rodeo::nfs
