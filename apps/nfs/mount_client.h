// SPDX-License-Identifier: Apache-2.0
#pragma once

// Asks a server's MOUNT version 3 (RFC 1813 appendix I) over TCP for what it exports and for first handles, as clients
// of NFS over RDMA do (RFC 8267 §5.1). By libtirpc. Runs on: one thread; each call blocks, for at most the patience.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "apps/nfs/caller.h"
#include "apps/nfs/nfs_failure.h"

namespace rodeo::nfs {

class MountClient {
 public:
  /// `port` 0: what the host's rpcbind says, and 20048 where nobody answers there.
  [[nodiscard]] static NfsResult<std::unique_ptr<MountClient>> connect(const std::string& host, std::uint16_t port,
                                                                       const Caller& caller,
                                                                       std::chrono::seconds patience);
  MountClient() noexcept = default;
  MountClient(const MountClient&) = delete;
  MountClient& operator=(const MountClient&) = delete;
  virtual ~MountClient() = default;

  /// Paths.
  [[nodiscard]] virtual NfsResult<std::vector<std::string>> exports() = 0;
  /// Leaves nothing in the server's list of mounts.
  [[nodiscard]] virtual NfsResult<FileHandle> mount(const std::string& path) = 0;
};

}  // namespace rodeo::nfs
