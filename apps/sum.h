// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo sum`: streams files to the engine by Read chunks and prints their SHA-256 as sha256sum would.

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rodeo::apps {

struct SumOptions {
  std::string engine;
  std::vector<std::string> files;
  bool back = false;
  std::size_t block_bytes = std::size_t{1} << 20U;
  std::uint32_t blocks_in_flight = 8;
  bool no_hugepages = false;
};

void add_sum_options(CLI::App& app, SumOptions& options);
[[nodiscard]] int run_sum(const SumOptions& options);

/// sha256sum's line without its newline: a backslash in front, and escapes, when the name holds a backslash, a newline
/// or a carriage return.
[[nodiscard]] std::string sum_line(std::string_view hash_hex, std::string_view file_name);

}  // namespace rodeo::apps
