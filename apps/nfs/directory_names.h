// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a directory store does with names and attributes, by system calls: each as the user who asks, so that the kernel
// checks permissions where nobody can get in between. What changes a directory or attributes is stable when it returns.
// Runs on: a store's own threads. May block.
//
// WccData::before is never given: programs of this host may change the directory, too, at any time.

#include "apps/nfs/directory_volume.h"

namespace rodeo::nfs {

[[nodiscard]] NfsStat3 directory_getattr(const DirectoryVolume& volume, Getattr& operation) noexcept;
[[nodiscard]] NfsStat3 directory_setattr(const DirectoryVolume& volume, Setattr& operation) noexcept;
[[nodiscard]] NfsStat3 directory_lookup(const DirectoryVolume& volume, Lookup& operation) noexcept;
[[nodiscard]] NfsStat3 directory_readlink(const DirectoryVolume& volume, Readlink& operation) noexcept;
[[nodiscard]] NfsStat3 directory_create(const DirectoryVolume& volume, Create& operation) noexcept;
[[nodiscard]] NfsStat3 directory_remove(const DirectoryVolume& volume, Remove& operation) noexcept;
[[nodiscard]] NfsStat3 directory_rename(const DirectoryVolume& volume, Rename& operation) noexcept;
[[nodiscard]] NfsStat3 directory_link(const DirectoryVolume& volume, Link& operation) noexcept;
[[nodiscard]] NfsStat3 directory_fsstat(const DirectoryVolume& volume, Fsstat& operation) noexcept;

}  // namespace rodeo::nfs
