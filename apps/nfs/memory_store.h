// SPDX-License-Identifier: Apache-2.0
#pragma once

// A store that keeps everything in memory, and file contents in registered memory: READ leaves by RDMA Write straight
// from a file's pages, and WRITE comes by RDMA Read straight into them. What it holds is gone when the process ends;
// handles of before are NFS3ERR_STALE.

#include <cstdint>
#include <memory>

#include "apps/nfs/store.h"
#include "pools/result.h"

namespace rodeo::nfs {

struct MemoryStoreOptions {
  /// Of the root directory.
  std::uint32_t mode = 01777;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  /// Objects at most. What is not file contents is ordinary memory, half a KiB or so each.
  std::uint32_t max_files = 1U << 20U;
};

/// Over `memory`, a piece of Engine::application_memory() that must outlive the store, at least kLeastMemoryStoreBytes.
inline constexpr std::size_t kLeastMemoryStoreBytes = std::size_t{1} << 20U;
[[nodiscard]] Result<std::unique_ptr<Store>> make_memory_store(RegisteredBytes memory,
                                                               const MemoryStoreOptions& options = {});

}  // namespace rodeo::nfs
