// SPDX-License-Identifier: Apache-2.0
#pragma once

// How long to wait before the next attempt: twice as long each time, up to a limit, and drawn from the upper half of
// that, so that many who lost the same peer do not all come back at once.

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace rodeo {

class Backoff {
 public:
  using Milliseconds = std::chrono::milliseconds;

  /// `first` is at least 1 ms.
  Backoff(Milliseconds first, Milliseconds longest, std::uint32_t seed) noexcept
      : first_(first), longest_(longest), bound_(first), random_(seed | 1U) {}

  [[nodiscard]] Milliseconds next() noexcept {
    random_ ^= random_ << 13U;
    random_ ^= random_ >> 17U;
    random_ ^= random_ << 5U;
    const auto half = bound_.count() / 2;
    const Milliseconds delay(bound_.count() - half + static_cast<std::int64_t>(random_) % (half + 1));
    bound_ = std::min(2 * bound_, longest_);
    return delay;
  }
  /// After a success.
  void reset() noexcept { bound_ = first_; }

 private:
  Milliseconds first_;
  Milliseconds longest_;
  Milliseconds bound_;
  std::uint32_t random_;
};

}  // namespace rodeo
