// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
#include "apps/nfs/permissions.h"

namespace rodeo::nfs {
namespace {

constexpr std::uint32_t kAnyExecute = 0111;
constexpr std::uint32_t kGroupExecute = 0010;

/// setuid and setgid mean nothing any more once someone else than their giver had a hand in it. Without group execute
/// the setgid bit means mandatory locking, and stays.
std::uint32_t without_set_ids(std::uint32_t mode) noexcept {
  mode &= ~kModeSetuid;
  return (mode & kGroupExecute) != 0 ? mode & ~kModeSetgid : mode;
}

}  // namespace

std::uint32_t granted(const Fattr3& attributes, const Credentials& who) noexcept {
  const std::uint32_t mode = attributes.mode;
  if (who.is_root()) {
    const bool executable = attributes.type == Ftype3::kDir || (mode & kAnyExecute) != 0;
    return kMayRead | kMayWrite | (executable ? kMayExecute : 0U);
  }
  if (who.uid == attributes.uid) return (mode >> 6U) & 7U;
  return who.in_group(attributes.gid) ? (mode >> 3U) & 7U : mode & 7U;
}

std::uint32_t granted_access(const Fattr3& attributes, const Credentials& who, std::uint32_t asked) noexcept {
  const std::uint32_t bits = granted(attributes, who);
  std::uint32_t access = 0;
  if ((bits & kMayRead) != 0) access |= kAccessRead;
  if (attributes.type == Ftype3::kDir) {
    if ((bits & kMayExecute) != 0) access |= kAccessLookup;
    if ((bits & kMayWrite) != 0) access |= kAccessModify | kAccessExtend | kAccessDelete;
  } else {
    if ((bits & kMayExecute) != 0) access |= kAccessExecute;
    if ((bits & kMayWrite) != 0) access |= kAccessModify | kAccessExtend;
  }
  return access & asked;
}

NfsStat3 may_set(const Fattr3& attributes, const Credentials& who, const Sattr3& wanted) noexcept {
  const bool owner = is_owner(attributes, who);
  if (wanted.uid && *wanted.uid != attributes.uid && !who.is_root()) return NfsStat3::kPerm;
  if (wanted.uid && !owner) return NfsStat3::kPerm;
  if (wanted.gid && !(who.is_root() || (owner && (*wanted.gid == attributes.gid || who.in_group(*wanted.gid))))) {
    return NfsStat3::kPerm;
  }
  if (wanted.mode && !owner) return NfsStat3::kPerm;
  const auto sets_a_time = [&](TimeHow how) { return wanted.atime.how == how || wanted.mtime.how == how; };
  if (sets_a_time(TimeHow::kSetToClientTime) && !owner) return NfsStat3::kPerm;
  if (sets_a_time(TimeHow::kSetToServerTime) && !may_write(attributes, who)) return NfsStat3::kAcces;
  if (wanted.size && !may_write(attributes, who)) return NfsStat3::kAcces;
  return NfsStat3::kOk;
}

std::uint32_t mode_after(const Fattr3& attributes, const Credentials& who, const Sattr3& wanted) noexcept {
  const std::uint32_t gid = wanted.gid.value_or(attributes.gid);
  if (wanted.mode) {
    std::uint32_t mode = *wanted.mode & kModeAll;
    if (!who.is_root() && !who.in_group(gid) && attributes.type != Ftype3::kDir) mode &= ~kModeSetgid;
    return mode;
  }
  if (attributes.type == Ftype3::kDir) return attributes.mode;
  if (wanted.uid || wanted.gid) return without_set_ids(attributes.mode);
  return wanted.size ? mode_after_write(attributes, who) : attributes.mode;
}

std::uint32_t mode_after_write(const Fattr3& file, const Credentials& who) noexcept {
  return who.is_root() ? file.mode : without_set_ids(file.mode);
}

NewOwnership ownership_of_new(const Fattr3& directory, Ftype3 type, const Sattr3& wanted, std::uint32_t default_mode,
                              const Credentials& who) noexcept {
  NewOwnership out;
  const bool inherits = (directory.mode & kModeSetgid) != 0;
  out.uid = who.is_root() ? wanted.uid.value_or(who.uid) : who.uid;
  out.gid = inherits ? directory.gid : who.gid;
  if (wanted.gid && (who.is_root() || (who.in_group(*wanted.gid) && !inherits))) out.gid = *wanted.gid;
  out.mode = wanted.mode.value_or(default_mode) & kModeAll;
  if (type == Ftype3::kDir) {
    if (inherits) out.mode |= kModeSetgid;
  } else if (!who.is_root() && !who.in_group(out.gid)) {
    out.mode &= ~kModeSetgid;
  }
  return out;
}

}  // namespace rodeo::nfs
