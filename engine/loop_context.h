// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the parts of one poll loop share. Runs on: the loop's core; counters may be read from anywhere.

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "engine/call_core.h"
#include "engine/counters.h"
#include "engine/header_outcome.h"
#include "engine/known_calls.h"
#include "engine/link.h"
#include "engine/memory.h"
#include "engine/program_table.h"
#include "engine/requester.h"
#include "engine/transport_header.h"

namespace rodeo {

/// Calls for one worker core. Sized for every Call of every loop, so a push never fails.
using WorkRing = pools::MpscRing<CallCore*>;

struct LoopLimits {
  std::uint32_t credits = 128;         // most that one Requester is granted
  std::uint32_t message_bytes = 4096;  // of one receive buffer
  std::uint32_t calls = 1024;          // that may be unanswered at once on this loop
  std::uint64_t read_bytes = 1 << 22;  // of all Read chunks of a Call together
};

/// A token is an index and, in its low two bits, what to do with it.
enum class TokenKind : std::uint8_t { kFence = 0, kCall = 1, kSmallBuffer = 2, kDrain = 3 };
inline constexpr std::uint32_t kFirstFence = 1;  // of kFence's indexes, as token 0 means none
[[nodiscard]] constexpr dv::Token make_token(TokenKind kind, std::uint32_t index) noexcept {
  return (index << 2U) | static_cast<std::uint32_t>(kind);
}

template <dv::Provider P>
class Responder;

template <dv::Provider P>
struct LoopContext {
  LoopContext(Memory& engine_memory, const dv::MemoryRegion& memory_region, const ProgramTable& table,
              const LoopLimits& loop_limits, std::unique_ptr<ReturnRing> ring)
      : memory(engine_memory),
        region(memory_region),
        programs(table),
        limits(loop_limits),
        calls(2 * loop_limits.calls),
        chunks(2 * loop_limits.calls),
        receive_slots(loop_limits.calls),
        returned(std::move(ring)) {}

  CoreMemory memory;
  dv::MemoryRegion region;
  const ProgramTable& programs;
  LoopLimits limits;
  pools::CounterBlock<Count> counters;
  /// Each outcome but kOk of a received header, at either role.
  std::array<std::uint64_t, kHeaderOutcomeCount> header_outcomes{};
  KnownCalls known_calls;
  Slab<CallCore> calls;
  Slab<CallChunks> chunks;
  std::uint32_t receive_slots;  // Calls not spoken for: a receive is posted for a Responder only against one of these
  std::unique_ptr<ReturnRing> returned;
  std::vector<WorkRing*> workers;
  std::vector<Link<P>*> dirty;  // the first dirty_count: what has posted something since the last doorbell
  std::size_t dirty_count = 0;
  std::vector<Link<P>*> waiters;                           // links that are to be looked at
  std::vector<std::unique_ptr<SharedReceives<P>>> shared;  // receive queues that links share
  std::vector<Link<P>*> to_close;     // links that broke a rule, or could not be told that their peer did
  Responder<P>* responder = nullptr;  // the loop's own, for Requesters that are called themselves
  // Of the call of ours that is being completed: its Reply when it is plain, and the Reply's chunk lists when not.
  Reply plain_reply;
  ChunkLists reply_lists;
  // For the control thread, which need not look at every link then.
  std::atomic<std::uint32_t> links_closed{0};         // ever; release: pairs with the control thread's acquire
  std::atomic<std::uint32_t> shortest_timeout_ms{0};  // of the calls ever made here; 0: none

  [[gnu::always_inline]] void count(Count counter, std::uint64_t n = 1) noexcept { counters.add(counter, n); }
  void count(HeaderOutcome outcome) noexcept {
    const std::atomic_ref<std::uint64_t> value(header_outcomes[static_cast<std::size_t>(outcome)]);
    value.store(value.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);  // one writer
  }

  /// Its doorbell will be rung, and its receives published, when the burst is over.
  [[gnu::always_inline]] void mark_dirty(Link<P>& link) noexcept {
    if (link.dirty) return;
    link.dirty = true;
    dirty[dirty_count++] = &link;  // there is room for every link: see PollLoop::attach
  }
  /// The loop closes it when the burst is over.
  [[gnu::cold]] void close_soon(Link<P>& link) noexcept {
    if (std::exchange(link.in_to_close, true)) return;
    to_close.push_back(&link);  // there is room for every link: see PollLoop::attach
  }
  void wait_for_queue(Link<P>& link, CallCore& call) noexcept {
    count(Count::kSendQueueWaits);
    link.details->waiting_for_queue.push(&call);
    call_again(link);
  }
  /// The loop looks at the link in its next turn: something waits there, or it is to be closed.
  void call_again(Link<P>& link) noexcept {
    if (link.in_waiters) return;
    link.in_waiters = true;
    waiters.push_back(&link);
  }

  /// One more receive on the link's account. False when there is no buffer for it, or no room.
  [[nodiscard]] bool add_receive(Link<P>& link) noexcept {
    if (link.shared != nullptr && link.shared->spare != 0) {
      --link.shared->spare;
    } else {
      std::byte* buffer = memory.get_small(pools::Owner::kPosted);
      if (buffer == nullptr) return false;
      if (!link.qp->post_receive(buffer, limits.message_bytes, region.lkey)) {
        memory.put_small(buffer);
        return false;
      }
    }
    ++link.details->receives;
    return true;
  }
  /// `buffer`, of a receive that a message of the link has taken, is not posted again.
  [[gnu::noinline, gnu::cold]] void drop_receive(Link<P>& link, std::byte* buffer) noexcept {
    if (link.details->receives == 0 && link.shared != nullptr) {
      // Its peer sent more than it was granted: this one is on another link's account.
      link.qp->repost_receive(buffer);
      memory.memory().small().set_owner(buffer, pools::Owner::kPosted);
      return;
    }
    if (link.details->receives != 0) --link.details->receives;
    memory.put_small(buffer);
  }

  [[nodiscard]] dv::Sge sge(const std::byte* address, std::size_t length) const noexcept {
    return {address, static_cast<std::uint32_t>(length), region.lkey};
  }
};

}  // namespace rodeo
