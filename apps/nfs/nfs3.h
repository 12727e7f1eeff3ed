// SPDX-License-Identifier: Apache-2.0
#pragma once

// NFS version 3 on the wire (RFC 1813): numbers, the types that several procedures share, and their XDR, both ways.
// Types and enumerators carry the RFC's names. post_op_attr, pre_op_attr and post_op_fh3 are std::optional of what they
// may hold. Decoders leave errors to the reader: check its ok() once, at the end.
// Hot path. Runs on: any.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>

#include "engine/xdr_reader.h"
#include "engine/xdr_writer.h"

namespace rodeo::nfs {

inline constexpr std::uint32_t kNfsProgram = 100'003;
inline constexpr std::uint32_t kNfsVersion = 3;
inline constexpr std::uint16_t kNfsRdmaPort = 20'049;

inline constexpr std::size_t kMaxHandleBytes = 64;
inline constexpr std::size_t kVerfBytes = 8;
/// What we take of the unbounded filename3 and nfspath3; a longer name is NFS3ERR_NAMETOOLONG.
inline constexpr std::size_t kMaxNameBytes = 255;
inline constexpr std::size_t kMaxPathBytes = 4096;
/// The largest READ and WRITE served, and asked for.
inline constexpr std::uint32_t kMaxTransferBytes = 1U << 20U;

enum class NfsProc3 : std::uint32_t {
  kNull = 0,
  kGetattr = 1,
  kSetattr = 2,
  kLookup = 3,
  kAccess = 4,
  kReadlink = 5,
  kRead = 6,
  kWrite = 7,
  kCreate = 8,
  kMkdir = 9,
  kSymlink = 10,
  kMknod = 11,
  kRemove = 12,
  kRmdir = 13,
  kRename = 14,
  kLink = 15,
  kReaddir = 16,
  kReaddirplus = 17,
  kFsstat = 18,
  kFsinfo = 19,
  kPathconf = 20,
  kCommit = 21,
};

enum class NfsStat3 : std::uint32_t {
  kOk = 0,
  kPerm = 1,
  kNoent = 2,
  kIo = 5,
  kNxio = 6,
  kAcces = 13,
  kExist = 17,
  kXdev = 18,
  kNodev = 19,
  kNotdir = 20,
  kIsdir = 21,
  kInval = 22,
  kFbig = 27,
  kNospc = 28,
  kRofs = 30,
  kMlink = 31,
  kNametoolong = 63,
  kNotempty = 66,
  kDquot = 69,
  kStale = 70,
  kRemote = 71,
  kBadhandle = 10'001,
  kNotSync = 10'002,
  kBadCookie = 10'003,
  kNotsupp = 10'004,
  kToosmall = 10'005,
  kServerfault = 10'006,
  kBadtype = 10'007,
  kJukebox = 10'008,
};
/// "NFS3ERR_NOENT" and the like; "NFS3ERR_?" for a number that RFC 1813 does not have.
[[nodiscard]] std::string_view to_string(NfsStat3 status) noexcept;
/// The status that says best what a system call's errno said.
[[nodiscard]] NfsStat3 status_of_errno(int error) noexcept;

enum class Ftype3 : std::uint32_t { kReg = 1, kDir = 2, kBlk = 3, kChr = 4, kLnk = 5, kSock = 6, kFifo = 7 };
enum class StableHow : std::uint32_t { kUnstable = 0, kDataSync = 1, kFileSync = 2 };
enum class CreateMode3 : std::uint32_t { kUnchecked = 0, kGuarded = 1, kExclusive = 2 };
enum class TimeHow : std::uint32_t { kDontChange = 0, kSetToServerTime = 1, kSetToClientTime = 2 };

/// Bits of ACCESS (RFC 1813 §3.3.4).
inline constexpr std::uint32_t kAccessRead = 0x01;
inline constexpr std::uint32_t kAccessLookup = 0x02;
inline constexpr std::uint32_t kAccessModify = 0x04;
inline constexpr std::uint32_t kAccessExtend = 0x08;
inline constexpr std::uint32_t kAccessDelete = 0x10;
inline constexpr std::uint32_t kAccessExecute = 0x20;
/// Bits of FSINFO's properties (RFC 1813 §3.3.19).
inline constexpr std::uint32_t kFsfLink = 0x01;
inline constexpr std::uint32_t kFsfSymlink = 0x02;
inline constexpr std::uint32_t kFsfHomogeneous = 0x08;
inline constexpr std::uint32_t kFsfCansettime = 0x10;

using Verf3 = std::array<std::byte, kVerfBytes>;  // cookieverf3, createverf3, writeverf3

/// nfs_fh3. Octets beyond `size` mean nothing.
struct FileHandle {
  std::uint32_t size = 0;
  std::array<std::byte, kMaxHandleBytes> octets;

