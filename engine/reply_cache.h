// SPDX-License-Identifier: Apache-2.0
#pragma once

// Duplicate requests (RFC 8166 §4.5.5): a Requester that lost its connection sends its Calls again, and those that must
// not run twice get the Reply of their first run instead. Procedures ask for it by Procedure::remember_replies.
//
// A duplicate has the same direction, XID, program, version, procedure and checksum of its RPC Call header, credential
// included, and of those arguments that came without Read chunks, and it is from the same peer: address or process, but
// not port, which is another with each connection. What is kept is the results and nothing of the transport: a replay
// is sent with the chunks of the Call that it answers. Results that were pushed into Write chunks are not kept, nor are
// longer ones than an entry holds.
//
// Bounded: a fixed number of entries in sets, whose oldest Reply makes room. A Call for which there is none runs
// unremembered. A duplicate of a Call that is still running waits for its Reply.
//
// Runs on: any core that runs handlers; a mutex guards the entries. Calls of other procedures never come here.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "engine/call.h"
#include "engine/program.h"

namespace rodeo {

class ReplyCache {
 public:
  struct Key {
    std::uint32_t xid = 0;
    std::uint32_t program = 0;
    std::uint32_t version = 0;
    std::uint32_t procedure = 0;
    bool reverse = false;     // of a connection that we opened, whose XIDs are others (RFC 8167)
    std::uint32_t bytes = 0;  // of the RPC Call, as far as it was looked at
    std::uint64_t checksum = 0;
    std::uint64_t peer = 0;
    bool operator==(const Key&) const = default;
  };
  class Entry;

  /// At most `entries` Replies of at most `bytes` octets of results.
  ReplyCache(std::size_t entries, std::size_t bytes);
  ~ReplyCache();
  ReplyCache(const ReplyCache&) = delete;
  ReplyCache& operator=(const ReplyCache&) = delete;

  /// The procedure as it is to be served: duplicates never reach its handler.
  [[nodiscard]] Procedure wrap(const Program& program, Procedure procedure);

  /// The Call, which has an entry, is over: keeps its results if it succeeded, and answers the duplicates that wait.
  static void settle(CallCore& call) noexcept;

  [[nodiscard]] std::uint64_t replayed() const noexcept { return replayed_.load(std::memory_order_relaxed); }

 private:
  static constexpr std::size_t kWays = 8;  // of a set
  static constexpr std::size_t kMostWaiting = 4;
  /// A procedure behind its wrapper.
  struct Served {
    ReplyCache* cache;
    Procedure procedure;
    std::uint32_t program;
    std::uint32_t version;
  };
  enum class Found : std::uint8_t { kNew, kNoRoom, kDone, kRunning };

  static void serve(Call& call, void* context) noexcept;
  [[nodiscard]] Found find(const Key& key, Entry*& entry) noexcept;
  static void replay(Call& call, std::span<const std::byte> results) noexcept;
  [[nodiscard]] std::uint64_t checksum(std::span<const std::byte> octets) const noexcept;
  [[nodiscard]] std::uint64_t name_of(const Peer& peer) const noexcept;

  std::mutex mutex_;
  std::size_t bytes_;  // of one entry
  std::size_t sets_;
  std::unique_ptr<Entry[]> entries_;
  std::vector<std::byte> results_;  // of all entries, by index
  std::deque<Served> served_;
  std::array<std::uint64_t, 2> secret_;  // so that nobody can make two Calls alike
  std::uint64_t clock_ = 0;              // counts uses
  std::atomic<std::uint64_t> replayed_{0};
};

}  // namespace rodeo
