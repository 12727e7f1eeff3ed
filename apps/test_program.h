// SPDX-License-Identifier: Apache-2.0
#pragma once

// Serves the test program (apps/test_protocol.h) on the public API alone, as an embedder's program would.
//
// Handlers run on poll cores, save those that hash. Bulk data never passes through a buffer of ours: what a Call sends
// by Read chunk is pulled into a buffer that the Call keeps, and FILL pushes from one region that holds the pattern and
// is written once, before the engine starts.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/delay_queue.h"
#include "apps/hash_service.h"
#include "engine/rodeo.h"

namespace rodeo::apps {

class TestProgram {
 public:
  /// What Config::application_bytes must be for payloads up to `bulk_bytes`.
  [[nodiscard]] static std::size_t application_bytes(std::size_t bulk_bytes) noexcept;

  /// Adds the program and its pollers to an engine that has not started, which this must outlive. `bulk_bytes`: the
  /// largest payload, at most what the engine's Config says. `memory`: of the engine's application memory.
  [[nodiscard]] static Result<std::unique_ptr<TestProgram>> add_to(Engine& engine, RegisteredBytes memory,
                                                                   std::size_t bulk_bytes);

  TestProgram(const TestProgram&) = delete;
  TestProgram& operator=(const TestProgram&) = delete;

  /// Answers every Call that is being held back, now and from here on, so that Engine::stop() need not wait for them.
  /// Runs on: any thread.
  void stop_holding_calls() noexcept { stopping_.store(true, std::memory_order_relaxed); }

 private:
  TestProgram(RegisteredBytes pattern, std::size_t max_bytes, std::size_t loops);

  [[nodiscard]] Program program();
  /// One turn of loop `loop`: Calls whose delay is over, and on the first loop whatever hashing gave up on.
  std::size_t turn(std::size_t loop) noexcept;
  [[nodiscard]] RegisteredBytes pattern(std::uint64_t start, std::size_t length) const noexcept;
  [[nodiscard]] DelayQueue* delays_here() noexcept;

  static void null(Call& call, void* context) noexcept;
  static void echo(Call& call, void* context) noexcept;
  static void checksum(Call& call, void* context) noexcept;
  static void checksum_pulled(Call& call, void* context) noexcept;
  static void fill(Call& call, void* context) noexcept;
  static void delay(Call& call, void* context) noexcept;
  static void mirror(Call& call, void* context) noexcept;
  static void mirror_pulled(Call& call, void* context) noexcept;
  static void long_call(Call& call, void* context) noexcept;
  static void long_reply(Call& call, void* context) noexcept;
  static void capture(Call& call, void* context) noexcept;
  static void capture_pulled(Call& call, void* context) noexcept;
  void answer_capture(Call& call, std::span<const std::byte> data) const noexcept;

  RegisteredBytes pattern_;
  std::size_t max_bytes_;
  HashService hashes_;
  std::vector<std::unique_ptr<DelayQueue>> delays_;  // one a loop
  std::atomic<bool> stopping_ = false;
};

}  // namespace rodeo::apps
