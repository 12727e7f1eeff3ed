// SPDX-License-Identifier: Apache-2.0
#pragma once

// The engine: its loops, workers and memory, and the threads they run on; connection management is in connections.h.
//
// Threads: poll and worker cores run on EAL lcores. One control thread sleeps in epoll for the device's connection
// events and does all that is slow about a connection. Without poll cores there are no threads, and step() does a turn
// of everything. What concerns a loop's own state is sent to it as a Command.

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "engine/connections.h"
#include "engine/poll_loop.h"
#include "engine/rodeo.h"
#include "engine/worker.h"
#include "pools/eal.h"
#include "pools/topology.h"

namespace rodeo {

template <dv::Provider P>
class EngineCore final : public Engine {
 public:
  /// An engine on a device that is already open: what Engine::open does, and how both ends of an in-process fabric are
  /// made.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> open_on(std::unique_ptr<dv::Device<P>> device,
                                                               const Config& config);
  ~EngineCore() override;

  Result<void> add_program(Program program) override;
  void add_poller(std::size_t loop, std::function<std::size_t()> poller) override;
  Result<void> start() override;
  Result<void> listen(std::string_view address) override;
  using Engine::begin_connect;
  using Engine::connect;
  Result<Connection*> connect(std::string_view address, const ConnectOptions& options,
                              std::chrono::milliseconds timeout) override;
  Result<std::uint64_t> begin_connect(std::string_view address, const ConnectOptions& options) override;
  Result<Connection*> finish_connect(std::uint64_t attempt) override;
  void abandon_connect(std::uint64_t attempt) override { connections_.abandon_connect(attempt); }
  void disconnect(Connection* connection) override;
  std::string why_closed(const Connection* connection) override;
  std::size_t step() override;
  void run_on_loop(std::size_t loop, std::function<void()> work) override;
  void stop(std::chrono::milliseconds patience) override;

  std::size_t loop_count() const noexcept override { return loops_.size(); }
  RegisteredBytes application_memory() const noexcept override { return memory_->application(); }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::vector<std::string> describe() const override;
  std::vector<CounterValue> counters() const override;
  std::size_t connection_count() const noexcept override { return connections_.count(); }
  std::pair<bool, std::string> audit() const override;

 private:
  EngineCore(std::unique_ptr<dv::Device<P>> device, const Config& config)
      : config_(config), device_(std::move(device)), connections_(*this, config_, *device_, loops_) {}

  Result<void> prepare();
  Result<void> choose_registration();
  Result<void> make_loops();
  [[nodiscard]] bool threaded() const noexcept { return !config_.poll_cores.empty(); }

  /// Runs `work` on the lcore of `core`. When that cannot be, everything stops.
  template <class Work>
  Result<void> launch(unsigned core, Work work);
  /// A poll core's life.
  void run_loop(PollLoop<P>& loop) noexcept;
  [[nodiscard]] bool time_to_look(std::size_t work) noexcept;
  void control_thread();
  void wake_control() const;
  void stop_threads();

  Config config_;
  std::unique_ptr<dv::Device<P>> device_;
  std::unique_ptr<pools::Topology> topology_;
  std::shared_ptr<pools::Eal> eal_;
  std::unique_ptr<Memory> memory_;
  dv::MemoryRegion region_;
  std::unique_ptr<ReplyCache> reply_cache_;  // when a procedure wants it
  ProgramTable programs_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<PollLoop<P>>> loops_;
  std::vector<std::string> warnings_;
  Connections<P> connections_;

  std::atomic<bool> stop_control_{false};
  std::atomic<bool> stop_loops_{false};
  std::atomic<bool> stop_workers_{false};
  int wake_fd_ = -1;
  std::thread control_;
  bool started_ = false;
  bool stopped_ = false;
  // When step() looks at connection management.
  static constexpr std::uint64_t kBusyTurnsPerLook = 4096;
  static constexpr std::uint64_t kIdleTurnsPerLook = 8;
  std::uint64_t busy_turns_ = 0;
  std::uint64_t idle_turns_ = 0;
  std::uint64_t next_look_ = 0;
  std::uint64_t look_ticks_ = 0;
};

}  // namespace rodeo
