// SPDX-License-Identifier: Apache-2.0
#pragma once

// Moves a whole file between a server and the caller, with several READs or WRITEs under way. READ's data comes by
// Write chunk straight into registered blocks, WRITE's is pulled by Read chunk straight from them; what is short enough
// goes inline. The caller sees blocks in the order of the file. Runs on: the client's thread.

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "apps/nfs/nfs_client.h"
#include "engine/binding.h"

namespace rodeo::nfs {

class FileTransfer {
 public:
  /// Takes what was read, from the start of the file to its end.
  using Sink = std::function<Result<void>(std::span<const std::byte>)>;
  /// Fills `into` with what the file holds from `offset` on, as far as there is; 0 at its end. Begins again at 0 when
  /// the server has lost what it had not made stable.
  using Source = std::function<Result<std::size_t>(std::uint64_t offset, RegisteredBytes into)>;
  /// Called several times a second with the octets done so far.
  using Progress = std::function<void(std::uint64_t)>;

  /// `window` blocks of `block_bytes` of the client's application_bytes, which must hold them. Outlived by the client.
  FileTransfer(NfsClient& client, std::uint32_t block_bytes, std::uint32_t window);
  FileTransfer(const FileTransfer&) = delete;
  FileTransfer& operator=(const FileTransfer&) = delete;

  /// To the end of the file, wherever that is when it is met; `expected_bytes` is what it was. Returns the octets read.
  [[nodiscard]] NfsResult<std::uint64_t> read(const FileHandle& file, std::uint64_t expected_bytes,
                                              const FsLimits& limits, const Sink& sink, const Progress& progress = {});
  /// UNSTABLE, then COMMIT; all of it again when the write verifier says that the server may have lost some of it
  /// (RFC 1813 §3.3.21). Returns the octets written, which are stable.
  [[nodiscard]] NfsResult<std::uint64_t> write(const FileHandle& file, const FsLimits& limits, const Source& source,
                                               const Progress& progress = {});

 private:
  using Clock = std::chrono::steady_clock;
  enum class State : std::uint8_t { kFree, kToSend, kOut, kComplete };
  struct Slot {
    FileTransfer* owner = nullptr;
    State state = State::kFree;
    bool eof = false;
    std::uint64_t offset = 0;  // of the block in the file
    std::uint32_t length = 0;  // of the block
    std::uint32_t done = 0;    // octets of it that have been moved
    Clock::time_point not_before;
    RegisteredBytes block;
    std::optional<BoundCall> call{};
    std::array<std::byte, 4352> room{};  // arguments, with WRITE's data where the Call is inline
  };

  void begin(const FileHandle& file, bool writing, const Progress& progress);
  void start(Slot& slot, std::uint64_t offset, std::uint32_t length);
  void send(Slot& slot);
  void send_waiting();
  static void on_reply(void* context, const Reply& reply) noexcept;
  void take_reply(Slot& slot, const Reply& reply);
  void take_read(Slot& slot, BoundResults& results);
  void take_write(Slot& slot, BoundResults& results);
  void moved(Slot& slot, std::uint32_t count);
  /// Turns the loop until something came. False when nothing does, or when we are to stop.
  bool turn();
  void fail_with(NfsFailure failure);
  /// Nothing of the server's touches the blocks any more.
  void drain();
  [[nodiscard]] NfsResult<void> outcome();
  [[nodiscard]] NfsResult<std::uint64_t> write_once(const FileHandle& file, std::uint32_t block, const Source& source,
                                                    const Progress& progress);
  [[nodiscard]] Slot& slot_at(std::size_t index) noexcept { return slots_[(head_ + index) % slots_.size()]; }

  NfsClient& client_;
  std::uint32_t block_bytes_;
  CallTarget read_target_;
  CallTarget write_target_;
  std::vector<Slot> slots_;  // a ring: `used_` from `head_` on, in the order of the file
  std::size_t head_ = 0;
  std::size_t used_ = 0;

  // Of the file at hand.
  FileHandle file_;
  bool writing_ = false;
  std::optional<NfsFailure> failure_{};
  std::optional<Verf3> verifier_{};
  bool unstable_ = false;   // something is not stable before a COMMIT
  bool forgotten_ = false;  // the verifier changed
  bool lost_ = false;       // the connection
  std::size_t out_ = 0;     // calls without a reply
  std::uint64_t moved_bytes_ = 0;
  std::uint64_t answers_ = 0;  // that tell us something
  Clock::time_point heard_;
  Clock::time_point shown_;
  const Progress* progress_ = nullptr;
};

}  // namespace rodeo::nfs
