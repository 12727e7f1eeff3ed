// SPDX-License-Identifier: Apache-2.0
#pragma once

// One line on a terminal that says how far a file is.

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#include "apps/command_line.h"

namespace rodeo::apps {

class ProgressBar {
 public:
  /// `total` octets; 0: nobody knows.
  ProgressBar(std::string_view name, std::uint64_t total) : name_(name), total_(total), started_(Clock::now()) {}
  ~ProgressBar() {
    if (drawn_) fmt::print(stderr, "\r\033[K");
  }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void draw(std::uint64_t done) {
    constexpr std::uint64_t kWidth = 30;
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    const std::string rate = human_bytes(static_cast<double>(done) / std::max(seconds, 1e-6)) + "/s";
    if (total_ == 0) {
      fmt::print(stderr, "\r\033[K{} {} {}", human_bytes(static_cast<double>(done)), rate, name_);
    } else {
      const std::uint64_t shown = std::min(done, total_);  // it may grow while we read it
      const auto filled = static_cast<std::size_t>(static_cast<double>(shown) / static_cast<double>(total_) * kWidth);
      fmt::print(stderr, "\r\033[K[{:<{}}] {:3.0f}% {} {}", std::string(filled, '#'), kWidth,
                 100.0 * static_cast<double>(shown) / static_cast<double>(total_), rate, name_);
    }
    std::fflush(stderr);
    drawn_ = true;
  }

 private:
  using Clock = std::chrono::steady_clock;
  std::string name_;
  std::uint64_t total_;
  Clock::time_point started_;
  bool drawn_ = false;
};

}  // namespace rodeo::apps
