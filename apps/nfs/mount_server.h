// SPDX-License-Identifier: Apache-2.0
#pragma once

// Serves MOUNT version 3 (RFC 1813 appendix I) over TCP and UDP, where clients of NFS over RDMA get their first handle
// (RFC 8267 §5.1). All by libtirpc, in a thread of its own. libtirpc keeps its servers in tables of the process, so
// there is one at a time.

#include <cstdint>
#include <memory>

#include "apps/nfs/nfs_server.h"
#include "pools/result.h"

namespace rodeo::nfs {

inline constexpr std::uint32_t kMountProgram = 100'005;
inline constexpr std::uint32_t kMountVersion = 3;

struct MountServerOptions {
  std::uint16_t port = 20'048;  // 0: any
};

class MountServer {
 public:
  /// Serves the exports of `server`, which outlives this.
  [[nodiscard]] static Result<std::unique_ptr<MountServer>> start(const NfsServer& server,
                                                                  const MountServerOptions& options);
  MountServer() noexcept = default;
  MountServer(const MountServer&) = delete;
  MountServer& operator=(const MountServer&) = delete;
  virtual ~MountServer() = default;  // stops it

  [[nodiscard]] virtual std::uint16_t port() const noexcept = 0;
};

}  // namespace rodeo::nfs
