// SPDX-License-Identifier: Apache-2.0
#pragma once

// The engine: its loops, workers and memory, and the connection management that feeds them.
//
// Threads: poll and worker cores run on EAL lcores. One control thread sleeps in epoll for the device's connection
// events and does all that is slow about a connection. Without poll cores there are no threads, and step() does a turn
// of everything. A mutex serialises whoever manages connections; the loops never take it: what concerns a loop's own
// state is sent to it as a Command.

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/poll_loop.h"
#include "engine/private_data.h"
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
  Result<Connection*> connect(std::string_view address, std::size_t loop, std::uint32_t credits,
                              std::chrono::milliseconds timeout) override;
  Result<std::uint64_t> begin_connect(std::string_view address, std::size_t loop, std::uint32_t credits) override;
  Result<Connection*> finish_connect(std::uint64_t attempt) override;
  void disconnect(Connection* connection) override;
  std::size_t step() override;
  void run_on_loop(std::size_t loop, std::function<void()> work) override;
  void stop(std::chrono::milliseconds patience) override;

  std::size_t loop_count() const noexcept override { return loops_.size(); }
  RegisteredBytes application_memory() const noexcept override { return memory_->application(); }
  const std::vector<std::string>& warnings() const noexcept override { return warnings_; }
  std::vector<std::string> describe() const override;
  std::vector<CounterValue> counters() const override;
  std::size_t connection_count() const noexcept override { return link_count_.load(std::memory_order_relaxed); }
  std::pair<bool, std::string> audit() const override;

 private:
  /// One connection as the control side sees it.
  struct Managed {
    std::unique_ptr<Link<P>> link;
    std::unique_ptr<Requester<P>> requester;
    bool attached = false;
    bool closing = false;
    bool released = false;  // the application has called disconnect()
  };
  /// A connect that is under way, or that failed.
  struct Attempt {
    std::string address;
    std::size_t loop = 0;
    std::uint32_t credits = 0;
    bool established = false;
    std::string failure;
  };

  EngineCore(std::unique_ptr<dv::Device<P>> device, const Config& config)
      : config_(config), device_(std::move(device)) {}

  Result<void> prepare();
  Result<void> make_loops();
  [[nodiscard]] bool threaded() const noexcept { return !config_.poll_cores.empty(); }

  // With the mutex held.
  std::size_t process_events();
  void on_connect_request(const dv::CmEvent& event);
  void on_route_resolved(const dv::CmEvent& event);
  void on_established(const dv::CmEvent& event);
  void on_disconnected(const dv::CmEvent& event);
  Result<void> make_link(dv::CmId id, std::size_t loop, std::uint32_t requester_credits);
  void close_link(dv::CmId id);
  std::size_t reap_closed();
  [[nodiscard]] bool anything_closing() const;
  [[nodiscard]] PrivateData own_private_data() const;

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
  ProgramTable programs_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<PollLoop<P>>> loops_;
  std::vector<std::string> warnings_;

  mutable std::mutex mutex_;
  std::map<dv::CmId, Managed> links_;
  std::map<dv::CmId, Attempt> attempts_;
  std::vector<Managed> husks_;  // connections that were lost, until the application gives them up by disconnect()
  std::vector<dv::CmId> listeners_;
  std::atomic<std::size_t> link_count_{0};
  std::uint32_t xid_seed_ = 0;

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
