// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/directory_names.h"

#include <sys/statvfs.h>
#include <sys/sysmacros.h>

#include <cerrno>
#include <cstring>

#include "apps/nfs/act_as.h"
#include "apps/nfs/permissions.h"

namespace rodeo::nfs {
namespace {

constexpr std::uint32_t kFileMode = 0644;
constexpr std::uint32_t kDirectoryMode = 0755;
constexpr std::uint32_t kExclusiveMode = 0600;  // until the SETATTR that follows an exclusive create

NfsStat3 last_error() noexcept { return status_of_errno(errno); }
NfsStat3 outcome(bool good) noexcept { return good ? NfsStat3::kOk : last_error(); }

/// A name of RFC 1813 as the kernel wants it.
class Name {
 public:
  explicit Name(std::string_view text) noexcept {
    const std::size_t length = std::min(text.size(), sizeof text_ - 1);
    std::memcpy(text_, text.data(), length);
    text_[length] = '\0';
  }
  [[nodiscard]] const char* c_str() const noexcept { return text_; }

 private:
  char text_[kMaxPathBytes + 1];
};

/// The directory of an operation, whose attributes afterwards belong to every answer.
class Directory {
 public:
  Directory(const DirectoryVolume& volume, HandleView handle, WccData& wcc) noexcept
      : object_(volume.find(handle, status_)), wcc_(wcc) {
    Fattr3 attributes;
    if (object_ && DirectoryVolume::stat(object_.get(), attributes) && attributes.type != Ftype3::kDir) {
      status_ = NfsStat3::kNotdir;
    }
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  ~Directory() {
    Fattr3 attributes;
    if (object_ && DirectoryVolume::stat(object_.get(), attributes)) wcc_.after = attributes;
  }
  [[nodiscard]] NfsStat3 status() const noexcept { return status_; }
  [[nodiscard]] int get() const noexcept { return object_.get(); }
  /// What was done here is on the disk. As the process's own user.
  [[nodiscard]] NfsStat3 settle() const noexcept {
    const Descriptor open = DirectoryVolume::reopen(object_.get(), O_RDONLY | O_DIRECTORY);
    return outcome(open && (::fsync(open.get()) == 0 || errno == EINVAL));
  }

 private:
  NfsStat3 status_{};
  Descriptor object_;
  WccData& wcc_;
};

timespec time_of(const SetTime& wanted) noexcept {
  switch (wanted.how) {
    case TimeHow::kDontChange:
      return {0, UTIME_OMIT};
    case TimeHow::kSetToServerTime:
      return {0, UTIME_NOW};
    case TimeHow::kSetToClientTime:
      return {wanted.time.seconds, wanted.time.nseconds};
  }
  return {0, UTIME_OMIT};
}

/// All but the size, as the thread's present user. False: errno says why.
bool apply(int object, const Sattr3& wanted) noexcept {
  if (wanted.uid || wanted.gid) {
    if (::fchownat(object, "", wanted.uid.value_or(~0U), wanted.gid.value_or(~0U), AT_EMPTY_PATH) != 0) return false;
  }
  const DirectoryVolume::Path path(object);
  Fattr3 now;
  const bool is_link = DirectoryVolume::stat(object, now) && now.type == Ftype3::kLnk;
  // A symbolic link has no mode of its own.
  if (wanted.mode && !is_link && ::chmod(path.c_str(), *wanted.mode & kModeAll) != 0) return false;
  if (wanted.atime.how != TimeHow::kDontChange || wanted.mtime.how != TimeHow::kDontChange) {
    const timespec times[2] = {time_of(wanted.atime), time_of(wanted.mtime)};
    return ::utimensat(object, "", times, AT_EMPTY_PATH) == 0;
  }
  return true;
}

/// An owner may always change the size, whatever the mode, so this is checked here and done as the process's user.
NfsStat3 resize(int object, std::uint64_t size, const Credentials& who) noexcept {
  Fattr3 before;
  if (!DirectoryVolume::stat(object, before)) return last_error();
  if (before.type != Ftype3::kReg) return before.type == Ftype3::kDir ? NfsStat3::kIsdir : NfsStat3::kInval;
  if (!may_write(before, who)) return NfsStat3::kAcces;
  if (size > INT64_MAX) return NfsStat3::kFbig;
  const DirectoryVolume::Path path(object);
  if (const std::uint32_t mode = mode_after_write(before, who); mode != before.mode) {
    if (::chmod(path.c_str(), mode) != 0) return last_error();
  }
  return outcome(::truncate(path.c_str(), static_cast<off_t>(size)) == 0);
}

NfsStat3 settle_object(int object, const Fattr3& attributes) noexcept {
  if (attributes.type != Ftype3::kReg && attributes.type != Ftype3::kDir) return NfsStat3::kOk;
  const Descriptor open = DirectoryVolume::reopen(object, O_RDONLY);
  return outcome(open && (::fsync(open.get()) == 0 || errno == EINVAL));
}

/// RFC 1813 §3.3.8: an exclusive create keeps its verifier in the times.
Sattr3 verifier_times(const Verf3& verifier) noexcept {
  std::uint32_t words[2];
  std::memcpy(words, verifier.data(), sizeof words);
  Sattr3 made;
  made.atime = {TimeHow::kSetToClientTime, {words[0], 0}};
  made.mtime = {TimeHow::kSetToClientTime, {words[1], 0}};
  return made;
}

/// What is there already under the name of an UNCHECKED or EXCLUSIVE create.
NfsStat3 take_existing(int object, const Create& operation) noexcept {
  Fattr3 found;
  if (!DirectoryVolume::stat(object, found)) return last_error();
  if (found.type != Ftype3::kReg) return NfsStat3::kExist;
  if (operation.mode == CreateMode3::kExclusive) {
    const Sattr3 times = verifier_times(operation.verifier);
    const bool same =
        found.atime.seconds == times.atime.time.seconds && found.mtime.seconds == times.mtime.time.seconds;
    return same ? NfsStat3::kOk : NfsStat3::kExist;
  }
  return operation.new_attributes.size ? resize(object, *operation.new_attributes.size, operation.credentials)
                                       : NfsStat3::kOk;
}

/// As the thread's present user. False: errno says why.
bool make_object(int directory, const char* name, const Create& operation) noexcept {
  const std::uint32_t fallback = operation.type == Ftype3::kDir              ? kDirectoryMode
                                 : operation.mode == CreateMode3::kExclusive ? kExclusiveMode
                                                                             : kFileMode;
  const std::uint32_t mode = operation.new_attributes.mode.value_or(fallback) & kModeAll;
  const dev_t device = makedev(operation.rdev.specdata1, operation.rdev.specdata2);
  switch (operation.type) {
    case Ftype3::kReg: {
      const Descriptor made(::openat(directory, name, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, mode));
      return static_cast<bool>(made);
    }
    case Ftype3::kDir:
      return ::mkdirat(directory, name, mode) == 0;
    case Ftype3::kLnk:
      return ::symlinkat(Name(operation.target).c_str(), directory, name) == 0;
    case Ftype3::kBlk:
      return ::mknodat(directory, name, S_IFBLK | mode, device) == 0;
    case Ftype3::kChr:
      return ::mknodat(directory, name, S_IFCHR | mode, device) == 0;
    case Ftype3::kFifo:
      return ::mknodat(directory, name, S_IFIFO | mode, 0) == 0;
    case Ftype3::kSock:
      return ::mknodat(directory, name, S_IFSOCK | mode, 0) == 0;
  }
  errno = EINVAL;
  return false;
}

/// The attributes of a new object beyond what making it gave.
NfsStat3 dress(int object, const Create& operation) noexcept {
  if (operation.mode == CreateMode3::kExclusive) return outcome(apply(object, verifier_times(operation.verifier)));
  Sattr3 rest = operation.new_attributes;
  if (operation.type != Ftype3::kDir || (rest.mode.value_or(0) & (kModeSetuid | kModeSetgid)) == 0) rest.mode.reset();
  return outcome(apply(object, rest));
}

}  // namespace

NfsStat3 directory_getattr(const DirectoryVolume& volume, Getattr& operation) noexcept {
  NfsStat3 status{};
  const Descriptor object = volume.find(operation.object, status);
  if (!object) return status;
  return outcome(DirectoryVolume::stat(object.get(), operation.attributes));
}

NfsStat3 directory_setattr(const DirectoryVolume& volume, Setattr& operation) noexcept {
  NfsStat3 status{};
  const Descriptor object = volume.find(operation.object, status);
  if (!object) return status;
  Fattr3 attributes;
  if (!DirectoryVolume::stat(object.get(), attributes)) return last_error();
  operation.wcc.after = attributes;
  if (operation.guard && *operation.guard != attributes.ctime) return NfsStat3::kNotSync;
  const Sattr3& wanted = operation.new_attributes;
  status = may_set(attributes, operation.credentials, wanted);
  if (status == NfsStat3::kOk && wanted.size) status = resize(object.get(), *wanted.size, operation.credentials);
  if (status == NfsStat3::kOk) {
    ActAs user(operation.credentials, volume.switches_users());
    status = user.ok() ? outcome(apply(object.get(), wanted)) : NfsStat3::kServerfault;
  }
  if (status == NfsStat3::kOk) status = settle_object(object.get(), attributes);
  if (DirectoryVolume::stat(object.get(), attributes)) operation.wcc.after = attributes;
  return status;
}

NfsStat3 directory_lookup(const DirectoryVolume& volume, Lookup& operation) noexcept {
  WccData wcc;
  NfsStat3 status{};
  {
    const Directory directory(volume, operation.directory, wcc);
    status = directory.status();
    if (status == NfsStat3::kOk) {
      const bool stays = operation.name == ".." && volume.is_root(operation.directory);
      ActAs user(operation.credentials, volume.switches_users());
      const Descriptor object =
          user.ok() ? DirectoryVolume::find_in(directory.get(), stays ? "." : Name(operation.name).c_str())
                    : Descriptor();
      const int error = user.ok() ? errno : EIO;
      user.back();
      Fattr3 attributes;
      if (!object) {
        status = status_of_errno(error);
      } else if (!volume.make_handle(object.get(), operation.object)) {
        status = last_error();
      } else if (DirectoryVolume::stat(object.get(), attributes)) {
        operation.attributes = attributes;
      }
    }
  }
  operation.directory_attributes = wcc.after;
  return status;
}

NfsStat3 directory_readlink(const DirectoryVolume& volume, Readlink& operation) noexcept {
  NfsStat3 status{};
  const Descriptor object = volume.find(operation.object, status);
  if (!object) return status;
  Fattr3 attributes;
  if (!DirectoryVolume::stat(object.get(), attributes)) return last_error();
  operation.attributes = attributes;
  if (attributes.type != Ftype3::kLnk) return NfsStat3::kInval;
  const ssize_t length =
      ::readlinkat(object.get(), "", reinterpret_cast<char*>(operation.buffer.data()), operation.buffer.size());
  if (length < 0) return last_error();
  operation.length = static_cast<std::uint32_t>(length);
  return NfsStat3::kOk;
}

NfsStat3 directory_create(const DirectoryVolume& volume, Create& operation) noexcept {
  const Directory directory(volume, operation.directory, operation.directory_wcc);
  if (directory.status() != NfsStat3::kOk) return directory.status();
  const Name name(operation.name);
  Descriptor object;
  NfsStat3 status{};
  bool made = false;
  {
    const ActAs user(operation.credentials, volume.switches_users());
    if (!user.ok()) return NfsStat3::kServerfault;
    made = make_object(directory.get(), name.c_str(), operation);
    if (!made && (errno != EEXIST || operation.mode == CreateMode3::kGuarded)) return last_error();
    object = DirectoryVolume::find_in(directory.get(), name.c_str());
    if (!object) return last_error();
    if (made) {
      status = dress(object.get(), operation);
      if (status != NfsStat3::kOk) {
        (void)::unlinkat(directory.get(), name.c_str(), operation.type == Ftype3::kDir ? AT_REMOVEDIR : 0);
        return status;
      }
    }
  }
  if (!made) {
    status = take_existing(object.get(), operation);
  } else if (operation.new_attributes.size && operation.type == Ftype3::kReg) {
    status = resize(object.get(), *operation.new_attributes.size, operation.credentials);
  }
  Fattr3 attributes;
  if (status != NfsStat3::kOk || !DirectoryVolume::stat(object.get(), attributes)) return status;
  status = settle_object(object.get(), attributes);
  if (status == NfsStat3::kOk) status = directory.settle();
  if (status != NfsStat3::kOk) return status;
  operation.attributes = attributes;
  if (!volume.make_handle(object.get(), operation.object.emplace())) operation.object.reset();
  return NfsStat3::kOk;
}

NfsStat3 directory_remove(const DirectoryVolume& volume, Remove& operation) noexcept {
  const Directory directory(volume, operation.directory, operation.directory_wcc);
  if (directory.status() != NfsStat3::kOk) return directory.status();
  {
    const ActAs user(operation.credentials, volume.switches_users());
    if (!user.ok()) return NfsStat3::kServerfault;
    const int flags = operation.is_rmdir ? AT_REMOVEDIR : 0;
    if (::unlinkat(directory.get(), Name(operation.name).c_str(), flags) != 0) return last_error();
  }
  return directory.settle();
}

NfsStat3 directory_rename(const DirectoryVolume& volume, Rename& operation) noexcept {
  const Directory from(volume, operation.from_directory, operation.from_wcc);
  const Directory to(volume, operation.to_directory, operation.to_wcc);
  if (from.status() != NfsStat3::kOk) return from.status();
  if (to.status() != NfsStat3::kOk) return to.status();
  {
    const ActAs user(operation.credentials, volume.switches_users());
    if (!user.ok()) return NfsStat3::kServerfault;
    if (::renameat(from.get(), Name(operation.from_name).c_str(), to.get(), Name(operation.to_name).c_str()) != 0) {
      return last_error();
    }
  }
  const NfsStat3 status = to.settle();
  return status == NfsStat3::kOk ? from.settle() : status;
}

NfsStat3 directory_link(const DirectoryVolume& volume, Link& operation) noexcept {
  NfsStat3 status{};
  const Descriptor object = volume.find(operation.object, status);
  const Directory directory(volume, operation.directory, operation.directory_wcc);
  if (!object) return status;
  Fattr3 attributes;
  if (DirectoryVolume::stat(object.get(), attributes)) operation.attributes = attributes;
  if (directory.status() != NfsStat3::kOk) return directory.status();
  {
    const ActAs user(operation.credentials, volume.switches_users());
    if (!user.ok()) return NfsStat3::kServerfault;
    const DirectoryVolume::Path path(object.get());
    if (::linkat(AT_FDCWD, path.c_str(), directory.get(), Name(operation.name).c_str(), AT_SYMLINK_FOLLOW) != 0) {
      return last_error();
    }
  }
  if (DirectoryVolume::stat(object.get(), attributes)) operation.attributes = attributes;
  return directory.settle();
}

NfsStat3 directory_fsstat(const DirectoryVolume& volume, Fsstat& operation) noexcept {
  NfsStat3 status{};
  const Descriptor object = volume.find(operation.object, status);
  if (!object) return status;
  struct statvfs found {};
  if (::fstatvfs(object.get(), &found) != 0) return last_error();
  operation.total_bytes = found.f_blocks * found.f_frsize;
  operation.free_bytes = found.f_bfree * found.f_frsize;
  operation.available_bytes = operation.credentials.is_root() ? operation.free_bytes : found.f_bavail * found.f_frsize;
  operation.total_files = found.f_files;
  operation.free_files = found.f_ffree;
  operation.available_files = operation.credentials.is_root() ? found.f_ffree : found.f_favail;
  Fattr3 attributes;
  if (DirectoryVolume::stat(object.get(), attributes)) operation.attributes = attributes;
  return NfsStat3::kOk;
}

}  // namespace rodeo::nfs
