// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo stat`: all attributes that an NFS server gives of a file.

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "apps/nfs_options.h"

namespace rodeo::apps {

struct StatOptions {
  std::vector<std::string> locations{};
  bool follow = false;
  bool json = false;
  NfsOptions nfs{};
};

/// What there is to say of a file.
struct FileReport {
  std::string location{};
  nfs::Fattr3 attributes{};
  std::optional<std::string> target{};  // of a symbolic link
  std::string handle_hex{};
};

void add_stat_options(CLI::App& app, StatOptions& options);
[[nodiscard]] int run_stat(const StatOptions& options);

[[nodiscard]] std::string stat_text(const FileReport& report);
/// One object on a line of its own.
[[nodiscard]] std::string stat_json(const FileReport& report);

}  // namespace rodeo::apps
