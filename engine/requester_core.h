// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// The Requester's side of one connection. A call occupies a slot from submit() to its Reply; the XID is the slot's
// index and a generation, so a Reply finds its slot by arithmetic and a late or forged one is recognised. A plain call
// is the target's prepared headers, copied into an inline WQE, with XID and credits patched in.
//
// Receives are posted for as many calls as we may ever have out, before the first Send, and each goes back when the
// callback of its Reply has returned (RFC 8166 §3.3.1). A slot stays taken until its Reply or the end of the
// connection, whatever the application does meanwhile: the peer may still use its memory.
//
// What a plain call does is here. What calls with chunks do beyond it is in requester_calls.h, Replies of every other
// form in requester_replies.h, and how a call ends, with its memory out of the peer's reach, in requester_ends.h.

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include "engine/loop_context.h"
#include "engine/requester.h"
#include "engine/transport_header.h"
#include "engine/window_pool.h"
#include "pools/state_memory.h"

namespace rodeo {

template <dv::Provider P>
class alignas(64) Requester final : public Connection {
 public:
  Requester(LoopContext<P>& loop, std::shared_ptr<Link<P>> link, std::uint32_t credits, std::uint32_t xid_seed)
      : loop_(loop),
        link_(*link),
        asked_be_(byte_swap(credits)),
        mask_(std::bit_ceil(credits) - 1),
        asked_(credits),
        slot_memory_(mask_ + 1),
        extras_(std::make_unique_for_overwrite<Extras[]>(credits)),
        windows_(xid_seed),
        ages_(std::make_unique<Age[]>(credits)),
        keeps_(std::move(link)) {
    slots_ = slot_memory_.get();
    for (std::uint32_t i = 0; i < credits; ++i) {
      slots_[i].key = (xid_seed & ~mask_) | i;
      slots_[i].next_free = i + 1;
    }
  }

  [[nodiscard]] SubmitOutcome submit(const CallRequest& request) noexcept override {
    if (in_flight_ >= limit_) return open() ? SubmitOutcome::kNoCredit : SubmitOutcome::kClosed;
    const CallTarget& target = *request.target;
    const auto size = static_cast<std::uint32_t>(target.bytes().size());
    const bool more = (request.arguments.size() | request.sources.size() | request.sinks.size() |
                       std::size_t{request.force_long_call}) != 0;
    if (more || size > short_call_bytes_ || request.max_results > plain_results_) [[unlikely]]
      return submit_more(request);
    std::byte* out = link_.qp->post_plain_send(size);
    if (out == nullptr) [[unlikely]]
      return submit_inline(request, size);
    target.copy_short_to(out);
    begin_plain(out, request);
    return SubmitOutcome::kPosted;
  }

  [[nodiscard]] SubmitOutcome submit(const CallRequest& request, const CallOptions& options,
                                     CallHandle& handle) noexcept override;
  CancelOutcome cancel(CallHandle call, Reclaim reclaim) noexcept override;

