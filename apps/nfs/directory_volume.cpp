// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/directory_volume.h"

#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>

#include "pools/byte_order.h"
#include "pools/errno_text.h"

namespace rodeo::nfs {
namespace {

// A handle: the seal, then the body: the kernel's type of handle, then the kernel's handle.
constexpr std::size_t kSealBytes = 8;
constexpr std::size_t kTypeBytes = 4;
constexpr std::size_t kMaxKernelBytes = kMaxStoreHandleBytes - kSealBytes - kTypeBytes;

/// What name_to_handle_at and open_by_handle_at take.
union KernelHandle {
  KernelHandle() noexcept : head{} {}
  file_handle head;
  std::byte space[sizeof(file_handle) + MAX_HANDLE_SZ];
  [[nodiscard]] std::byte* octets() noexcept { return space + offsetof(file_handle, f_handle); }
};

NfsTime3 time_of(const statx_timestamp& from) noexcept {
  return {static_cast<std::uint32_t>(from.tv_sec), from.tv_nsec};
}

Ftype3 type_of(std::uint32_t mode) noexcept {
  switch (mode & S_IFMT) {
    case S_IFDIR:
      return Ftype3::kDir;
    case S_IFLNK:
      return Ftype3::kLnk;
    case S_IFBLK:
      return Ftype3::kBlk;
    case S_IFCHR:
      return Ftype3::kChr;
    case S_IFIFO:
      return Ftype3::kFifo;
    case S_IFSOCK:
      return Ftype3::kSock;
    default:
      return Ftype3::kReg;
  }
}

std::string host_identity() {
  std::string text;
  for (const char* name : {"/etc/machine-id", "/proc/sys/kernel/random/boot_id"}) {
    if (std::ifstream file(name); file >> text) break;
  }
  return text;
}

}  // namespace

Fattr3 fattr_of(const struct statx& from) noexcept {
  Fattr3 made;
  made.type = type_of(from.stx_mode);
  made.mode = from.stx_mode & 07777U;
  made.nlink = from.stx_nlink;
  made.uid = from.stx_uid;
  made.gid = from.stx_gid;
  made.size = from.stx_size;
  made.used = from.stx_blocks * 512;
  made.rdev = {from.stx_rdev_major, from.stx_rdev_minor};
  made.fsid = makedev(from.stx_dev_major, from.stx_dev_minor);
  made.fileid = from.stx_ino;
  made.atime = time_of(from.stx_atime);
  made.mtime = time_of(from.stx_mtime);
  made.ctime = time_of(from.stx_ctime);
  return made;
}

Result<DirectoryVolume> DirectoryVolume::open(const std::string& path) {
  const std::string where = "export " + path;
  DirectoryVolume volume;
  volume.switches_users_ = ::geteuid() == 0;
  volume.root_ = Descriptor(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!volume.root_) return fail(where, errno_text(), "name a directory that this user may read");
  const std::string host = host_identity();
  const auto octets = std::as_bytes(std::span(host));
  volume.key_ = {sip_hash({1, 0}, octets), sip_hash({2, 0}, octets)};
  std::random_device random;
  store_be64(volume.verifier_.data(), (std::uint64_t{random()} << 32U) | random());
  if (!volume.make_handle(volume.root_.get(), volume.root_handle_)) {
    return fail(where, "its file system has no file handles: " + errno_text(),
                "export one of ext4, xfs, btrfs or tmpfs");
  }
  // The directory is in the key, too, so that a handle of one export is none of another's.
  volume.key_[1] ^= volume.seal(volume.root_handle_.bytes().subspan(kSealBytes));
  if (!volume.make_handle(volume.root_.get(), volume.root_handle_)) return fail(where, errno_text());
  NfsStat3 status{};
  if (!volume.find(volume.root_handle_.bytes(), status)) {
    return fail(where, "this user may not open files by handle: " + errno_text(),
                "run it as root, or give it CAP_DAC_READ_SEARCH");
  }
  return volume;
}

bool DirectoryVolume::make_handle(int object, FileHandle& handle) const noexcept {
  KernelHandle made;
  made.head.handle_bytes = MAX_HANDLE_SZ;
  int mount = 0;
  if (::name_to_handle_at(object, "", &made.head, &mount, AT_EMPTY_PATH) != 0) return false;
  if (made.head.handle_bytes > kMaxKernelBytes) {
    errno = EOVERFLOW;
    return false;
  }
  handle.size = static_cast<std::uint32_t>(kSealBytes + kTypeBytes + made.head.handle_bytes);
  std::byte* const body = handle.octets.data() + kSealBytes;
  std::memcpy(body, &made.head.handle_type, kTypeBytes);
  std::memcpy(body + kTypeBytes, made.octets(), made.head.handle_bytes);
  store_be64(handle.octets.data(), seal(handle.bytes().subspan(kSealBytes)));
  return true;
}

Descriptor DirectoryVolume::find(HandleView handle, NfsStat3& status) const noexcept {
  if (handle.size() <= kSealBytes + kTypeBytes || handle.size() > kMaxStoreHandleBytes ||
      load_be64(handle.data()) != seal(handle.subspan(kSealBytes))) {
    status = NfsStat3::kBadhandle;
    return {};
  }
  KernelHandle wanted;
  const auto body = handle.subspan(kSealBytes);
  std::memcpy(&wanted.head.handle_type, body.data(), kTypeBytes);
  wanted.head.handle_bytes = static_cast<unsigned>(body.size() - kTypeBytes);
  std::memcpy(wanted.octets(), body.data() + kTypeBytes, body.size() - kTypeBytes);
  Descriptor found(::open_by_handle_at(root_.get(), &wanted.head, O_PATH | O_NOFOLLOW | O_CLOEXEC));
  if (found) {
    // An object without a name lives on while somebody has it open.
    Fattr3 attributes;
    if (stat(found.get(), attributes) && attributes.nlink != 0) {
      status = NfsStat3::kOk;
      return found;
    }
    errno = ESTALE;
  }
  status = errno == ENOMEM || errno == EMFILE || errno == ENFILE ? NfsStat3::kJukebox : NfsStat3::kStale;
  return {};
}

bool DirectoryVolume::is_root(HandleView handle) const noexcept {
  const auto own = root_handle_.bytes();
  return std::equal(handle.begin(), handle.end(), own.begin(), own.end());
}

Descriptor DirectoryVolume::find_in(int directory, const char* name) noexcept {
  open_how how{};
  how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS;
  Descriptor found(static_cast<int>(::syscall(SYS_openat2, directory, name, &how, sizeof how)));
  if (!found && errno == EXDEV) errno = EACCES;  // a mount point, and other file systems are not exported
  return found;
}

Descriptor DirectoryVolume::reopen(int object, int flags) noexcept {
  return Descriptor(::open(Path(object).c_str(), flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
}

bool DirectoryVolume::stat(int object, Fattr3& attributes) noexcept {
  struct statx found {};
  if (::statx(object, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &found) != 0) return false;
  attributes = fattr_of(found);
  return true;
}

DirectoryVolume::Path::Path(int object) noexcept {
  (void)std::snprintf(text_, sizeof text_, "/proc/self/fd/%d", object);
}

}  // namespace rodeo::nfs
