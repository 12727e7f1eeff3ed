// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo ping`: one call at a time, with times, as people expect of a ping.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

namespace rodeo::apps {

struct PingOptions {
  std::string address;
  std::uint64_t count = 0;  // 0: until interrupted
  std::uint32_t interval_ms = 1000;
  std::uint32_t size_bytes = 0;
  std::uint32_t timeout_ms = 1000;
  std::uint32_t program = 0;  // 0: the test program that rodeod serves
  std::uint32_t version = 1;
};

void add_ping_options(CLI::App& app, PingOptions& options);
[[nodiscard]] int run_ping(const PingOptions& options);

/// Round trips as ping sums them up.
class PingStatistics {
 public:
  void sent() noexcept { ++sent_; }
  void received(double ns) noexcept;
  [[nodiscard]] std::uint64_t received_count() const noexcept { return received_; }
  /// "4 calls, 3 replies, 25% loss" and, when there were replies, a second line with min/avg/max/mdev.
  [[nodiscard]] std::string text() const;

 private:
  std::uint64_t sent_ = 0;
  std::uint64_t received_ = 0;
  double min_ns_ = 0;
  double max_ns_ = 0;
  double sum_ns_ = 0;
  double sum_squares_ = 0;
};

}  // namespace rodeo::apps
