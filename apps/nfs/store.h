// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an NFS server exports: the interface that a storage backend implements.
//
// The server decodes a Call into one of the operations below and gives it to the store, on the poll core that received
// the Call. The store fills in the results and calls complete(status) once: at once, or later from any thread. Until
// then the operation, and whatever its members refer to, stays where it is and is the store's; afterwards it must not
// be touched. A store never blocks the poll core: what takes long is started, and completed when it is done.
//
// File handles are made by the store: opaque, up to kMaxStoreHandleBytes octets, and good as long as the object exists,
// across restarts too. One that names nothing any more is NFS3ERR_STALE, and one that the store cannot have made is
// NFS3ERR_BADHANDLE; both arrive from peers, so nothing in them is to be believed.
//
// Credentials are those of the Call after squashing. Permissions are the store's to check, since only it can do so
// without another getting in between; apps/nfs/permissions.h has the rules. A read-only export, the maxima of RFC 1813
// and names that are empty, too long or contain a slash never reach a store; "." and ".." do so in Lookup only.
//
// Bulk data lies in registered memory. There are two kinds of store:
//   * one with memory of its own (StoreTraits::own_memory, a piece of Engine::application_memory()) answers READ with
//     pieces of it, which leave by RDMA Write, and takes WRITE in pieces that prepare_write() offers, into which the
//     data comes by RDMA Read: nothing is copied. It learns from end() when the server is through with the pieces;
//   * every other store fills the buffer that READ brings, and finds the data of WRITE in one that the server filled.
//
// Results that are optional (std::optional) are sent when they are there. Give attributes whenever they cost nothing,
// also with an error: they save the client a GETATTR. WccData::before is only right when nothing can have come between.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "apps/nfs/nfs3.h"
#include "engine/buffer.h"
#include "engine/rpc_message.h"

namespace rodeo::nfs {

/// The server puts the export's name in front of a store's handles.
inline constexpr std::size_t kMaxStoreHandleBytes = kMaxHandleBytes - 4;

/// Octets of a file handle that came in a Call. Valid until complete().
using HandleView = std::span<const std::byte>;

/// Who asks, after squashing.
struct Credentials {
  std::uint32_t uid = 65'534;
  std::uint32_t gid = 65'534;
  std::uint32_t gid_count = 0;
  std::array<std::uint32_t, kMaxAuthSysGids> gids;  // the first gid_count

  Credentials() noexcept {}  // not defaulted: value-initialisation must not clear the array
  [[nodiscard]] bool is_root() const noexcept { return uid == 0; }
  [[nodiscard]] bool in_group(std::uint32_t group) const noexcept {
    if (group == gid) return true;
    for (std::uint32_t i = 0; i < gid_count; ++i) {
      if (gids[i] == group) return true;
    }
    return false;
  }
};

/// Registered memory in order, of one READ or WRITE: enough pieces for 1 MiB in pages of 16 KiB that start anywhere.
class Pieces {
 public:
  static constexpr std::size_t kMax = 68;

  Pieces() noexcept {}  // not defaulted: value-initialisation must not clear the array
  /// False, and nothing added, when there are kMax already. An empty piece is left out, and one that begins where the
  /// last one ends prolongs that.
  bool add(RegisteredBytes piece) noexcept {
    if (piece.empty()) return true;
    if (count_ != 0 && pieces_[count_ - 1].data() + pieces_[count_ - 1].size() == piece.data()) {
      pieces_[count_ - 1] = {pieces_[count_ - 1].data(), pieces_[count_ - 1].size() + piece.size()};
    } else if (count_ == kMax) {
      return false;
    } else {
      pieces_[count_++] = piece;
    }
    bytes_ += piece.size();
    return true;
  }
  void clear() noexcept { count_ = bytes_ = 0; }
  [[nodiscard]] std::span<const RegisteredBytes> all() const noexcept { return {pieces_.data(), count_}; }
  /// Octets of all of them.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::size_t count_ = 0;
  std::size_t bytes_ = 0;
  std::array<RegisteredBytes, kMax> pieces_;
};

/// What all operations have. Made by the server (or a test), never by a store.
class Operation {
 public:
  /// Called once, on the thread that calls complete().
  using Completion = void (*)(Operation& operation, NfsStat3 status) noexcept;