  [[nodiscard]] std::uint32_t credits_left() const noexcept override {
    return in_flight_ < limit_ ? limit_ - in_flight_ : 0;
  }
  [[nodiscard]] std::uint32_t in_flight() const noexcept override { return in_flight_; }
  [[nodiscard]] bool open() const noexcept override { return open_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint32_t call_threshold() const noexcept override { return link_.outgoing_threshold; }
  [[nodiscard]] std::uint32_t reply_threshold() const noexcept override { return link_.incoming_threshold; }
  [[nodiscard]] Buffer make_buffer(std::size_t bytes) noexcept override { return loop_.memory.make_buffer(bytes); }
  [[nodiscard]] Registration registration() const noexcept override { return registration_; }
  [[nodiscard]] std::size_t loop() const noexcept override { return link_.details->loop; }

  [[nodiscard]] Link<P>& link() noexcept { return link_; }
  [[nodiscard]] std::uint32_t receives_wanted() const noexcept { return asked_; }

  /// Before the connection is used, on the control side: how the peer reaches our memory, and through which windows.
  void set_registration(Registration registration) noexcept { registration_ = registration; }
  void add_window(std::uint32_t key) { windows_.add(key); }

  /// The connection is up. Release: pairs with open().
  void establish() noexcept {
    plain_call_bytes_ = std::min(link_.outgoing_threshold, link_.qp->max_inline());
    short_call_bytes_ = std::min(plain_call_bytes_, static_cast<std::uint32_t>(CallTarget::kMostShortBytes));
    plain_results_ = link_.incoming_threshold - static_cast<std::uint32_t>(kMinHeaderBytes + kAcceptedReplyBytes);
    limit_ = 1;
    open_.store(true, std::memory_order_release);
  }

  void prefetch() const noexcept { __builtin_prefetch(this); }

  /// A message in `buffer`, which goes back to the receive queue in the end.
  [[gnu::always_inline]] void on_message(std::byte* buffer, std::uint32_t length) noexcept {
    TransportHeader header;
    if (is_plain_msg(buffer, length, header)) [[likely]] {
      const std::uint32_t index = header.xid & mask_;
      Slot& slot = slots_[index];
      const std::byte* rpc = buffer + kMinHeaderBytes;
      if (slot.key == (kPlain | header.xid) && length >= kMinHeaderBytes + kAcceptedReplyBytes &&
          accepted_success(rpc, header.xid)) [[likely]] {
        heed(header.credit);
        loop_.plain_reply.results = {rpc + kAcceptedReplyBytes, length - kMinHeaderBytes - kAcceptedReplyBytes};
        const ReplyHandler on_reply = slot.on_reply;
        void* context = slot.context;
        free_slot(slot, index);
        loop_.count(Count::kRepliesReceived);
        on_reply(context, loop_.plain_reply);
        return repost(buffer);
      }
    }
    if (!on_uncommon(buffer, length)) repost(buffer);
  }
  /// The same when the message's arrival made `key`, a window's, unusable (RFC 8797 §4.1).
  void on_invalidating_message(std::byte* buffer, std::uint32_t length, std::uint32_t key) noexcept;

  // How calls end; see requester_ends.h.

  /// All windows of the call in slot `index` are invalidated.
  void on_fenced(std::uint32_t index) noexcept;
  /// The send queue may have room again for invalidations.
  void retry_fences() noexcept;
  [[nodiscard]] bool fences_wait() const noexcept { return waiting_count_ != 0; }
  /// Ends calls that have waited for too long. Some times per timeout. `now_ms` is a coarse clock's time, never 0.
  void sweep(std::uint64_t now_ms) noexcept;
  /// A Call without a Reply for so long means that the peer has gone: RC has no keep-alive. 0: never.
  void set_silence_limit(std::uint32_t milliseconds) noexcept { silence_ms_ = milliseconds; }
  /// Ends every call: the connection has gone, and with it the peer's reach into our memory.
  void fail_all() noexcept;

  void close() noexcept {
    open_.store(false, std::memory_order_release);
    limit_ = 0;
  }

 private:
  // What a slot's key has beside the XID: nothing while it is free.
  static constexpr std::uint64_t kPlain = std::uint64_t{1} << 32U;
  static constexpr std::uint64_t kWithExtras = std::uint64_t{2} << 32U;
  static constexpr std::uint64_t kAbandoned = std::uint64_t{4} << 32U;  // the application has been told that it is over
  struct alignas(32) Slot {
    ReplyHandler on_reply = nullptr;
    void* context = nullptr;
    std::uint64_t key = 0;
    std::uint32_t next_free = 0;  // while it is free
    [[nodiscard]] std::uint32_t xid() const noexcept { return static_cast<std::uint32_t>(key); }
    [[nodiscard]] bool has_extras() const noexcept { return (key & kWithExtras) != 0; }
    [[nodiscard]] bool abandoned() const noexcept { return (key & kAbandoned) != 0; }
  };
  /// What a call with chunks holds until its Reply, and until its memory is out of the peer's reach.
  struct Extras {
    ChunkLists lists;
    Buffer long_call;
    Buffer long_reply;
    std::array<std::uint32_t, kMaxWriteChunks> written;
    std::uint32_t sink_count = 0;
    std::size_t max_results = 0;
    WindowList windows;
    CallError verdict = CallError::kNone;  // cancelled or timed out: how it ends whatever comes
    bool lends = false;                    // memory of the application's
    bool replied = false;                  // nothing more will come for it
    bool fencing = false;                  // its windows are being invalidated
    std::uint32_t next_waiting = 0;
    std::byte* message = nullptr;  // the receive buffer that `ending` points into
    Reply ending;                  // what the application will be told

    Extras() noexcept {}
  };
  /// Since when a slot has been taken, as far as sweeps have seen.
  struct Age {
    std::uint32_t xid = 0;
    std::uint32_t timeout_ms = 0;
    std::uint64_t since_ms = 0;  // 0: no sweep has seen it
    Reclaim reclaim = Reclaim::kWhenAnswered;
  };

  /// Takes a slot for a plain call whose message is in its WQE, and makes the message its own.
  [[gnu::always_inline]] void begin_plain(std::byte* out, const CallRequest& request) noexcept {
    const std::uint32_t xid = byte_swap(take_slot(request, kPlain));
    std::memcpy(out + kXidOffset, &xid, sizeof xid);
    std::memcpy(out + kCreditOffset, &asked_be_, sizeof asked_be_);
    std::memcpy(out + kMinHeaderBytes, &xid, sizeof xid);
    loop_.mark_dirty(link_);
  }
  /// Apart from submit(), which thus calls nothing but at its end, and has no register to save.
  [[nodiscard, gnu::noinline]] SubmitOutcome submit_more(const CallRequest& request) noexcept {
    const std::size_t size = request.target->bytes().size() + request.arguments.size();
    const bool chunks = (request.sources.size() | request.sinks.size() | std::size_t{request.force_long_call}) != 0;
    if (chunks || size > plain_call_bytes_ || request.max_results > plain_results_) return submit_general(request);
    return submit_inline(request, static_cast<std::uint32_t>(size));
  }
  /// A plain call with arguments, or with a long header, or one whose Send the queue has to look after.
  [[nodiscard, gnu::noinline]] SubmitOutcome submit_inline(const CallRequest& request, std::uint32_t size) noexcept {
    std::byte* out = link_.qp->post_inline_send(size);
    if (out == nullptr) return SubmitOutcome::kSendQueueFull;
    request.target->copy_to(out);
    if (!request.arguments.empty()) {
      std::memcpy(out + request.target->bytes().size(), request.arguments.data(), request.arguments.size());
    }
    begin_plain(out, request);
    return SubmitOutcome::kPosted;
  }

  /// Returns the XID.
  [[gnu::always_inline]] std::uint32_t take_slot(const CallRequest& request, std::uint64_t kind) noexcept {
    Slot& slot = slots_[first_free_];
    first_free_ = slot.next_free;
    slot.on_reply = request.on_reply;
    slot.context = request.context;
    slot.key |= kind;
    ++in_flight_;
    loop_.count(Count::kCallsSubmitted);
    return slot.xid();
  }
  /// From here on a Reply to the XID that the slot had is late, and the application may submit at once.
  [[gnu::always_inline]] void free_slot(Slot& slot, std::uint32_t index) noexcept {
    slot.key = slot.xid() + mask_ + 1;
    --in_flight_;
    slot.next_free = std::exchange(first_free_, index);
  }

  /// nullptr when no call has this XID.
  [[nodiscard]] Slot* find(std::uint32_t xid) noexcept {
    Slot& slot = slots_[xid & mask_];
    return slot.xid() == xid && slot.key >= kPlain ? &slot : nullptr;
  }

  [[nodiscard]] static bool accepted_success(const std::byte* rpc, std::uint32_t xid) noexcept {
    // XID, REPLY, MSG_ACCEPTED, verifier AUTH_NONE of length 0, SUCCESS.
    std::uint64_t first;
    std::uint64_t second;
    std::uint64_t third;
    std::memcpy(&first, rpc, 8);
    std::memcpy(&second, rpc + 8, 8);
    std::memcpy(&third, rpc + 16, 8);
    const std::uint64_t expected = byte_swap((std::uint64_t{xid} << 32U) | static_cast<std::uint32_t>(MsgType::kReply));
    return ((first ^ expected) | second | third) == 0;
  }

  /// ENG-CR-1: a grant of 0 counts as 1, one above our own request as our request.
  [[gnu::always_inline]] void heed(std::uint32_t granted) noexcept {
    if (granted == granted_) [[likely]]
      return;
    granted_ = granted;
    if (open_.load(std::memory_order_relaxed)) limit_ = std::clamp(granted, 1U, asked_);
  }

  [[gnu::always_inline]] void repost(std::byte* buffer) noexcept {
    if (link_.state > LinkState::kOpen) [[unlikely]]
      return loop_.drop_receive(link_, buffer);
    link_.qp->repost_receive(buffer);
    loop_.mark_dirty(link_);
  }

  [[nodiscard]] std::uint32_t index_of(const Slot& slot) const noexcept {
    return static_cast<std::uint32_t>(&slot - slots_);
  }

  // requester_calls.h
  [[nodiscard]] bool choose_slot(std::uint32_t xid) noexcept;
  [[nodiscard, gnu::noinline]] SubmitOutcome submit_general(const CallRequest& request) noexcept;
  [[nodiscard]] bool plan_chunks(const CallRequest& request, std::size_t rpc_header_bytes, Extras& extras) noexcept;
  [[nodiscard]] SubmitOutcome check_windows(const Extras& extras) const noexcept;
  void bind_windows(Extras& extras) noexcept;
  [[nodiscard]] std::uint32_t bind_window(Extras& extras, const Segment& segment, dv::WindowAccess access) noexcept;
  [[nodiscard]] static SubmitOutcome abandon_plan(Extras& extras, SubmitOutcome outcome) noexcept;
  [[nodiscard]] Segment segment_of(std::span<const std::byte> bytes) const noexcept;

  // requester_replies.h
  /// True when the buffer is kept for now.
  [[nodiscard, gnu::noinline]] bool on_uncommon(std::byte* message, std::uint32_t length) noexcept;
  [[nodiscard]] bool end_by_error(Slot& slot, std::uint32_t granted, CallError error) noexcept;
  [[nodiscard]] bool drop_late(Slot& slot, std::uint32_t granted) noexcept;
  bool discard(HeaderOutcome outcome) noexcept;
  [[nodiscard, gnu::cold]] bool on_bad_header(std::byte* message, std::uint32_t length, HeaderOutcome outcome) noexcept;
  [[nodiscard, gnu::cold]] bool on_call(std::byte* message, std::uint32_t length) noexcept;

  // requester_ends.h
  [[nodiscard]] bool finish(Slot& slot, const Reply& reply, std::byte* message) noexcept;
  void fence(Slot& slot) noexcept;
  void post_invalidations(Slot& slot) noexcept;
  void complete(Slot& slot, Reply& reply) noexcept;
  void tell_verdict(Slot& slot, CallError verdict) noexcept;
  void drop(Slot& slot) noexcept;
  CancelOutcome abandon(Slot& slot, CallError verdict, Reclaim reclaim) noexcept;
  void ask_to_close() noexcept;

  static inline const ChunkLists kNoLists;

  // One line with what a plain call and its Reply need.
  LoopContext<P>& loop_;
  Link<P>& link_;
  Slot* slots_ = nullptr;
  std::uint32_t asked_be_;
  std::uint32_t limit_ = 0;    // while open; RFC 8166 §3.3.3: one until the first Reply
  std::uint32_t granted_ = 1;  // by the latest Reply, as it stood there
  std::uint32_t in_flight_ = 0;
  std::uint32_t mask_;
  std::uint32_t first_free_ = 0;        // of the slots, last in first out; there is one as long as limit_ allows a call
  std::uint32_t short_call_bytes_ = 0;  // longest call without arguments that submit() handles itself
  // Longest results, and longest call, that need neither chunk nor buffer.
  std::uint32_t plain_results_ = 0;
  std::uint32_t plain_call_bytes_ = 0;
  std::uint32_t asked_;  // credits asked for, and receives posted
  pools::StateArray<Slot> slot_memory_;
  std::unique_ptr<Extras[]> extras_;  // by slot
  std::atomic<bool> open_{false};
  Registration registration_ = Registration::kPoolKey;
  WindowPool windows_;
  // Slots whose invalidations wait for room in the send queue, first in first out, through Extras::next_waiting.
  std::uint32_t waiting_count_ = 0;
  std::uint32_t first_waiting_ = 0;
  std::uint32_t last_waiting_ = 0;
  std::unique_ptr<Age[]> ages_;  // by slot
  std::uint32_t silence_ms_ = 0;
  std::shared_ptr<Link<P>> keeps_;  // what link_ is, also when the connection has gone
};

}  // namespace rodeo
