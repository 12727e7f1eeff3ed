// SPDX-License-Identifier: Apache-2.0
#pragma once

// Replies of procedures that must not be executed twice (RFC 1813 §4.3), for clients that lost their connection before
// the Reply came and send the Call again over the next one. Kept is what follows accept_stat: headers and chunks are
// those of the Call that asks again. A Call is known by its XID, procedure, credential and arguments, and not by its
// connection, whose port may be any.
//
// Where the first Call is still with its store, the second waits for it.
// Hot path. Runs on: poll cores.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "apps/nfs/spin_lock.h"
#include "engine/call.h"

namespace rodeo::nfs {

class ReplyCache {
 public:
  /// The longest results kept: those of CREATE and its like take 280 octets.
  static constexpr std::size_t kMaxResults = 320;

  ReplyCache();
  ReplyCache(const ReplyCache&) = delete;
  ReplyCache& operator=(const ReplyCache&) = delete;

  /// What became of a Call when it was begun.
  enum class Begun : std::uint8_t {
    kNew,       // to be executed; `ticket` is for finish() or cancel()
    kAnswered,  // again, from here
    kWaits,     // deferred until the first is done; then `again` is its next stage
  };
  [[nodiscard]] Begun begin(Call& call, Handler again, std::uint64_t& ticket) noexcept;
  /// Keeps the results of a Call that was kNew.
  void finish(std::uint64_t ticket, std::span<const std::byte> results) noexcept { end(ticket, &results); }
  /// It was not executed.
  void cancel(std::uint64_t ticket) noexcept { end(ticket, nullptr); }

 private:
  static constexpr std::size_t kWays = 8;
  static constexpr std::size_t kSets = 256;
  enum class State : std::uint8_t { kFree, kRunning, kDone };
  struct Entry {
    std::uint64_t key = 0;
    std::uint64_t age = 0;
    State state = State::kFree;
    std::uint16_t size = 0;
    DeferredCall waiting;
    Handler again = nullptr;
    std::array<std::byte, kMaxResults> results;
  };

  [[nodiscard]] std::uint64_t key_of(const Call& call) const noexcept;
  void end(std::uint64_t ticket, const std::span<const std::byte>* results) noexcept;
  [[nodiscard]] std::span<Entry> set_of(std::uint64_t key) noexcept { return {&entries_[key % kSets * kWays], kWays}; }

  SpinLock lock_;
  std::uint64_t seed_;
  std::uint64_t age_ = 0;
  std::unique_ptr<Entry[]> entries_;
};

}  // namespace rodeo::nfs
