// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who may do what to an object, by owner, group and mode, as RFC 1813 §4.4 wants it: a server does not know which files
// a client has open, so that an owner may always read and write, and whoever may execute a file may read it.
// Hot path. Runs on: any.

#include <cstdint>

#include "apps/nfs/store.h"

namespace rodeo::nfs {

inline constexpr std::uint32_t kModeSetuid = 04000;
inline constexpr std::uint32_t kModeSetgid = 02000;
inline constexpr std::uint32_t kModeSticky = 01000;
inline constexpr std::uint32_t kModeAll = 07777;

/// r, w and x as in a mode.
inline constexpr std::uint32_t kMayRead = 4;
inline constexpr std::uint32_t kMayWrite = 2;
inline constexpr std::uint32_t kMayExecute = 1;

/// The r, w and x that a mode grants, of the one class that the asker belongs to. Root has all, but for executing what
/// nobody may execute.
[[nodiscard]] std::uint32_t granted(const Fattr3& attributes, const Credentials& who) noexcept;

[[nodiscard]] inline bool is_owner(const Fattr3& attributes, const Credentials& who) noexcept {
  return who.is_root() || who.uid == attributes.uid;
}
/// Of a file's data.
[[nodiscard]] inline bool may_read(const Fattr3& file, const Credentials& who) noexcept {
  return is_owner(file, who) || (granted(file, who) & (kMayRead | kMayExecute)) != 0;
}
[[nodiscard]] inline bool may_write(const Fattr3& file, const Credentials& who) noexcept {
  return is_owner(file, who) || (granted(file, who) & kMayWrite) != 0;
}
/// Of a directory: its list, its names, and adding to it.
[[nodiscard]] inline bool may_list(const Fattr3& directory, const Credentials& who) noexcept {
  return (granted(directory, who) & kMayRead) != 0;
}
[[nodiscard]] inline bool may_search(const Fattr3& directory, const Credentials& who) noexcept {
  return (granted(directory, who) & kMayExecute) != 0;
}
[[nodiscard]] inline bool may_add(const Fattr3& directory, const Credentials& who) noexcept {
  return (granted(directory, who) & (kMayWrite | kMayExecute)) == (kMayWrite | kMayExecute);
}
/// Removing or renaming `entry`, which in a sticky directory takes the owner of either.
[[nodiscard]] inline bool may_take_away(const Fattr3& directory, const Fattr3& entry, const Credentials& who) noexcept {
  return may_add(directory, who) &&
         ((directory.mode & kModeSticky) == 0 || is_owner(directory, who) || is_owner(entry, who));
}

/// The answer to ACCESS: those of the bits asked for that are granted.
[[nodiscard]] std::uint32_t granted_access(const Fattr3& attributes, const Credentials& who,
                                           std::uint32_t asked) noexcept;

/// Whether SETATTR may do this to an object with these attributes: NFS3_OK, NFS3ERR_PERM or NFS3ERR_ACCES.
[[nodiscard]] NfsStat3 may_set(const Fattr3& attributes, const Credentials& who, const Sattr3& wanted) noexcept;
/// The mode afterwards. A new owner or group clears setuid and setgid, and a group that one is not in may not be lent.
[[nodiscard]] std::uint32_t mode_after(const Fattr3& attributes, const Credentials& who, const Sattr3& wanted) noexcept;
/// The mode after a WRITE or a change of size by `who`.
[[nodiscard]] std::uint32_t mode_after_write(const Fattr3& file, const Credentials& who) noexcept;

/// Owner, group and mode of a new object: the group of a setgid directory is inherited, and by directories the bit.
struct NewOwnership {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t mode = 0;
};
[[nodiscard]] NewOwnership ownership_of_new(const Fattr3& directory, Ftype3 type, const Sattr3& wanted,
                                            std::uint32_t default_mode, const Credentials& who) noexcept;

}  // namespace rodeo::nfs
