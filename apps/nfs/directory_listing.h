// SPDX-License-Identifier: Apache-2.0
#pragma once

// READDIR and READDIRPLUS of a directory store. A cookie is a keyed hash of the entry's name, and entries come in the
// order of their cookies: so cookies are stable over changes of the directory and restarts on every file system, whose
// own offsets are not always. A large directory is read and sorted once for all Calls that go through it, as long as it
// does not change. Runs on: one of a store's own threads.

#include <chrono>
#include <list>
#include <string>
#include <vector>

#include "apps/nfs/directory_volume.h"

namespace rodeo::nfs {

class DirectoryListings {
 public:
  explicit DirectoryListings(const DirectoryVolume& volume) noexcept : volume_(volume) {}

  [[nodiscard]] NfsStat3 readdir(Readdir& operation) noexcept;

 private:
  static constexpr std::size_t kKept = 8;
  struct Entry {
    std::uint64_t cookie = 0;
    std::uint64_t fileid = 0;
    std::uint32_t name = 0;  // where it begins in Listing::names, and ends with a 0
  };
  struct Listing {
    std::uint64_t fileid = 0;
    NfsTime3 ctime;
    bool settled = false;  // read long enough after that, so that no change can have the same time
    std::vector<Entry> entries;
    std::string names;
  };

  /// nullptr: errno says why.
  [[nodiscard]] const Listing* listing_of(int directory, const Fattr3& attributes);
  [[nodiscard]] bool read_into(Listing& listing, int directory) const;
  [[nodiscard]] NfsStat3 fill(Readdir& operation, int directory, const Fattr3& own);
  void describe(Entry3& entry, int directory, const char* name) const noexcept;

  const DirectoryVolume& volume_;
  std::list<Listing> kept_;  // the latest first
};

}  // namespace rodeo::nfs
