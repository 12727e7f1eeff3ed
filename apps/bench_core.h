// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path, save for construction. Runs on: one poll core.
// The closed loop of one core of `rodeo bench`: a slot for each call of the window; a slot's next call leaves when its
// Reply comes. What a connection will not take yet (credits, queues, buffers) waits in line for the next turns.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

#include "apps/bench_call.h"
#include "apps/histogram.h"
#include "engine/requester.h"

namespace rodeo::apps {

inline constexpr std::size_t kCallErrors = static_cast<std::size_t>(CallError::kConnectionLost) + 1;
inline constexpr std::size_t kSubmitOutcomes = static_cast<std::size_t>(SubmitOutcome::kClosed) + 1;

/// What one core counted; added up over the cores for the report.
struct BenchCounts {
  std::uint64_t calls = 0;  // measured and right
  std::uint64_t payload_bytes = 0;
  std::array<std::uint64_t, kCallErrors> errors{};        // by CallError; kNone: accepted, but not SUCCESS
  std::uint64_t mismatches = 0;                           // the wrong contents
  std::array<std::uint64_t, kSubmitOutcomes> refusals{};  // calls that had to wait, by reason
  std::uint64_t unsendable = 0;                           // calls that never will be: too large

  void add(const BenchCounts& other) noexcept;
  [[nodiscard]] std::uint64_t error_count() const noexcept;
};

class BenchCore {
 public:
  struct Setup {
    const Mix* mix = nullptr;
    std::uint32_t window = 0;
    RegisteredBytes pattern;
    RegisteredBytes sinks;  // of all slots
    bool verify = true;
    nfs::FileHandle nfs_file;                                         // of the mix's NFS calls
    std::uint64_t quota = std::numeric_limits<std::uint64_t>::max();  // calls to measure
    int news_fd = -1;  // an eventfd that hears of the first failure and of the end; -1: nobody listens
  };
  explicit BenchCore(const Setup& setup);
  BenchCore(const BenchCore&) = delete;
  BenchCore& operator=(const BenchCore&) = delete;

  /// Octets of sinks that one slot needs for `mix`.
  [[nodiscard]] static std::size_t sink_bytes(const Mix& mix) noexcept;

  /// The three below run on the core (Engine::run_on_loop). Times are ticks; begin() measures from `from` until `until`
  /// or the quota.
  void begin(std::span<Connection* const> connections, std::uint64_t from, std::uint64_t until) noexcept;
  void stop_sending() noexcept;
  [[nodiscard]] std::size_t turn() noexcept;

  /// Any thread.
  [[nodiscard]] bool finished() const noexcept { return finished_.load(std::memory_order_acquire); }
  [[nodiscard]] bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t replies() const noexcept { return replies_.load(std::memory_order_relaxed); }

  /// Once finished, or on the core.
  [[nodiscard]] const BenchCounts& counts() const noexcept { return counts_; }
  [[nodiscard]] const Histogram& histogram() const noexcept { return histogram_; }
  [[nodiscard]] std::uint64_t measured_ticks() const noexcept { return measured_until_ - measured_from_; }

 private:
  struct Slot {
    BenchCore* core;
    Connection* connection;
    PreparedCall* call;  // the one under way
    std::uint64_t sent_ticks;
    PreparedCall* const* calls;  // one for each shape
  };
  enum class Phase : std::uint8_t { kIdle, kWarmUp, kMeasure, kOver };

  static void on_reply(void* context, const Reply& reply) noexcept;
  void completed(Slot& slot, const Reply& reply) noexcept;
  /// Chooses the slot's next call and sends it.
  void next_call(Slot& slot, std::uint64_t now) noexcept;
  void send(Slot& slot, std::uint64_t now) noexcept;
  [[gnu::noinline, gnu::cold]] void refused(Slot& slot, SubmitOutcome outcome) noexcept;
  [[gnu::noinline, gnu::cold]] void note_error(const Reply& reply) noexcept;
  void retry_waiting(std::uint64_t now) noexcept;
  void change_phase(std::uint64_t now) noexcept;
  void stop_measuring(std::uint64_t now) noexcept;
  /// Marks the run as failed, and wakes whoever waits for it when that is news.
  [[gnu::noinline, gnu::cold]] void note_failure() noexcept;
  [[gnu::noinline, gnu::cold]] void tell() noexcept;

  // Hot.
  bool sending_ = false;
  bool measuring_ = false;
  bool verify_;
  Phase phase_ = Phase::kIdle;
  std::uint32_t in_flight_ = 0;
  std::size_t cursor_ = 0;  // into the schedule
  std::vector<std::uint16_t> schedule_;
  std::uint64_t quota_;
  std::uint64_t done_ = 0;  // while measuring, right or wrong
  std::uint64_t phase_ends_ = 0;
  std::uint64_t replies_seen_ = 0;
  BenchCounts counts_;

  std::size_t next_connection_ = 0;
  bool rotate_ = false;  // more connections than slots
  std::span<Connection* const> connections_;
  std::vector<Slot*> waiting_;  // a ring
  std::size_t waiting_first_ = 0;
  std::size_t waiting_count_ = 0;

  std::uint64_t measure_until_ = 0;
  std::uint64_t measured_from_ = 0;
  std::uint64_t measured_until_ = 0;
  std::deque<CallShape> shapes_;
  std::deque<PreparedCall> calls_;
  std::vector<PreparedCall*> calls_by_slot_;
  std::vector<Slot> slots_;
  Histogram histogram_;
  int news_fd_;

  alignas(64) std::atomic<std::uint64_t> replies_ = 0;
  std::atomic<bool> finished_ = false;
  std::atomic<bool> failed_ = false;
};

}  // namespace rodeo::apps