  FileHandle() noexcept {}  // not defaulted: value-initialisation must not clear the octets
  /// Precondition: at most kMaxHandleBytes.
  explicit FileHandle(std::span<const std::byte> from) noexcept : size(static_cast<std::uint32_t>(from.size())) {
    if (!from.empty()) std::memcpy(octets.data(), from.data(), from.size());
  }
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {octets.data(), size}; }
  friend bool operator==(const FileHandle& a, const FileHandle& b) noexcept {
    return a.size == b.size && std::memcmp(a.octets.data(), b.octets.data(), a.size) == 0;
  }
};

struct NfsTime3 {
  std::uint32_t seconds = 0;
  std::uint32_t nseconds = 0;
  bool operator==(const NfsTime3&) const = default;
};

struct Specdata3 {
  std::uint32_t specdata1 = 0;  // major
  std::uint32_t specdata2 = 0;  // minor
  bool operator==(const Specdata3&) const = default;
};

struct Fattr3 {
  Ftype3 type = Ftype3::kReg;
  std::uint32_t mode = 0;  // the low twelve bits of st_mode
  std::uint32_t nlink = 0;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint64_t size = 0;
  std::uint64_t used = 0;  // octets of storage
  Specdata3 rdev;
  std::uint64_t fsid = 0;
  std::uint64_t fileid = 0;
  NfsTime3 atime;
  NfsTime3 mtime;
  NfsTime3 ctime;
  bool operator==(const Fattr3&) const = default;
};
inline constexpr std::size_t kFattr3Bytes = 84;

struct WccAttr {
  std::uint64_t size = 0;
  NfsTime3 mtime;
  NfsTime3 ctime;
  bool operator==(const WccAttr&) const = default;
};
[[nodiscard]] inline WccAttr wcc_attr_of(const Fattr3& attributes) noexcept {
  return {attributes.size, attributes.mtime, attributes.ctime};
}

struct WccData {
  std::optional<WccAttr> before;
  std::optional<Fattr3> after;
  bool operator==(const WccData&) const = default;
};

struct SetTime {
  TimeHow how = TimeHow::kDontChange;
  NfsTime3 time;  // kSetToClientTime only
  bool operator==(const SetTime&) const = default;
};

struct Sattr3 {
  std::optional<std::uint32_t> mode;
  std::optional<std::uint32_t> uid;
  std::optional<std::uint32_t> gid;
  std::optional<std::uint64_t> size;
  SetTime atime;
  SetTime mtime;
  bool operator==(const Sattr3&) const = default;
};

/// diropargs3. Views into the message.
struct DirOpArgs3 {
  std::span<const std::byte> dir;
  std::string_view name;
};

/// An entry of READDIR's list, or of READDIRPLUS's with the last two. As decoded, `name` is a view into the message.
struct Entry3 {
  std::uint64_t fileid = 0;
  std::string_view name;
  std::uint64_t cookie = 0;
  std::optional<Fattr3> name_attributes;
  std::optional<FileHandle> name_handle;
};

void encode(XdrWriter& out, const NfsTime3& time) noexcept;
void encode(XdrWriter& out, const Specdata3& data) noexcept;
void encode(XdrWriter& out, const Fattr3& attributes) noexcept;
void encode(XdrWriter& out, const WccAttr& attributes) noexcept;
void encode(XdrWriter& out, const WccData& wcc) noexcept;
void encode(XdrWriter& out, const Sattr3& attributes) noexcept;
void encode(XdrWriter& out, const Verf3& verifier) noexcept;
inline void encode(XdrWriter& out, const FileHandle& handle) noexcept { out.opaque(handle.bytes()); }
void encode(XdrWriter& out, const DirOpArgs3& what) noexcept;
/// One element of the list with the TRUE before it; end the list with boolean(false).
void encode_entry(XdrWriter& out, const Entry3& entry, bool plus) noexcept;
/// post_op_attr, pre_op_attr, post_op_fh3: TRUE and the value, or FALSE.
template <class T>
void encode(XdrWriter& out, const std::optional<T>& value) noexcept {
  out.boolean(value.has_value());
  if (value) encode(out, *value);
}

void decode(XdrReader& in, NfsTime3& time) noexcept;
void decode(XdrReader& in, Specdata3& data) noexcept;
void decode(XdrReader& in, Fattr3& attributes) noexcept;
void decode(XdrReader& in, WccAttr& attributes) noexcept;
void decode(XdrReader& in, WccData& wcc) noexcept;
void decode(XdrReader& in, Sattr3& attributes) noexcept;
void decode(XdrReader& in, Verf3& verifier) noexcept;
void decode(XdrReader& in, FileHandle& handle) noexcept;
void decode(XdrReader& in, DirOpArgs3& what) noexcept;
/// False at the end of the list, and on error.
[[nodiscard]] bool decode_entry(XdrReader& in, Entry3& entry, bool plus) noexcept;
template <class T>
void decode(XdrReader& in, std::optional<T>& value) noexcept {
  value.reset();
  if (in.boolean()) decode(in, value.emplace());
}
/// Octets of a handle, as a view into the message.
[[nodiscard]] inline std::span<const std::byte> decode_handle(XdrReader& in) noexcept {
  return in.opaque(kMaxHandleBytes);
}

}  // namespace rodeo::nfs