  Operation(Completion completion, void* context) noexcept : completion_(completion), context_(context) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  /// Ends the operation. The results that go with `status` are filled in. Runs on: any thread, once.
  void complete(NfsStat3 status) noexcept { completion_(*this, status); }
  /// The completion's.
  [[nodiscard]] void* context() const noexcept { return context_; }

  Credentials credentials;

 protected:
  ~Operation() = default;

 private:
  Completion completion_;
  void* context_;
};

// In each: what is asked first, then the results. The section is RFC 1813's.

/// Attributes of an object (§3.3.1). The server also asks for them to answer ACCESS, FSINFO and PATHCONF.
struct Getattr : Operation {
  using Operation::Operation;
  HandleView object;

  Fattr3 attributes;
};

/// §3.3.2. `guard`: NFS3ERR_NOT_SYNC unless this is the ctime.
struct Setattr : Operation {
  using Operation::Operation;
  HandleView object;
  Sattr3 new_attributes;
  std::optional<NfsTime3> guard;

  WccData wcc;  // with an error too
};

/// §3.3.3. "." is the directory, ".." its parent (of the root: the root).
struct Lookup : Operation {
  using Operation::Operation;
  HandleView directory;
  std::string_view name;

  FileHandle object;
  std::optional<Fattr3> attributes;
  std::optional<Fattr3> directory_attributes;  // with an error too
};

/// §3.3.5.
struct Readlink : Operation {
  using Operation::Operation;
  HandleView object;
  RegisteredBytes buffer;  // of kMaxPathBytes octets

  std::uint32_t length = 0;  // octets of the path, put into the buffer
  std::optional<Fattr3> attributes;
};

/// §3.3.6. At or beyond the end of the file: no data, eof, and success.
struct Read : Operation {
  using Operation::Operation;
  HandleView object;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
  RegisteredBytes buffer;  // of `count` octets; empty for a store with memory of its own

  Pieces data;  // of the buffer or of the store's memory; at most `count` octets
  bool eof = false;
  std::optional<Fattr3> attributes;            // with an error too
  std::array<std::uint64_t, 2> store_words{};  // the store's own, for end()
};

/// §3.3.7. A store that cannot write as stably as is asked writes more stably. `written` may be less than count.
struct Write : Operation {
  using Operation::Operation;
  HandleView object;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;
  StableHow stable = StableHow::kFileSync;
  Pieces data;  // filled with `count` octets when write() is called. From the server, or from prepare_write()

  std::uint32_t written = 0;
  StableHow committed = StableHow::kFileSync;
  Verf3 verifier{};
  WccData wcc;                                 // with an error too
  std::array<std::uint64_t, 2> store_words{};  // the store's own, from prepare_write() to end()
};

/// CREATE, MKDIR, SYMLINK and MKNOD (§3.3.8 to §3.3.11), told apart by `type`.
struct Create : Operation {
  using Operation::Operation;
  HandleView directory;
  std::string_view name;
  Ftype3 type = Ftype3::kReg;
  CreateMode3 mode = CreateMode3::kGuarded;  // other than kGuarded for kReg only
  Sattr3 new_attributes;                     // not with kExclusive
  Verf3 verifier{};                          // with kExclusive
  Specdata3 rdev;                            // kBlk, kChr
  std::string_view target;                   // kLnk: 1 to kMaxPathBytes octets

  std::optional<FileHandle> object;
  std::optional<Fattr3> attributes;
  WccData directory_wcc;  // with an error too
};

/// REMOVE (§3.3.12), or RMDIR (§3.3.13).
struct Remove : Operation {
  using Operation::Operation;
  HandleView directory;
  std::string_view name;
  bool is_rmdir = false;  // then only directories are removed, otherwise all but directories

  WccData directory_wcc;  // with an error too
};

/// §3.3.14. Both directories are of the same export.
struct Rename : Operation {
  using Operation::Operation;
  HandleView from_directory;
  std::string_view from_name;
  HandleView to_directory;
  std::string_view to_name;

  WccData from_wcc;  // both with an error too
  WccData to_wcc;
};

/// §3.3.15. Object and directory are of the same export.
struct Link : Operation {
  using Operation::Operation;
  HandleView object;
  HandleView directory;
  std::string_view name;

