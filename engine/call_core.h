// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the loops keep of one Call. It belongs to its poll loop's slab; between a hand-off and the return it is the
// worker's (or, once deferred, the application's) alone. What a NULL call touches comes first.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/call.h"
#include "engine/read_list.h"
#include "pools/ring.h"

namespace rodeo {

class CoreMemory;
class CallCore;
struct LinkBase;

/// Calls on their way back to their poll loop, from workers and from whoever answers a deferred one.
using ReturnRing = pools::MpscRing<CallCore*>;

/// How a stage of a handler ended, and so what the poll loop does next.
enum class Ending : std::uint8_t { kNone, kReply, kReject, kPull, kWaitForBuffer };

/// RFC 8166 §3.5: how a Reply travels. kErrChunk: the Requester's chunks are too small for it.
enum class ReplyForm : std::uint8_t { kMsg, kNomsg, kErrChunk };

/// MSG_DENIED instead of MSG_ACCEPTED (RFC 5531 §9).
enum class Denial : std::uint8_t { kNone, kRpcMismatch, kAuthError };

/// One DDP-eligible result that is to go into a Write chunk.
struct Push {
  RegisteredBytes source;                   // all of it, or
  std::span<const RegisteredBytes> pieces;  // where it lies; else empty
  std::uint16_t chunk = 0;                  // index in ChunkLists::write_chunks()
  void (*done)(void*) noexcept = nullptr;
  void* done_context = nullptr;

  [[nodiscard]] std::span<const RegisteredBytes> all() const noexcept {
    return pieces.empty() ? std::span<const RegisteredBytes>{&source, 1} : pieces;
  }
};
/// Octets of all of them.
[[nodiscard]] inline std::size_t bytes_of(std::span<const RegisteredBytes> pieces) noexcept {
  std::size_t bytes = 0;
  for (const RegisteredBytes& piece : pieces) bytes += piece.size();
  return bytes;
}
inline constexpr std::size_t kMaxPushes = kMaxWriteChunks;
inline constexpr std::size_t kMaxKept = 2;

/// Where a Call's RDMA Writes have got to, when the send queue could not take all at once.
struct WriteCursor {
  std::uint16_t left = 0;  // Writes still to post
  std::uint16_t push = 0;  // also counts the Long Reply's own Write, as the one after the last push
  std::uint16_t segment = 0;
  std::uint32_t segment_done = 0;  // octets of it
  std::uint32_t piece = 0;         // of the present push
  std::uint32_t piece_done = 0;    // octets of it
};

/// Only Calls with chunks have one of these.
struct CallChunks {
  ChunkLists lists;
  ReadChunks reads;
  ReturnedLengths returned;
  std::array<Push, kMaxPushes> pushes;
  std::uint16_t push_count = 0;
  std::uint16_t next_write_chunk = 0;  // the Write chunk that the next push takes
  std::uint16_t reads_taken = 0;       // data Read chunks that the handler has consumed
  std::uint32_t unreduced_shift = 0;   // octets, with pads, that consumed chunks took out of the stream
  WriteCursor writes;
  CallChunks() noexcept {}
};

/// How far a Call has come. One word, so that one comparison tells that there is nothing special about it.
struct alignas(8) CallProgress {
  Ending ending = Ending::kNone;
  ReplyForm form = ReplyForm::kMsg;
  std::uint8_t tokens_out = 0;  // completions that the Call waits for: three at most
  std::uint8_t kept_count = 0;
  bool has_end_hook = false;
  bool results_open = false;
  bool reply_prepared = false;  // the form of the Reply is decided
  bool send_posted = false;

  [[nodiscard]] std::uint64_t word() const noexcept { return std::bit_cast<std::uint64_t>(*this); }
};

class CallCore final : public Call, public CallProgress {
 public:
  CallCore() noexcept = default;

