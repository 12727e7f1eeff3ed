// SPDX-License-Identifier: Apache-2.0
#pragma once

// A fabric inside one process and one thread: devices that are opened on it see each other by "sim:NAME". There are no
// sockets and no files; messages of the connection manager wait in memory until next_event() takes them.
//
// Immediate: a doorbell executes its WQEs at once, as between processes. Scheduled: nothing happens before step(), and
// then one thing at a time in an order drawn from the seed (dv/soft/scheduler.h); faults can be planned.
//
// Runs on: one thread, for everything.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/soft/fault_plan.h"
#include "dv/soft/hca.h"

namespace rodeo::dv::soft {

class FabricState;

class Fabric {
 public:
  enum class Mode : std::uint8_t { kImmediate, kScheduled };
  explicit Fabric(Mode mode = Mode::kImmediate, std::uint64_t seed = 1);
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;
  ~Fabric();

  /// Devices may outlive the fabric, but nothing can be scheduled then.
  [[nodiscard]] Result<std::unique_ptr<mlx5::Device>> open_device(const SoftOptions& options = {});

  /// Scheduled: lets one thing happen; with nothing else to do, the clock runs to the next timer. False: nothing is
  /// left to happen. Immediate: always false.
  bool step();
  /// Scheduled: steps until only timers are left, or `limit` is reached. Returns how many steps were made.
  std::size_t run_until_idle(std::size_t limit = 1'000'000);
  [[nodiscard]] std::uint64_t now_ns() const noexcept;

  /// Scheduled: what was chosen so far; given to another fabric with the same calls, it repeats the run.
  [[nodiscard]] const std::vector<std::uint32_t>& choices() const noexcept;
  void replay(std::vector<std::uint32_t> choices);
  /// Scheduled only.
  void load_faults(FaultPlan plan);
  /// Scheduled: how often the rules of the present plan have acted.
  [[nodiscard]] std::uint32_t faults_injected() const noexcept;

  /// As if the process of device `index` (in the order of open_device) were killed: it executes nothing more, and its
  /// connections vanish.
  void kill_device(std::uint32_t index);
  /// Whether device `index` is open and has not been killed.
  [[nodiscard]] bool alive(std::uint32_t index) const noexcept;

 private:
  std::shared_ptr<FabricState> state_;
};

}  // namespace rodeo::dv::soft
