// SPDX-License-Identifier: Apache-2.0
#pragma once

// What both directions of `rodeo cp` share: how it is to be done, what goes wrong on the way, and what is shown of it.
//
// A file is written under a name of its own and gets its real one when all of it is there and stable, so that whoever
// sees the real name sees a whole file, and one that was there before stays until then.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "apps/cp.h"
#include "apps/nfs/file_transfer.h"
#include "apps/nfs/path_walker.h"

namespace rodeo::apps {

class CopyJob {
 public:
  CopyJob(const CpOptions& how, nfs::NfsClient& to, nfs::PathWalker& paths);

  const CpOptions& options;
  nfs::NfsClient& client;
  nfs::PathWalker& walker;
  nfs::FileTransfer transfer;

  /// Remembers that not all is well, and says why.
  void failed(std::string_view path, const nfs::NfsFailure& failure);
  [[nodiscard]] bool all_well() const noexcept { return all_well_; }
  /// Whether to try what comes next, after a failure.
  [[nodiscard]] bool goes_on() { return client.usable() && !client.interrupted(); }

  /// Permissions of what is made from something with `mode`.
  [[nodiscard]] std::uint32_t mode_for(std::uint32_t mode) const noexcept {
    return options.preserve ? mode & 01777U : mode & 0777U & ~mask_;
  }
  /// Moves a file and shows how far it is.
  [[nodiscard]] nfs::NfsResult<std::uint64_t> read(const nfs::FileHandle& file, std::uint64_t expected_bytes,
                                                   const nfs::FsLimits& limits, const nfs::FileTransfer::Sink& sink,
                                                   std::string_view name);
  [[nodiscard]] nfs::NfsResult<std::uint64_t> write(const nfs::FileHandle& file, std::uint64_t expected_bytes,
                                                    const nfs::FsLimits& limits,
                                                    const nfs::FileTransfer::Source& source, std::string_view name);
  /// With --checksum, after a copy: the sums of what was sent and of what arrived. Prints the sum by the local name.
  [[nodiscard]] nfs::NfsResult<void> compare_sums(const std::string& sent, const std::string& arrived,
                                                  const std::string& local_path) const;

 private:
  std::uint32_t mask_;
  bool terminal_;
  bool all_well_ = true;
};

/// Closes itself.
class Descriptor {
 public:
  explicit Descriptor(int number = -1) noexcept : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  [[nodiscard]] explicit operator bool() const noexcept { return number_ >= 0; }
  [[nodiscard]] int number() const noexcept { return number_; }

 private:
  int number_;
};

/// A name for what is not complete yet, which nothing else has.
[[nodiscard]] std::string temporary_name();
/// What errno says happened to `action`, as "cannot open it: ...".
[[nodiscard]] nfs::NfsFailure system_failure(std::string_view action);

/// Files of the host below a directory that is open.
struct LocalPlace {
  int directory = AT_FDCWD;
  std::string name{};   // in it
  std::string shown{};  // the path, for people
};

}  // namespace rodeo::apps
