// SPDX-License-Identifier: Apache-2.0
#pragma once

// Sends one open file after another to the engine's HASH procedures, several blocks in flight, read from the file
// straight into registered memory that the engine pulls from. With `back`, every block then makes a round trip by
// MIRROR: pulled by Read chunk, returned by Write chunk, compared.
// Runs on: one thread, which also turns the engine's loop.

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "apps/test_protocol.h"
#include "engine/rodeo.h"

namespace rodeo::apps {

using Sha256 = std::array<std::byte, kSha256Bytes>;

class SumStream {
 public:
  struct Setup {
    std::string address;
    std::size_t block_bytes = 0;
    std::uint32_t blocks_in_flight = 0;
    bool back = false;
    bool hugepages = true;
  };
  /// Called now and then with the octets done so far.
  using Progress = std::function<void(std::uint64_t)>;

  [[nodiscard]] static Result<std::unique_ptr<SumStream>> open(const Setup& setup);
  ~SumStream();
  SumStream(const SumStream&) = delete;
  SumStream& operator=(const SumStream&) = delete;

  /// The hash of what can be read from `file` until its end. After an Error further files may be tried unless
  /// useless() says that the engine is gone.
  [[nodiscard]] Result<Sha256> hash(int file, const Progress& progress);
  [[nodiscard]] bool useless() const noexcept;

 private:
  enum class Stage : std::uint8_t { kFree, kHash, kMirror };
  struct Slot {
    SumStream* stream = nullptr;
    Stage stage = Stage::kFree;
    bool unsent = false;  // the connection had no room for it
    std::uint32_t length = 0;
    std::uint64_t offset = 0;
    RegisteredBytes block;
    RegisteredBytes returned;
    BulkSource source;
    RegisteredBytes sink;
    std::array<std::byte, 20> arguments{};
  };
  struct Answer {
    bool done = false;
    std::string failure;
    std::array<std::byte, 64> results{};
    std::size_t results_bytes = 0;
  };

  SumStream(const Setup& setup, std::unique_ptr<Engine> engine);

  [[nodiscard]] Result<void> begin_session();
  [[nodiscard]] Result<Sha256> end_session();
  /// One call without bulk data, waited for; its results.
  [[nodiscard]] Result<Answer> ask(const CallTarget& target, std::span<const std::byte> arguments);
  /// Fills free slots from the file and sends them.
  void read_ahead(int file, bool regular);
  void send(Slot& slot) noexcept;
  void send_waiting() noexcept;
  void take_reply(Slot& slot, const Reply& reply) noexcept;
  /// The error that says `why`, and of a lost connection what the device tells about it.
  [[nodiscard]] tl::unexpected<Error> failed(std::string why);
  void give_up(std::string why) noexcept;
  [[nodiscard]] bool busy() const noexcept { return free_slots_ != slots_.size(); }
  /// Turns the loop once; false, with failure_ set, when nothing came for too long or the user stops us.
  bool turn();
  static std::string failure_of(const Reply& reply);

  std::string address_;
  bool back_;
  std::size_t block_bytes_;
  std::deque<Slot> slots_;
  std::size_t free_slots_ = 0;
  CallTarget begin_;
  CallTarget update_;
  CallTarget end_;
  CallTarget mirror_;

  std::uint64_t session_ = 0;
  std::size_t usable_block_bytes_ = 0;  // ours or the engine's limit
  std::uint64_t read_offset_ = 0;
  std::uint64_t done_bytes_ = 0;
  bool end_of_file_ = false;
  std::string failure_;  // of the file at hand
  std::uint64_t replies_ = 0;
  std::uint64_t replies_noticed_ = 0;
  std::chrono::steady_clock::time_point heard_;
  bool useless_ = false;
  Connection* connection_ = nullptr;
  std::unique_ptr<Engine> engine_;  // gone first: it calls back into the slots
};

}  // namespace rodeo::apps