  std::optional<Fattr3> attributes;  // of the object; both with an error too
  WccData directory_wcc;
};

/// Takes the entries of one READDIR or READDIRPLUS.
class EntrySink {
 public:
  /// False when there is no room left: the entry was not taken, and belongs into the answer to a later call.
  /// Attributes and handle count with READDIRPLUS only. Runs on: one thread at a time.
  virtual bool add(const Entry3& entry) noexcept = 0;

 protected:
  ~EntrySink() = default;
};

/// READDIR and READDIRPLUS (§3.3.16, §3.3.17). Entries that come after the one whose cookie is given; 0: from the
/// start, with "." and ".." among them. Cookies are stable: an entry keeps its cookie while it exists, and a cookie
/// whose entry is gone still tells where to go on. 0 is nobody's.
struct Readdir : Operation {
  using Operation::Operation;
  HandleView directory;
  std::uint64_t cookie = 0;
  Verf3 asked_verifier{};  // NFS3ERR_BAD_COOKIE when the cookie is not 0 and belongs to another one than ours
  bool plus = false;       // attributes and handles are wanted
  EntrySink* entries = nullptr;

  bool eof = false;  // all entries were taken
  Verf3 verifier{};
  std::optional<Fattr3> attributes;  // of the directory. There when it succeeds
};

/// §3.3.18.
struct Fsstat : Operation {
  using Operation::Operation;
  HandleView object;

  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t available_bytes = 0;  // to the one who asks
  std::uint64_t total_files = 0;
  std::uint64_t free_files = 0;
  std::uint64_t available_files = 0;
  std::optional<Fattr3> attributes;  // with an error too
};

/// §3.3.21. Count 0: to the end of the file.
struct Commit : Operation {
  using Operation::Operation;
  HandleView object;
  std::uint64_t offset = 0;
  std::uint32_t count = 0;

  WccData wcc;  // with an error too
  Verf3 verifier{};
};

/// What does not change while a store is open.
struct StoreTraits {
  bool own_memory = false;
  bool hard_links = true;
  bool symbolic_links = true;
  bool can_set_times = true;
  std::uint64_t max_file_bytes = INT64_MAX;
  NfsTime3 time_delta{0, 1};  // the step of its clock
  std::uint32_t link_max = 32'000;
  std::uint32_t name_max = kMaxNameBytes;
};

/// A backend. What it does not implement is NFS3ERR_NOTSUPP. Runs on: poll cores, several at once where the engine has
/// several; and one other thread of the server's, which walks a path for MOUNT.
class Store {
 public:
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;
  virtual ~Store() = default;

  [[nodiscard]] virtual StoreTraits traits() const noexcept = 0;
  /// The directory that is exported.
  [[nodiscard]] virtual FileHandle root() const noexcept = 0;

  virtual void getattr(Getattr& operation) noexcept = 0;
  virtual void lookup(Lookup& operation) noexcept = 0;
  virtual void read(Read& operation) noexcept = 0;
  virtual void readdir(Readdir& operation) noexcept = 0;

  virtual void setattr(Setattr& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void readlink(Readlink& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void write(Write& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void create(Create& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void remove(Remove& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void rename(Rename& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void link(Link& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  virtual void fsstat(Fsstat& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  /// A store that acknowledges nothing before it is stable has nothing to commit, and still says so with its verifier.
  virtual void commit(Commit& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }

  /// Stores with memory of their own. Before write(): offers in `data` the `count` octets of memory that the data is to
  /// come into, or fails as write() would. Completes like an operation; write() follows unless the Call is lost.
  virtual void prepare_write(Write& operation) noexcept { operation.complete(NfsStat3::kNotsupp); }
  /// Stores with memory of their own: the pieces that a successful read() gave have left, or those of a successful
  /// prepare_write() will be written no more. Once for each, on a poll core, as the last that is heard of it. Of
  /// `operation` only what the store itself put there still stands.
  virtual void end(Read& /*operation*/) noexcept {}
  virtual void end(Write& /*operation*/) noexcept {}

 protected:
  Store() noexcept = default;
};

}  // namespace rodeo::nfs
