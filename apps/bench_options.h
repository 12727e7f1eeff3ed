// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo bench`: what it can be told.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/mixes.h"
#include "engine/registration.h"
#include "pools/result.h"

namespace rodeo::apps {

struct BenchOptions {
  std::string address;
  std::vector<unsigned> cores;
  std::uint32_t connections = 1;
  std::uint32_t window = 64;  // calls outstanding, all connections together
  std::string proc = "null";
  std::string mix_text;  // instead of proc when not empty
  std::string nfs_export = "/data";
  std::uint32_t size_bytes = 4096;
  std::uint32_t delay_us = 100;
  double seconds = 3;
  std::uint64_t count = 0;  // instead of seconds when not 0
  double warmup_seconds = 0.5;
  double stall_seconds = 5;
  bool no_verify = false;
  bool json = false;
  std::uint32_t inline_send_bytes = 4096;
  std::uint32_t inline_receive_bytes = 4096;
  std::uint32_t credits = 0;  // per connection; 0: its share of the window
  bool shared_receives = false;
  bool no_hugepages = false;
  Registration registration = Registration::kAuto;

  Mix mix;  // filled by finish_bench_options()
};

/// Adds the subcommand's options. They are complete after finish_bench_options().
void add_bench_options(CLI::App& app, BenchOptions& options);

/// What only holds between options, and the defaults that depend on the machine.
[[nodiscard]] Result<void> finish_bench_options(BenchOptions& options);

/// Calls that one connection may have outstanding.
[[nodiscard]] std::uint32_t window_per_connection(const BenchOptions& options);

}  // namespace rodeo::apps
