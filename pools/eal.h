// SPDX-License-Identifier: Apache-2.0
#pragma once

// The DPDK environment: it pins one thread to each core we name and runs our loops there.
// Runs on: control thread.
//
// One process has one EAL and starts it once. Ours leaves nothing behind, however the process dies: no hugepage file,
// no shared configuration, no socket. It scans no devices. Its output never reaches the terminal; when it does not
// start, the last line it wrote is in the Error.

#include <atomic>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pools/result.h"

namespace rodeo::pools {

struct EalOptions {
  std::string program = "rodeo";
  std::vector<unsigned> cores;  ///< each gets a pinned thread; the caller's own thread stays free to float
  bool hugepages = true;        ///< for the EAL's own heap; without a free one it uses ordinary memory
};

class Eal {
  struct Key {};  // only start() and borrow() make one
  struct Task {
    void (*run)(void*) = nullptr;
    void* argument = nullptr;
    std::atomic<bool> running{false};
  };
  struct Lcore {
    unsigned id = 0;
    std::unique_ptr<Task> task = std::make_unique<Task>();  // a fixed address, for the launched thread
  };

 public:
  /// Starts the EAL, or returns the one that an earlier call started if it has all these cores.
  static Result<std::shared_ptr<Eal>> start(const EalOptions& options);

  /// The EAL that the embedding process has initialised itself. Its worker lcores that sit on one core each are ours to
  /// launch on.
  static Result<std::shared_ptr<Eal>> borrow();

  /// Runs run(argument) on the thread of a core. The core must be idle: launched tasks are joined first.
  Result<void> launch(unsigned core, void (*run)(void*), void* argument);

  /// Waits until the core is idle. Unknown cores are idle.
  void join(unsigned core);

  [[nodiscard]] bool has_core(unsigned core) const { return lcores_.contains(core); }
  [[nodiscard]] std::vector<unsigned> cores() const;
  /// Whether the EAL's own heap is on hugepages.
  [[nodiscard]] bool hugepages() const;

  explicit Eal(Key) {}

 private:
  void add_core(unsigned core, unsigned lcore) { lcores_[core].id = lcore; }
  [[nodiscard]] Result<void> check_cores(std::span<const unsigned> cores) const;
  static Result<std::shared_ptr<Eal>> initialise(const EalOptions& options, std::span<const unsigned> allowed);
  static int run_task(void* task);

  std::map<unsigned, Lcore> lcores_;
};

}  // namespace rodeo::pools
