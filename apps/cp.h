// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo cp`: copies files and trees to an NFS server, and from one.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "apps/nfs_options.h"

namespace rodeo::apps {

struct CpOptions {
  std::vector<std::string> paths{};  // sources, then the destination
  bool recursive = false;
  bool preserve = false;
  bool checksum = false;
  std::uint32_t block_bytes = nfs::kMaxTransferBytes;
  std::uint32_t window = 8;
  NfsOptions nfs{};
};

void add_cp_options(CLI::App& app, CpOptions& options);
[[nodiscard]] int run_cp(const CpOptions& options);

}  // namespace rodeo::apps
