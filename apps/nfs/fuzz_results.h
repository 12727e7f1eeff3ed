// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the NFS fuzzer: whether octets are the results of a procedure, whole and to the last octet, as RFC 1813 §3.3 and
// its appendix I define them. Written from the RFC's unions and not from the server's encoders.

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "apps/nfs/nfs3.h"
#include "engine/fuzz.h"

namespace rodeo::nfs::fuzzed {

using fuzz::check;

/// What was asked, as far as it bounds the results.
struct Asked {
  NfsProc3 proc = NfsProc3::kNull;
  std::uint32_t count = UINT32_MAX;  // octets: READ's and WRITE's count, the maxcount of the directory lists
  bool by_chunk = false;             // there was a Write chunk for the data
  std::uint64_t in_chunk = 0;        // octets that it came back with
};

class Results {
 public:
  /// Ends the process when they are not the results of `asked`.
  Results(std::span<const std::byte> octets, const Asked& asked) : in_(octets), asked_(asked), total_(octets.size()) {}

  /// Those of the NFS program. Handles that they tell of come in `handles`.
  void check_nfs(std::vector<FileHandle>& handles) {
    handles_ = &handles;
    if (asked_.proc != NfsProc3::kNull) {
      const NfsStat3 status = read_status();
      if (status == NfsStat3::kOk) {
        success();
      } else {
        failure();
      }
    }
    end();
  }

  /// MOUNT's MNT (appendix I §5.2.1), whose statuses are among NFS's.
  void check_mnt(std::vector<FileHandle>& handles) {
    handles_ = &handles;
    if (read_status() == NfsStat3::kOk) {
      handle();
      for (std::uint32_t flavors = in_.u32(); flavors != 0 && in_.ok(); --flavors) (void)in_.u32();
    }
    end();
  }
  /// MOUNT's EXPORT (appendix I §5.2.5).
  void check_export() {
    while (in_.boolean()) {
      (void)in_.string(1024);
      while (in_.boolean()) (void)in_.string(255);
    }
    end();
  }
  void check_void() { end(); }

 private:
  void end() {
    check(in_.ok(), "results that are no XDR of their procedure's");
    check(in_.remaining() == 0, "results with something behind them");
    check(asked_.in_chunk == 0 || used_chunk_, "a Write chunk came back with data of no result");
  }

  NfsStat3 read_status() {
    const auto status = static_cast<NfsStat3>(in_.u32());
    check(in_.ok() && !to_string(status).ends_with('?'), "a status that RFC 1813 does not have");
    return status;
  }

  void success() {
    switch (asked_.proc) {
      case NfsProc3::kNull:
        return;
      case NfsProc3::kGetattr:
        return attributes();
      case NfsProc3::kLookup:
        handle();
        post_op_attr();
        return post_op_attr();
      case NfsProc3::kAccess:
        post_op_attr();
        return words(1);
      case NfsProc3::kReadlink:
        post_op_attr();
        (void)data(kMaxPathBytes);
        return;
      case NfsProc3::kRead: {
        post_op_attr();
        const std::uint32_t count = in_.u32();
        (void)in_.boolean();
        check(count <= asked_.count, "READ gave more than was asked for");
        check(data(count) == count, "READ's count is not the length of its data");
        return;
      }
      case NfsProc3::kWrite:
        wcc_data();
        check(in_.u32() <= asked_.count, "WRITE wrote more than was asked for");
        (void)in_.enumeration(StableHow::kFileSync);
        return verifier();
      case NfsProc3::kCreate:
      case NfsProc3::kMkdir:
      case NfsProc3::kSymlink:
      case NfsProc3::kMknod:
        if (in_.boolean()) handle();
        post_op_attr();
        return wcc_data();
      case NfsProc3::kReaddir:
      case NfsProc3::kReaddirplus:
        return list();
      case NfsProc3::kFsstat:
        post_op_attr();
        return words(13);
      case NfsProc3::kFsinfo:
        post_op_attr();
        return words(12);
      case NfsProc3::kPathconf:
        post_op_attr();
        words(2);
        for (int i = 0; i < 4; ++i) (void)in_.boolean();
        return;
      case NfsProc3::kCommit:
        wcc_data();
        return verifier();
      case NfsProc3::kSetattr:
      case NfsProc3::kRemove:
      case NfsProc3::kRmdir:
      case NfsProc3::kRename:
      case NfsProc3::kLink:
        return failure();  // both arms are the same
    }
  }

  void failure() {
    switch (asked_.proc) {
      case NfsProc3::kNull:
      case NfsProc3::kGetattr:
        return;
      case NfsProc3::kLookup:
      case NfsProc3::kAccess:
      case NfsProc3::kReadlink:
      case NfsProc3::kRead:
      case NfsProc3::kReaddir:
      case NfsProc3::kReaddirplus:
      case NfsProc3::kFsstat:
      case NfsProc3::kFsinfo:
      case NfsProc3::kPathconf:
        return post_op_attr();
      case NfsProc3::kSetattr:
      case NfsProc3::kWrite:
      case NfsProc3::kCreate:
      case NfsProc3::kMkdir:
      case NfsProc3::kSymlink:
      case NfsProc3::kMknod:
      case NfsProc3::kRemove:
      case NfsProc3::kRmdir:
      case NfsProc3::kCommit:
        return wcc_data();
      case NfsProc3::kRename:
        wcc_data();
        return wcc_data();
      case NfsProc3::kLink:
        post_op_attr();
        return wcc_data();
    }
  }

  void list() {
    const bool plus = asked_.proc == NfsProc3::kReaddirplus;
    post_op_attr();
    verifier();
    std::uint64_t last = 0;
    bool any = false;
    while (in_.boolean()) {
      any = true;
      (void)in_.u64();
      check(!in_.string(kMaxNameBytes).empty(), "an entry without a name");
      const std::uint64_t cookie = in_.u64();
      check(cookie != 0 && cookie != last, "a cookie that does not go on");
      last = cookie;
      if (plus) {
        post_op_attr();
        if (in_.boolean()) handle();
      }
      if (!in_.ok()) return;
    }
    const bool eof = in_.boolean();
    check(any || eof, "an empty list that is not the last");
    // The count is of READDIR3resok, which the status does not belong to.
    check(total_ <= std::size_t{4} + asked_.count, "a list longer than was asked for");
  }

  void words(int count) {
    for (int i = 0; i < count; ++i) (void)in_.u32();
  }
  void verifier() { in_.skip(kVerfBytes); }
  void handle() {
    const auto octets = in_.opaque(kMaxHandleBytes);
    check(in_.ok() && !octets.empty(), "an empty handle");
    handles_->emplace_back(octets);
  }
  void attributes() {
    const std::uint32_t type = in_.u32();
    check(type >= 1 && type <= 7, "an object of no type");
    in_.skip(kFattr3Bytes - 4);
  }
  void post_op_attr() {
    if (in_.boolean()) attributes();
  }
  void wcc_data() {
    if (in_.boolean()) in_.skip(24);
    post_op_attr();
  }
  /// A result that may have left by chunk: its length.
  std::uint32_t data(std::size_t most) {
    if (!asked_.by_chunk) return static_cast<std::uint32_t>(in_.opaque(most).size());
    const std::uint32_t length = in_.u32();
    check(length <= most && length == asked_.in_chunk, "the Write chunk does not hold what the result says");
    used_chunk_ = true;
    return length;
  }

  XdrReader in_;
  const Asked& asked_;
  std::size_t total_;
  std::vector<FileHandle>* handles_ = nullptr;
  bool used_chunk_ = false;
};

}  // namespace rodeo::nfs::fuzzed
