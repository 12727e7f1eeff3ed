// SPDX-License-Identifier: Apache-2.0
#pragma once

// What a micro-benchmark reports beside time: per operation nanoseconds, allocations, and user instructions where the
// machine lets us count them (many virtual machines do not).
//
// A batch that Google Benchmark runs to find its iteration count is overwritten by the next; the last one is shown.

#include <benchmark/benchmark.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "bench/allocation_counter.h"

namespace rodeo::bench {

/// The processor's count of user instructions of this thread; unavailable() where the kernel or the hypervisor says no.
class InstructionCounter {
 public:
  InstructionCounter() noexcept {
    perf_event_attr attributes{};
    attributes.size = sizeof attributes;
    attributes.type = PERF_TYPE_HARDWARE;
    attributes.config = PERF_COUNT_HW_INSTRUCTIONS;
    attributes.exclude_kernel = 1;
    attributes.exclude_hv = 1;
    fd_ = static_cast<int>(::syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0));
  }
  InstructionCounter(const InstructionCounter&) = delete;
  InstructionCounter& operator=(const InstructionCounter&) = delete;
  ~InstructionCounter() {
    if (fd_ >= 0) ::close(fd_);
  }

  [[nodiscard]] bool available() const noexcept { return fd_ >= 0; }
  [[nodiscard]] std::uint64_t read() const noexcept {
    std::uint64_t count = 0;
    if (fd_ < 0 || ::read(fd_, &count, sizeof count) != static_cast<ssize_t>(sizeof count)) return 0;
    return count;
  }

 private:
  int fd_ = -1;
};

/// Make one before the benchmark's loop and call report() after it.
class PerOperation {
 public:
  explicit PerOperation(benchmark::State& state) noexcept
      : state_(state),
        allocations_(allocation_count()),
        instructions_(counter_.read()),
        start_(std::chrono::steady_clock::now()) {}

  /// `per_iteration`: operations in one turn of the loop.
  void report(std::uint64_t per_iteration) {
    const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start_;
    const std::uint64_t instructions = counter_.read() - instructions_;
    const std::uint64_t allocations = allocation_count() - allocations_;
    const double operations = static_cast<double>(state_.iterations()) * static_cast<double>(per_iteration);
    state_.counters["ns/op"] = took.count() / operations;
    state_.counters["allocs/op"] = static_cast<double>(allocations) / operations;
    if (counter_.available()) state_.counters["instr/op"] = static_cast<double>(instructions) / operations;
    state_.SetItemsProcessed(static_cast<std::int64_t>(operations));
  }

 private:
  benchmark::State& state_;
  InstructionCounter counter_;
  std::uint64_t allocations_;
  std::uint64_t instructions_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace rodeo::bench
