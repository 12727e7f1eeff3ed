// SPDX-License-Identifier: Apache-2.0
#pragma once

// The file that `rodeo bench` reads and writes: found or made in an export of rodeod's, and filled with the pattern.
// Runs on: control thread.

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/mixes.h"
#include "apps/nfs/nfs3.h"
#include "engine/rodeo.h"

namespace rodeo::apps {

/// Octets of the file that the NFS calls of a mix touch; 0: it has none.
[[nodiscard]] std::uint64_t nfs_file_bytes(const Mix& mix) noexcept;

/// Over a connection of its own, which is closed again.
[[nodiscard]] Result<nfs::FileHandle> make_nfs_bench_file(std::string_view address, const std::string& export_path,
                                                          std::uint64_t bytes, bool hugepages);

}  // namespace rodeo::apps
