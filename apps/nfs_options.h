// SPDX-License-Identifier: Apache-2.0
#pragma once

// The options that the commands on files of a server share.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>

#include "apps/nfs/nfs_client.h"

namespace rodeo::apps {

struct NfsOptions {
  std::optional<std::uint32_t> uid{};
  std::optional<std::uint32_t> gid{};
  std::uint16_t mount_port = 0;
  Registration registration = Registration::kAuto;
  std::uint32_t inline_bytes = 4096;
  std::uint32_t timeout_s = 60;
};

void add_nfs_options(CLI::App& app, NfsOptions& options);

/// The caller is this process's user, without its further groups where uid or gid is another's. Interrupted by the stop
/// signals.
[[nodiscard]] nfs::NfsClientOptions nfs_client_options(const NfsOptions& options);

}  // namespace rodeo::apps
