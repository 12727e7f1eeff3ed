// SPDX-License-Identifier: Apache-2.0
#pragma once

// What both programs do the same way with what people type: one line for wrong input, numbers and sizes with limits
// that the message names, core lists, and Ctrl-C.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "engine/rodeo.h"
#include "pools/core_set.h"

namespace rodeo::apps {

extern const char* const kVersion;
/// The largest payload that the programs take: what an engine's bulk buffers can be made to hold.
inline constexpr std::uint32_t kMaxPayloadBytes = 256U << 20U;
inline constexpr const char* kDefaultAddress = "soft:rodeo";

enum ExitStatus : int { kExitOk = 0, kExitFailure = 1, kExitUsage = 2 };

/// Prints "program: message" as one line on standard error.
void complain(std::string_view program, std::string_view message);

/// Parses. The exit status when there is nothing left to do: after --help, --version, or wrong input.
[[nodiscard]] std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

/// A whole number within limits.
[[nodiscard]] CLI::Validator whole_number(std::uint64_t lowest, std::uint64_t highest);
/// The same with K, M or G (powers of 1,024) allowed behind it; the option then receives plain bytes.
[[nodiscard]] CLI::Validator byte_size(std::uint64_t lowest, std::uint64_t highest);
/// RFC 8797 thresholds: 1K to 256K in steps of 1,024.
[[nodiscard]] CLI::Validator inline_threshold();
/// A decimal fraction of seconds and the like.
[[nodiscard]] CLI::Validator positive_time(double highest);
/// A mask or a list of cores.
[[nodiscard]] CLI::Validator core_list();

/// "64K" and "65536" alike; nothing when it is no size.
[[nodiscard]] std::optional<std::uint64_t> parse_bytes(std::string_view text);

/// Binds `target` to a core list option; the text has been checked by then.
CLI::Option* add_cores(CLI::App& app, const std::string& name, std::vector<unsigned>& target, const std::string& help);

/// Binds `target` to --registration, with its four names.
CLI::Option* add_registration(CLI::App& app, Registration& target, const std::string& help);

/// The lowest or the highest core that this process may use, as the default of --poll-cores and of --cores.
[[nodiscard]] Result<unsigned> lowest_allowed_core();
[[nodiscard]] Result<unsigned> highest_allowed_core();
/// Ok when every core exists and may be used.
[[nodiscard]] Result<void> check_cores(const std::vector<unsigned>& cores);

/// 4.0 KiB, 1.5 MiB.
[[nodiscard]] std::string human_bytes(double bytes);
/// 850 ns, 12.3 us, 4.56 ms, 1.20 s.
[[nodiscard]] std::string human_ns(double nanoseconds);

/// From here on the first SIGINT or SIGTERM is remembered and the second ends the process.
void remember_stop_signals();
[[nodiscard]] bool stop_signalled() noexcept;

}  // namespace rodeo::apps
