// SPDX-License-Identifier: Apache-2.0
#pragma once

// A store over a directory of a local file system: what is in it before, what others do there, and what stays when the
// process ends are files like any others. Handles stay good across restarts. WRITE is as stable as it is asked to be,
// and all else that changes something is on the disk when it is answered.
//
// As root each Call's user does what it asks, by the kernel's own rules. Another user with CAP_DAC_READ_SEARCH may
// export, too, but then everything is done as that user, whoever asks.

#include <memory>
#include <string>

#include "apps/nfs/store.h"
#include "pools/result.h"

namespace rodeo::nfs {

struct DirectoryStoreOptions {
  unsigned threads = 2;  // each with an io_uring of its own
  unsigned depth = 128;  // reads, writes and commits under way at once, of each thread
};

/// Mount points below `path` are not entered. Runs on: control thread.
[[nodiscard]] Result<std::unique_ptr<Store>> make_directory_store(const std::string& path,
                                                                  const DirectoryStoreOptions& options = {});

}  // namespace rodeo::nfs