  LinkBase* link = nullptr;
  std::byte* message = nullptr;  // the receive buffer
  std::uint32_t index = 0;       // in the slab, from 1; for good
  bool results_refused = false;  // what the handler needs does not fit what the Requester provided
  bool pulling = false;          // RDMA Reads are posted or waiting to be
  bool recognised = false;       // its header was seen before
  bool waiting = false;          // in a CallQueue, which alone may drop it
  Denial denial = Denial::kNone;
  AuthStat auth_stat = AuthStat::kOk;
  std::uint32_t version_low = 0;  // kProgMismatch: versions served
  std::uint32_t version_high = 0;
  AcceptStat reject_with = AcceptStat::kSuccess;
  CallChunks* chunks = nullptr;
  const Procedure* serving = nullptr;
  Handler next_stage = nullptr;
  // The Payload stream: inline, or pulled.
  const std::byte* payload = nullptr;
  std::uint32_t payload_bytes = 0;
  mutable CallHeader rpc;  // where the header was recognised: XID and args_offset, and the rest when asked for
  // Results: a buffer whose first `results_offset` octets are left for the headers.
  std::byte* results_buffer = nullptr;
  std::uint32_t results_offset = 0;
  bool results_bulk = false;
  XdrWriter writer{{}};
  std::byte* stream_buffer = nullptr;  // bulk: the Long Call
  // The pull under way: `pull_left` octets of chunk `pull_chunk` (none when negative) go to `pull_sink`, and when that
  // is full to `pull_more`.
  RegisteredBytes pull_sink;
  std::span<const RegisteredBytes> pull_more;
  std::uint32_t pull_left = 0;
  std::int32_t pull_chunk = -1;
  std::uint32_t pull_segment = 0;
  std::uint32_t pull_segment_done = 0;  // octets of it
  BulkArgument waiting_argument;        // what the buffer is for that the Call waits for,
  bool waits_for_results = false;       // unless it is for its results, of that length
  std::array<Buffer, kMaxKept> kept_buffers;
  void (*end_hook)(void*) noexcept = nullptr;  // with has_end_hook
  void* end_context = nullptr;
  std::array<std::uint64_t, 4> user_state{};
  CallCore* next = nullptr;    // in one queue at a time
  ReturnRing* home = nullptr;  // for good

  /// Answered with success and no results, and it holds nothing but its message.
  [[nodiscard, gnu::always_inline]] bool plainly_answered() const noexcept {
    constexpr CallProgress kPlain{.ending = Ending::kReply};
    return word() == std::bit_cast<std::uint64_t>(kPlain) && chunks == nullptr;
  }
};

[[nodiscard]] inline CallCore& core_of(Call& call) noexcept { return static_cast<CallCore&>(call); }
[[nodiscard]] inline const CallCore& core_of(const Call& call) noexcept { return static_cast<const CallCore&>(call); }

// Set by defer(), read when the stage returns: by then the Call may already be someone else's.
extern constinit thread_local bool deferred_in_stage;

/// Runs one stage of the Call's handler. True when the Call was deferred: it must then not be touched any more.
[[nodiscard, gnu::always_inline]] inline bool run_stage(CallCore& call) noexcept {
  deferred_in_stage = false;
  call.ending = Ending::kNone;
  call.next_stage(call, call.serving->context);
  return deferred_in_stage;
}

/// First in, first out, through CallCore::next.
class CallQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return head_ == nullptr; }
  [[nodiscard]] CallCore* front() const noexcept { return head_; }
  void push(CallCore* call) noexcept {
    call->waiting = true;
    call->next = nullptr;
    (head_ == nullptr ? head_ : tail_->next) = call;
    tail_ = call;
  }
  CallCore* pop() noexcept {
    CallCore* call = head_;
    head_ = call->next;
    call->waiting = false;
    return call;
  }

 private:
  CallCore* head_ = nullptr;
  CallCore* tail_ = nullptr;
};

/// A fixed number of objects, handed out last in first out, constructed when first needed. Owned by one core.
template <class T>
class Slab {
 public:
  explicit Slab(std::uint32_t capacity)
      : storage_(static_cast<T*>(::operator new (sizeof(T) * capacity, std::align_val_t{64}))),
        free_(std::make_unique_for_overwrite<T*[]>(capacity)),
        capacity_(capacity) {}
  ~Slab() {
    for (std::uint32_t i = 0; i < made_; ++i) storage_[i].~T();
    ::operator delete (storage_, std::align_val_t{64});
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;

  /// nullptr when all are out. What is new is told its index by made(object, index).
  template <class Made>
  [[nodiscard, gnu::always_inline]] T* take(Made&& made) noexcept {
    if (free_count_ != 0) [[likely]]
      return free_[--free_count_];
    if (made_ == capacity_) return nullptr;
    T* object = new (&storage_[made_]) T();
    made(*object, made_++);
    return object;
  }
  [[nodiscard]] T* take() noexcept {
    return take([](T&, std::uint32_t) {});
  }
  [[gnu::always_inline]] void give_back(T* object) noexcept { free_[free_count_++] = object; }
  [[nodiscard]] T& at(std::uint32_t index) noexcept { return storage_[index]; }
  [[nodiscard]] std::uint32_t out() const noexcept { return made_ - free_count_; }
  [[nodiscard]] std::uint32_t capacity() const noexcept { return capacity_; }

 private:
  T* storage_;
  std::unique_ptr<T*[]> free_;
  std::uint32_t capacity_;
  std::uint32_t made_ = 0;
  std::uint32_t free_count_ = 0;
};

}  // namespace rodeo
