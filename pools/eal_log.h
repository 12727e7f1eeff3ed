// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where DPDK's own log goes: into memory, so that our users read our sentences and not its lines.
// Runs on: any.

#include <string>

namespace rodeo::pools {

/// From now on DPDK's log of this process is kept in memory, the latest lines only. Lines of a DPDK panic, which ends
/// the process, still go to standard error.
void capture_eal_log();

/// The last line captured that says more than that the start failed; empty before there is one.
[[nodiscard]] std::string last_eal_log_line();

}  // namespace rodeo::pools
