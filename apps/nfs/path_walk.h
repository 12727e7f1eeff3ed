// SPDX-License-Identifier: Apache-2.0
#pragma once

// From the path that a client mounts to a handle: the export that it is or lies beneath, and then name by name.

#include <string_view>
#include <vector>

#include "apps/nfs/exports.h"

namespace rodeo::nfs {

struct WalkedPath {
  NfsStat3 status = NfsStat3::kNoent;
  const Export* exported = nullptr;
  FileHandle object;  // the store's
};

/// Asks the store as root and waits for it. NFS3ERR_ACCES where the client's address is not admitted. Runs on: one
/// thread that is no poll core's.
[[nodiscard]] WalkedPath walk_path(const std::vector<Export>& exports, std::string_view path, const Peer& client);

}  // namespace rodeo::nfs
