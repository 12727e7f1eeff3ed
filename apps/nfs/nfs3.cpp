// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
#include "apps/nfs/nfs3.h"

#include <cerrno>

#include "pools/byte_order.h"

namespace rodeo::nfs {
namespace {

/// Longest filename3 and nfspath3 that we look at: a whole message. Names are judged by their users.
constexpr std::size_t kAnyLength = std::size_t{1} << 20U;

/// Words in a row, for what is encoded and decoded on nearly every call.
class WordWriter {
 public:
  explicit WordWriter(std::byte* at) noexcept : at_(at) {}
  void u32(std::uint32_t value) noexcept {
    store_be32(at_, value);
    at_ += 4;
  }
  void u64(std::uint64_t value) noexcept {
    store_be64(at_, value);
    at_ += 8;
  }
  void time(const NfsTime3& time) noexcept {
    u32(time.seconds);
    u32(time.nseconds);
  }

 private:
  std::byte* at_;
};

void encode(XdrWriter& out, std::uint32_t value) noexcept { out.u32(value); }
void encode(XdrWriter& out, std::uint64_t value) noexcept { out.u64(value); }
void decode(XdrReader& in, std::uint32_t& value) noexcept { value = in.u32(); }
void decode(XdrReader& in, std::uint64_t& value) noexcept { value = in.u64(); }

template <class T>
void encode_number(XdrWriter& out, const std::optional<T>& value) noexcept {
  out.boolean(value.has_value());
  if (value) encode(out, *value);
}
template <class T>
void decode_number(XdrReader& in, std::optional<T>& value) noexcept {
  value.reset();
  if (in.boolean()) decode(in, value.emplace());
}

void encode(XdrWriter& out, const SetTime& set) noexcept {
  out.enumeration(set.how);
  if (set.how == TimeHow::kSetToClientTime) encode(out, set.time);
}
void decode(XdrReader& in, SetTime& set) noexcept {
  set.how = in.enumeration(TimeHow::kSetToClientTime);
  if (set.how == TimeHow::kSetToClientTime) decode(in, set.time);
}

}  // namespace

std::string_view to_string(NfsStat3 status) noexcept {
  switch (status) {
    case NfsStat3::kOk:
      return "NFS3_OK";
    case NfsStat3::kPerm:
      return "NFS3ERR_PERM";
    case NfsStat3::kNoent:
      return "NFS3ERR_NOENT";
    case NfsStat3::kIo:
      return "NFS3ERR_IO";
    case NfsStat3::kNxio:
      return "NFS3ERR_NXIO";
    case NfsStat3::kAcces:
      return "NFS3ERR_ACCES";
    case NfsStat3::kExist:
      return "NFS3ERR_EXIST";
    case NfsStat3::kXdev:
      return "NFS3ERR_XDEV";
    case NfsStat3::kNodev:
      return "NFS3ERR_NODEV";
    case NfsStat3::kNotdir:
      return "NFS3ERR_NOTDIR";
    case NfsStat3::kIsdir:
      return "NFS3ERR_ISDIR";
    case NfsStat3::kInval:
      return "NFS3ERR_INVAL";
    case NfsStat3::kFbig:
      return "NFS3ERR_FBIG";
    case NfsStat3::kNospc:
      return "NFS3ERR_NOSPC";
    case NfsStat3::kRofs:
      return "NFS3ERR_ROFS";
    case NfsStat3::kMlink:
      return "NFS3ERR_MLINK";
    case NfsStat3::kNametoolong:
      return "NFS3ERR_NAMETOOLONG";
    case NfsStat3::kNotempty:
      return "NFS3ERR_NOTEMPTY";
    case NfsStat3::kDquot:
      return "NFS3ERR_DQUOT";
    case NfsStat3::kStale:
      return "NFS3ERR_STALE";
    case NfsStat3::kRemote:
      return "NFS3ERR_REMOTE";
    case NfsStat3::kBadhandle:
      return "NFS3ERR_BADHANDLE";
    case NfsStat3::kNotSync:
      return "NFS3ERR_NOT_SYNC";
    case NfsStat3::kBadCookie:
      return "NFS3ERR_BAD_COOKIE";
    case NfsStat3::kNotsupp:
      return "NFS3ERR_NOTSUPP";
    case NfsStat3::kToosmall:
      return "NFS3ERR_TOOSMALL";
    case NfsStat3::kServerfault:
      return "NFS3ERR_SERVERFAULT";
    case NfsStat3::kBadtype:
      return "NFS3ERR_BADTYPE";
    case NfsStat3::kJukebox:
      return "NFS3ERR_JUKEBOX";
  }
  return "NFS3ERR_?";
}

NfsStat3 status_of_errno(int error) noexcept {
  switch (error) {
    case 0:
      return NfsStat3::kOk;
    case EPERM:
      return NfsStat3::kPerm;
    case ENOENT:
      return NfsStat3::kNoent;
    case ENXIO:
      return NfsStat3::kNxio;
    case EACCES:
      return NfsStat3::kAcces;
    case EEXIST:
      return NfsStat3::kExist;
    case EXDEV:
      return NfsStat3::kXdev;
    case ENODEV:
      return NfsStat3::kNodev;
    case ENOTDIR:
      return NfsStat3::kNotdir;
    case EISDIR:
      return NfsStat3::kIsdir;
    case EINVAL:
    case ELOOP:  // a symbolic link where a file of another type was meant
      return NfsStat3::kInval;
    case EFBIG:
    case EOVERFLOW:
      return NfsStat3::kFbig;
    case ENOSPC:
      return NfsStat3::kNospc;
    case EROFS:
      return NfsStat3::kRofs;
    case EMLINK:
      return NfsStat3::kMlink;
    case ENAMETOOLONG:
      return NfsStat3::kNametoolong;
    case ENOTEMPTY:
      return NfsStat3::kNotempty;
    case EDQUOT:
      return NfsStat3::kDquot;
    case ESTALE:
      return NfsStat3::kStale;
    case ENOSYS:
    case EOPNOTSUPP:
      return NfsStat3::kNotsupp;
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case EBUSY:
      return NfsStat3::kJukebox;  // it may work later
    default:
      return NfsStat3::kIo;
  }
}

void encode(XdrWriter& out, const NfsTime3& time) noexcept {
  out.u32(time.seconds);
  out.u32(time.nseconds);
}

void encode(XdrWriter& out, const Specdata3& data) noexcept {
  out.u32(data.specdata1);
  out.u32(data.specdata2);
}

void encode(XdrWriter& out, const Fattr3& attributes) noexcept {
  std::byte* at = out.reserve(kFattr3Bytes);
  if (at == nullptr) return;
  WordWriter words(at);
  words.u32(static_cast<std::uint32_t>(attributes.type));
  words.u32(attributes.mode);
  words.u32(attributes.nlink);
  words.u32(attributes.uid);
  words.u32(attributes.gid);
  words.u64(attributes.size);
  words.u64(attributes.used);
  words.u32(attributes.rdev.specdata1);
  words.u32(attributes.rdev.specdata2);
  words.u64(attributes.fsid);
  words.u64(attributes.fileid);
  words.time(attributes.atime);
  words.time(attributes.mtime);
  words.time(attributes.ctime);
}

void encode(XdrWriter& out, const WccAttr& attributes) noexcept {
  out.u64(attributes.size);
  encode(out, attributes.mtime);
  encode(out, attributes.ctime);
}

void encode(XdrWriter& out, const WccData& wcc) noexcept {
  encode(out, wcc.before);
  encode(out, wcc.after);
}

void encode(XdrWriter& out, const Sattr3& attributes) noexcept {
  encode_number(out, attributes.mode);
  encode_number(out, attributes.uid);
  encode_number(out, attributes.gid);
  encode_number(out, attributes.size);
  encode(out, attributes.atime);
  encode(out, attributes.mtime);
}

void encode(XdrWriter& out, const Verf3& verifier) noexcept { out.opaque_fixed(verifier); }

void encode(XdrWriter& out, const DirOpArgs3& what) noexcept {
  out.opaque(what.dir);
  out.string(what.name);
}

void encode_entry(XdrWriter& out, const Entry3& entry, bool plus) noexcept {
  out.boolean(true);
  out.u64(entry.fileid);
  out.string(entry.name);
  out.u64(entry.cookie);
  if (!plus) return;
  encode(out, entry.name_attributes);
  encode(out, entry.name_handle);
}

void decode(XdrReader& in, NfsTime3& time) noexcept {
  time.seconds = in.u32();
  time.nseconds = in.u32();
}

void decode(XdrReader& in, Specdata3& data) noexcept {
  data.specdata1 = in.u32();
  data.specdata2 = in.u32();
}

void decode(XdrReader& in, Fattr3& attributes) noexcept {
  attributes.type = in.enumeration(Ftype3::kFifo);
  if (attributes.type < Ftype3::kReg) in.fail();
  attributes.mode = in.u32();
  attributes.nlink = in.u32();
  attributes.uid = in.u32();
  attributes.gid = in.u32();
  attributes.size = in.u64();
  attributes.used = in.u64();
  decode(in, attributes.rdev);
  attributes.fsid = in.u64();
  attributes.fileid = in.u64();
  decode(in, attributes.atime);
  decode(in, attributes.mtime);
  decode(in, attributes.ctime);
}

void decode(XdrReader& in, WccAttr& attributes) noexcept {
  attributes.size = in.u64();
  decode(in, attributes.mtime);
  decode(in, attributes.ctime);
}

void decode(XdrReader& in, WccData& wcc) noexcept {
  decode(in, wcc.before);
  decode(in, wcc.after);
}

void decode(XdrReader& in, Sattr3& attributes) noexcept {
  decode_number(in, attributes.mode);
  decode_number(in, attributes.uid);
  decode_number(in, attributes.gid);
  decode_number(in, attributes.size);
  decode(in, attributes.atime);
  decode(in, attributes.mtime);
}

void decode(XdrReader& in, Verf3& verifier) noexcept { (void)in.read_into(verifier); }

void decode(XdrReader& in, FileHandle& handle) noexcept {
  const std::uint32_t size = in.u32();
  if (size > kMaxHandleBytes) {
    in.fail();
    return;
  }
  handle.size = size;
  (void)in.read_into({handle.octets.data(), size});
}

void decode(XdrReader& in, DirOpArgs3& what) noexcept {
  what.dir = decode_handle(in);
  what.name = in.string(kAnyLength);
}

bool decode_entry(XdrReader& in, Entry3& entry, bool plus) noexcept {
  if (!in.boolean()) return false;
  entry.fileid = in.u64();
  entry.name = in.string(kAnyLength);
  entry.cookie = in.u64();
  if (plus) {
    decode(in, entry.name_attributes);
    decode(in, entry.name_handle);
  }
  return in.ok();
}

}  // namespace rodeo::nfs
