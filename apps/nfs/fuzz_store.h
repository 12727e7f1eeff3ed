// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the NFS fuzzer: looks at a store from inside the process, and empties it. What FSSTAT counts has to be what can
// be reached from the root, and all of it free again when nothing can.

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "apps/nfs/store.h"
#include "engine/fuzz.h"

namespace rodeo::nfs::fuzzed {

/// Everything that an EntrySink may be given.
class Listing final : public EntrySink {
 public:
  bool add(const Entry3& entry) noexcept override {
    if (entry.name != "." && entry.name != "..") names.emplace_back(entry.name);
    return true;
  }
  std::vector<std::string> names;
};

class StoreWatch {
 public:
  explicit StoreWatch(Store& store) : store_(store), empty_(count()) {}

  /// Between sessions: what was made adds up, can all be removed, and leaves nothing behind.
  void check_and_empty() {
    Totals used;
    std::map<std::uint64_t, std::uint64_t> seen;  // fileid: octets of storage
    walk(store_.root(), seen);
    for (const auto& [fileid, octets] : seen) used = {used.bytes + octets, used.files + 1};
    const Totals now = count();
    fuzz::check(empty_.files - now.files == used.files, "there are objects that no name leads to, or too few");
    fuzz::check(empty_.bytes - now.bytes == used.bytes, "the files do not have the memory that is not free");
    clear(store_.root());
    const Totals after = count();
    fuzz::check(after.files == empty_.files, "objects are left of an emptied store");
    fuzz::check(after.bytes == empty_.bytes, "memory is left of an emptied store");
    make_new(store_.root());
  }

 private:
  struct Totals {  // free ones
    std::uint64_t bytes = 0;
    std::uint64_t files = 0;
  };

  template <class Op>
  struct Run {
    Run() : operation(&done, this) { operation.credentials.uid = operation.credentials.gid = 0; }
    NfsStat3 by(Store& store, void (Store::*method)(Op&) noexcept) {
      (store.*method)(operation);
      fuzz::check(completed, "a store that works in memory took its time");
      return status;
    }
    static void done(Operation& operation, NfsStat3 with) noexcept {
      Run& run = *static_cast<Run*>(operation.context());
      fuzz::check(!run.completed, "an operation was completed twice");
      run.completed = true;
      run.status = with;
    }
    Op operation;
    NfsStat3 status = NfsStat3::kOk;
    bool completed = false;
  };

  [[nodiscard]] Totals count() {
    const FileHandle root = store_.root();
    Run<Fsstat> run;
    run.operation.object = root.bytes();
    fuzz::check(run.by(store_, &Store::fsstat) == NfsStat3::kOk, "FSSTAT failed");
    return {run.operation.free_bytes, run.operation.free_files};
  }

  [[nodiscard]] std::vector<std::string> names_of(const FileHandle& directory) {
    Listing listing;
    Run<Readdir> run;
    run.operation.directory = directory.bytes();
    run.operation.entries = &listing;
    fuzz::check(run.by(store_, &Store::readdir) == NfsStat3::kOk && run.operation.eof, "a directory cannot be listed");
    return std::move(listing.names);
  }

  [[nodiscard]] std::pair<FileHandle, Fattr3> find(const FileHandle& directory, const std::string& name) {
    Run<Lookup> run;
    run.operation.directory = directory.bytes();
    run.operation.name = name;
    fuzz::check(run.by(store_, &Store::lookup) == NfsStat3::kOk && run.operation.attributes,
                "a listed name is not there");
    return {run.operation.object, *run.operation.attributes};
  }

  void walk(const FileHandle& directory, std::map<std::uint64_t, std::uint64_t>& seen) {
    for (const std::string& name : names_of(directory)) {
      const auto [object, attributes] = find(directory, name);
      // Of all others FSSTAT counts the object alone.
      seen[attributes.fileid] = attributes.type == Ftype3::kReg ? attributes.used : 0;
      if (attributes.type == Ftype3::kDir) walk(object, seen);
    }
  }

  void clear(const FileHandle& directory) {
    for (const std::string& name : names_of(directory)) {
      const auto [object, attributes] = find(directory, name);
      if (attributes.type == Ftype3::kDir) clear(object);
      Run<Remove> run;
      run.operation.directory = directory.bytes();
      run.operation.name = name;
      run.operation.is_rmdir = attributes.type == Ftype3::kDir;
      fuzz::check(run.by(store_, &Store::remove) == NfsStat3::kOk, "a listed name cannot be removed");
    }
  }

  /// The root's attributes as the store began with them.
  void make_new(const FileHandle& root) {
    Run<Setattr> run;
    run.operation.object = root.bytes();
    run.operation.new_attributes.mode = 01777;
    run.operation.new_attributes.uid = 0;
    run.operation.new_attributes.gid = 0;
    fuzz::check(run.by(store_, &Store::setattr) == NfsStat3::kOk, "the root's attributes cannot be set");
  }

  Store& store_;
  Totals empty_;
};

}  // namespace rodeo::nfs::fuzzed
