// SPDX-License-Identifier: Apache-2.0
#pragma once

// One thread of a directory store, with an io_uring of its own. Poll cores hand operations over by a lock-free ring;
// the thread does what concerns names by system calls, and submits what moves data or waits for a disk in bursts, to
// complete it as the kernel finishes. It sleeps in the kernel when there is nothing to do, and only then a poll core
// makes a system call, to wake it.

#include <liburing.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "apps/nfs/directory_listing.h"
#include "apps/nfs/directory_volume.h"
#include "pools/result.h"
#include "pools/ring.h"

namespace rodeo::nfs {

enum class StoreCall : std::uint64_t {
  kGetattr,
  kSetattr,
  kLookup,
  kReadlink,
  kRead,
  kWrite,
  kCreate,
  kRemove,
  kRename,
  kLink,
  kReaddir,
  kFsstat,
  kCommit,
};

class IoThread {
 public:
  /// `depth`: reads, writes and commits under way at once. The volume must outlive it.
  [[nodiscard]] static Result<std::unique_ptr<IoThread>> start(const DirectoryVolume& volume, unsigned depth);
  IoThread(const IoThread&) = delete;
  IoThread& operator=(const IoThread&) = delete;
  /// Finishes what was handed over.
  ~IoThread();

  /// Whoever completes it: NFS3ERR_JUKEBOX when there is no room. Runs on: any.
  void hand_over(Operation& operation, StoreCall what) noexcept;

 private:
  struct Request {
    Operation* operation;
    StoreCall what;
  };
  /// A data operation under way.
  struct Job {
    Request request{};
    Descriptor file;
    std::array<iovec, Pieces::kMax> pieces{};
  };
  static constexpr std::size_t kBurst = 32;

  explicit IoThread(const DirectoryVolume& volume) noexcept : volume_(volume), listings_(volume) {}
  void run() noexcept;
  std::size_t take_requests() noexcept;
  std::size_t take_completions() noexcept;
  void sleep() noexcept;
  void wake() noexcept;
  void watch_wakeups() noexcept;

  void perform(const Request& request) noexcept;
  /// Opens the file for a data operation; the operation is completed when it cannot be.
  void begin(const Request& request) noexcept;
  void finish(Job& job, int result) noexcept;

  const DirectoryVolume& volume_;
  DirectoryListings listings_;
  std::unique_ptr<pools::MpscRing<Request>> requests_;
  io_uring ring_{};
  bool has_ring_ = false;
  Descriptor wakeups_;              // an eventfd
  std::uint64_t wakeup_count_ = 0;  // where the kernel puts what it reads there
  std::vector<std::unique_ptr<Job>> jobs_;
  std::vector<Job*> free_jobs_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> sleeping_{false};
  std::thread thread_;
};

}  // namespace rodeo::nfs
