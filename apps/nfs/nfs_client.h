// SPDX-License-Identifier: Apache-2.0
#pragma once

// A client of any NFSv3 server over RPC-over-RDMA, for tools: one connection, one thread, one call at a time. Bulk data
// goes by apps/nfs/file_transfer.h, which pipelines. Bindings are those of RFC 8267, save that texts of symbolic links,
// which need not move by chunk of their own, do not.
//
//   auto client = rodeo::nfs::NfsClient::open("rdma://server", {.caller = rodeo::nfs::Caller::of_process()});
//   auto root = (*client)->mount("/export");
//   auto file = (*client)->lookup(*root, "name");
//
// Runs on: one thread, which turns the engine's loop while it waits.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/nfs/caller.h"
#include "apps/nfs/nfs_failure.h"
#include "engine/client.h"

namespace rodeo::nfs {

/// An object of the server's.
struct Found {
  FileHandle handle;
  Fattr3 attributes;
};

/// An entry of a directory. What the server did not tell of it is not there.
struct Listed {
  std::string name;
  std::uint64_t fileid = 0;
  std::optional<Fattr3> attributes{};
  std::optional<FileHandle> handle{};
};

/// What of FSINFO a client has use for, in octets.
struct FsLimits {
  std::uint32_t max_read = 0;
  std::uint32_t max_write = 0;
  std::uint32_t directory_bytes = 0;
};

struct NfsClientOptions {
  Caller caller;
  Registration registration = Registration::kAuto;
  std::uint16_t mount_port = 0;  // of rdma:// addresses; 0: see MountClient
  bool hugepages = false;
  std::uint32_t credits = 2;               // calls at once
  std::uint32_t inline_bytes = 4096;       // RFC 8797's thresholds, both ways
  std::size_t application_bytes = 0;       // registered memory for transfers
  std::chrono::seconds patience{60};       // for an answer
  std::function<bool()> interrupted = {};  // asked now and then: true ends what goes on
};

class NfsClient {
 public:
  [[nodiscard]] static NfsResult<std::unique_ptr<NfsClient>> open(std::string_view address,
                                                                  const NfsClientOptions& options);
  NfsClient(const NfsClient&) = delete;
  NfsClient& operator=(const NfsClient&) = delete;

  /// Of rdma:// addresses by MOUNT over TCP; of others by MOUNT on the NFS connection, which rodeod serves.
  [[nodiscard]] NfsResult<std::vector<std::string>> exports();
  [[nodiscard]] NfsResult<FileHandle> mount(const std::string& path);

  // The procedures of RFC 1813 §3.3. What a server may leave out of its answer is asked for by a further call.
  [[nodiscard]] NfsResult<FsLimits> limits(const FileHandle& root);
  [[nodiscard]] NfsResult<Fattr3> getattr(const FileHandle& object);
  [[nodiscard]] NfsResult<void> setattr(const FileHandle& object, const Sattr3& attributes);
  [[nodiscard]] NfsResult<Found> lookup(const FileHandle& directory, std::string_view name);
  [[nodiscard]] NfsResult<std::string> readlink(const FileHandle& link);
  [[nodiscard]] NfsResult<Found> create(const FileHandle& directory, std::string_view name, const Sattr3& attributes,
                                        CreateMode3 mode = CreateMode3::kGuarded);
  [[nodiscard]] NfsResult<Found> mkdir(const FileHandle& directory, std::string_view name, const Sattr3& attributes);
  /// A target that does not fit the inline threshold makes it a Long Call.
  [[nodiscard]] NfsResult<Found> symlink(const FileHandle& directory, std::string_view name, std::string_view target);
  [[nodiscard]] NfsResult<void> remove(const FileHandle& directory, std::string_view name);
  [[nodiscard]] NfsResult<void> rename(const FileHandle& directory, std::string_view from, std::string_view to);
  /// All of a directory, "." and ".." included, in the server's order: by READDIRPLUS, or by READDIR where names are
  /// enough or the server has no other. Once more from the start where it changes so that cookies lose their meaning.
  [[nodiscard]] NfsResult<std::vector<Listed>> list(const FileHandle& directory, std::uint32_t directory_bytes,
                                                    bool names_only = false);
  [[nodiscard]] NfsResult<Verf3> commit(const FileHandle& file);

  [[nodiscard]] Client& transport() noexcept { return client_; }
  [[nodiscard]] const NfsClientOptions& options() const noexcept { return options_; }
  [[nodiscard]] CallTarget target(NfsProc3 proc) const { return target(kNfsProgram, static_cast<std::uint32_t>(proc)); }
  /// Whether further calls have a chance: not after a timeout or a lost connection.
  [[nodiscard]] bool usable() noexcept { return !hung_up_ && client_.connection().open(); }
  /// Ends the calls that are out, and the connection with them.
  void hang_up();
  [[nodiscard]] bool interrupted() const { return options_.interrupted && options_.interrupted(); }
  /// What went wrong before a status was there to be read; nothing where one is.
  [[nodiscard]] static std::optional<NfsFailure> failure_of(CallError error, AcceptStat accept_stat,
                                                            std::size_t results_bytes, std::string_view step);

 private:
  NfsClient(std::string_view address, const NfsClientOptions& options, Client client)
      : address_(address), options_(options), client_(std::move(client)) {}

  using Results = std::vector<std::byte>;
  [[nodiscard]] CallTarget target(std::uint32_t program, std::uint32_t procedure) const;
  /// What comes behind the status, which is NFS3_OK.
  [[nodiscard]] NfsResult<Results> call(const CallTarget& target, const XdrWriter& arguments, std::string_view step,
                                        std::size_t max_results);
  /// The same as it came, status and all.
  [[nodiscard]] NfsResult<Results> call_once(const CallTarget& target, const XdrWriter& arguments,
                                             std::string_view step, std::size_t max_results);
  [[nodiscard]] NfsResult<Results> call(NfsProc3 proc, const XdrWriter& arguments, std::string_view step,
                                        std::size_t max_results = 512);
  [[nodiscard]] NfsResult<Found> made(NfsProc3 proc, const XdrWriter& arguments, std::string_view step,
                                      const FileHandle& directory, std::string_view name);
  [[nodiscard]] NfsResult<void> list_part(const FileHandle& directory, std::uint32_t bytes, bool plus,
                                          std::vector<Listed>& into);

  std::string address_;
  NfsClientOptions options_;
  Client client_;
  bool hung_up_ = false;
};

}  // namespace rodeo::nfs
