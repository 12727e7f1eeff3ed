// SPDX-License-Identifier: Apache-2.0
#include "apps/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <map>

#include "pools/topology.h"

namespace rodeo::apps {

const char* const kVersion = RODEO_VERSION;
namespace {

volatile std::sig_atomic_t stop_flag = 0;

std::optional<std::uint64_t> parse_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// 4096 as 4K, 5000 as it is.
std::string short_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kStep = 1024;
  std::string_view units = "KMG";
  if (bytes < kStep || bytes % kStep != 0) return std::to_string(bytes);
  while (units.size() > 1 && bytes / kStep >= kStep && bytes / kStep % kStep == 0) {
    bytes /= kStep;
    units.remove_prefix(1);
  }
  return std::to_string(bytes / kStep) + units.front();
}

}  // namespace

void complain(std::string_view program, std::string_view message) {
  std::string line = fmt::format("{}: {}", program, message);
  std::replace(line.begin(), line.end(), '\n', ' ');
  fmt::print(stderr, "{}\n", line);
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::Success& done) {  // --help and --version
    return app.exit(done);
  } catch (const CLI::ParseError& error) {
    std::string command = app.get_name();
    for (const CLI::App* used : app.get_subcommands()) command += " " + used->get_name();
    complain(command, fmt::format("{}; see {} --help", error.what(), command));
    return kExitUsage;
  }
}

CLI::Validator whole_number(std::uint64_t lowest, std::uint64_t highest) {
  return CLI::Validator(
      [lowest, highest](std::string& text) {
        const auto value = parse_number(text);
        if (value && *value >= lowest && *value <= highest) return std::string();
        return fmt::format("\"{}\" is not allowed; use a whole number from {} to {}", text, lowest, highest);
      },
      fmt::format("{}..{}", lowest, highest), "whole_number");
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  std::uint64_t unit = 1;
  if (!text.empty()) {
    const std::size_t at = kUnits.find(static_cast<char>(text.back() & ~0x20));
    if (at != std::string_view::npos && (text.back() & 0x40) != 0) {
      unit <<= 10 * (at + 1);
      text.remove_suffix(1);
    }
  }
  const auto value = parse_number(text);
  if (!value || *value > UINT64_MAX / unit) return std::nullopt;
  return *value * unit;
}

CLI::Validator byte_size(std::uint64_t lowest, std::uint64_t highest) {
  return CLI::Validator(
      [lowest, highest](std::string& text) {
        const auto value = parse_bytes(text);
        if (!value || *value < lowest || *value > highest) {
          return fmt::format("\"{}\" is not allowed; use bytes from {} to {} (K, M and G may follow the number)", text,
                             short_bytes(lowest), short_bytes(highest));
        }
        text = std::to_string(*value);
        return std::string();
      },
      "BYTES", "byte_size");
}

CLI::Validator inline_threshold() {
  return CLI::Validator(
      [](std::string& text) {
        const auto value = parse_bytes(text);
        if (!value || *value < 1024 || *value > 262'144 || *value % 1024 != 0) {
          return fmt::format("\"{}\" is not allowed; use a multiple of 1024 from 1K to 256K", text);
        }
        text = std::to_string(*value);
        return std::string();
      },
      "BYTES", "inline_threshold");
}

CLI::Validator positive_time(double highest) {
  return CLI::Validator(
      [highest](std::string& text) {
        double value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool number = error == std::errc{} && end == text.data() + text.size();
        if (number && value >= 0 && value <= highest) return std::string();
        return fmt::format("\"{}\" is not allowed; use a number from 0 to {}", text, highest);
      },
      "NUMBER", "positive_time");
}

CLI::Validator core_list() {
  return CLI::Validator(
      [](std::string& text) {
        const auto cores = pools::CoreSet::parse(text);
        return cores ? std::string() : cores.error().what + "; " + cores.error().next;
      },
      "CORES", "core_list");
}

CLI::Option* add_cores(CLI::App& app, const std::string& name, std::vector<unsigned>& target, const std::string& help) {
  return app
      .add_option_function<std::string>(
          name,
          [&target](const std::string& text) {
            if (const auto cores = pools::CoreSet::parse(text)) {
              target.assign(cores->cores().begin(), cores->cores().end());
            }
          },
          help)
      ->check(core_list())
      ->type_name("CORES");
}

CLI::Option* add_registration(CLI::App& app, Registration& target, const std::string& help) {
  static const std::map<std::string, Registration> kNames{{"auto", Registration::kAuto},
                                                          {"pool-key", Registration::kPoolKey},
                                                          {"key-per-call", Registration::kKeyPerCall},
                                                          {"remote-invalidation", Registration::kRemoteInvalidation}};
  return app
      .add_option_function<std::string>(
          "--registration", [&target](const std::string& name) { target = kNames.at(name); }, help)
      ->check(CLI::Validator(
          [](std::string& text) {
            if (kNames.contains(text)) return std::string();
            return "\"" + text + "\" is not allowed; use auto, pool-key, key-per-call or remote-invalidation";
          },
          "NAME", "registration"));
}

namespace {

Result<std::vector<unsigned>> allowed_cores() {
  auto topology = pools::Topology::load();
  if (!topology) return tl::unexpected(topology.error());
  const auto allowed = topology->allowed_cores();
  if (allowed.empty()) return fail("cores", "this process may not run on any core", "check its cpuset");
  return std::vector<unsigned>(allowed.begin(), allowed.end());
}

}  // namespace

Result<unsigned> lowest_allowed_core() {
  return allowed_cores().map([](const auto& cores) { return cores.front(); });
}

Result<unsigned> highest_allowed_core() {
  return allowed_cores().map([](const auto& cores) { return cores.back(); });
}

Result<void> check_cores(const std::vector<unsigned>& cores) {
  auto topology = pools::Topology::load();
  if (!topology) return tl::unexpected(topology.error());
  return topology->check_cores(cores);
}

std::string human_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string human_ns(double nanoseconds) {
  if (nanoseconds < 1e3) return fmt::format("{:.0f} ns", nanoseconds);
  if (nanoseconds < 1e6) return fmt::format("{:.2f} us", nanoseconds / 1e3);
  if (nanoseconds < 1e9) return fmt::format("{:.2f} ms", nanoseconds / 1e6);
  return fmt::format("{:.2f} s", nanoseconds / 1e9);
}

void remember_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = [](int) { stop_flag = 1; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one has its default effect
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool stop_signalled() noexcept { return stop_flag != 0; }

}  // namespace rodeo::apps
