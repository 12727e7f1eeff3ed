// SPDX-License-Identifier: Apache-2.0
#pragma once

// rodeod's command line.

#include <optional>
#include <string>
#include <vector>

#include "apps/export_options.h"
#include "engine/rodeo.h"

namespace rodeo::apps {

struct RodeodOptions {
  Config config;
  std::vector<std::string> listen;
  std::string log_level = "info";
  std::vector<ExportSpec> exports;
  std::uint16_t mount_port = 20'048;
  bool rpcbind = false;  // tell it of MOUNT and NFS
  bool devices = false;  // list them, and no more
};

/// The exit status when there is nothing left to do: after --help, --version, or wrong input.
[[nodiscard]] std::optional<int> parse_rodeod_options(int argc, const char* const* argv, RodeodOptions& options);

}  // namespace rodeo::apps
