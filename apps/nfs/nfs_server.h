// SPDX-License-Identifier: Apache-2.0
#pragma once

// Serves NFS version 3 (RFC 1813) over RPC-over-RDMA by the binding of RFC 8267: the data of READ and WRITE, the text
// of READLINK and SYMLINK may move by chunk, and nothing else does.
//
//   auto store = rodeo::nfs::make_memory_store(engine.application_memory());
//   auto server = rodeo::nfs::NfsServer::add_to(engine, {{"/data", store->get(), {}}}, config.bulk_bytes);
//
// Clients get their first handle by MOUNT (apps/nfs/mount_server.h), which RFC 8267 leaves on TCP. For clients of our
// own there is MOUNT's MNT on the same connection as well, of whole exports, and EXPORT, which lists those that
// everyone may mount. Calls of a peer that is no client of the export that a handle belongs to are answered
// NFS3ERR_ACCES.

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "apps/nfs/exports.h"
#include "engine/rodeo.h"

namespace rodeo::nfs {

inline constexpr std::uint32_t kMountProgram = 100'005;
inline constexpr std::uint32_t kMountVersion = 3;

class NfsService;  // what the procedures share

class NfsServer {
 public:
  /// Adds the program to an engine that has not started. The server and the stores outlive the engine. `bulk_bytes`:
  /// what Config says; it bounds the READs and WRITEs of stores without memory of their own, and directory lists.
  [[nodiscard]] static Result<std::unique_ptr<NfsServer>> add_to(Engine& engine, std::vector<Export> exports,
                                                                 std::size_t bulk_bytes);
  NfsServer(const NfsServer&) = delete;
  NfsServer& operator=(const NfsServer&) = delete;
  ~NfsServer();

  [[nodiscard]] const std::vector<Export>& exports() const noexcept;
  /// A store's handle as clients see it.
  [[nodiscard]] static FileHandle handle_on_wire(const Export& exported, const FileHandle& handle) noexcept;

 private:
  explicit NfsServer(std::unique_ptr<NfsService> service);
  std::unique_ptr<NfsService> service_;
};

}  // namespace rodeo::nfs
