// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs on: poll core.
//
// How calls end. An application gets its memory back, by the callback, only when the peer cannot reach it any more
// (RFC 8166 §4.4): windows are invalidated first, and a call that was given up with its memory in a key of the pool
// waits for its late Reply. Where an invalidation fails the queue pair fails with it, and the call ends when the
// connection has gone.
//
//   outstanding ── Reply ──▶ fencing ── invalidated ──▶ told, slot free
//        └─ cancelled, timed out ──▶ told at once, when it lent nothing; or fencing first; ── late Reply ──▶ slot free
//
// A call that was given up keeps its slot and its credit until the late Reply: the Responder knows of nothing.

#include "engine/requester_core.h"

namespace rodeo {

/// Nothing more will come for the call. True when `message`, into which `reply` points, is kept until it is told.
template <dv::Provider P>
bool Requester<P>::finish(Slot& slot, const Reply& reply, std::byte* message) noexcept {
  Reply ending = reply;
  if (slot.has_extras()) {
    Extras& extras = extras_[index_of(slot)];
    extras.replied = true;
    if (extras.verdict != CallError::kNone) {
      ending = {};
      ending.error = extras.verdict;
      message = nullptr;
    }
    extras.ending = ending;
    if (extras.fencing) return false;
    if (extras.windows.bound != 0) {
      extras.message = message;
      fence(slot);
      return message != nullptr;
    }
    windows_.release(extras.windows);
  }
  slot.abandoned() ? drop(slot) : complete(slot, ending);
  return false;
}

template <dv::Provider P>
void Requester<P>::fence(Slot& slot) noexcept {
  Extras& extras = extras_[index_of(slot)];
  extras.fencing = true;
  loop_.count(Count::kWindowsInvalidated, extras.windows.bound);
  post_invalidations(slot);
}

template <dv::Provider P>
void Requester<P>::post_invalidations(Slot& slot) noexcept {
  if (link_.state != LinkState::kOpen) return;  // the call ends with the connection
  const std::uint32_t index = index_of(slot);
  const bool all =
      windows_.invalidate(*link_.qp, extras_[index].windows, make_token(TokenKind::kFence, index + kFirstFence));
  loop_.mark_dirty(link_);
  if (all) return;
  (waiting_count_ == 0 ? first_waiting_ : extras_[last_waiting_].next_waiting) = index;
  last_waiting_ = index;
  ++waiting_count_;
  loop_.count(Count::kSendQueueWaits);
  loop_.call_again(link_);
}

template <dv::Provider P>
void Requester<P>::retry_fences() noexcept {
  for (std::uint32_t left = std::exchange(waiting_count_, 0); left != 0; --left) {
    const std::uint32_t index = first_waiting_;
    first_waiting_ = extras_[index].next_waiting;
    if (waiting_count_ != 0) {
      // One had no room, and so have those behind it: they keep their order.
      extras_[last_waiting_].next_waiting = index;
      last_waiting_ = index;
      ++waiting_count_;
      continue;
    }
    post_invalidations(slots_[index]);
  }
}

template <dv::Provider P>
void Requester<P>::on_fenced(std::uint32_t token_index) noexcept {
  const std::uint32_t index = token_index - kFirstFence;
  Slot& slot = slots_[index];
  Extras& extras = extras_[index];
  extras.fencing = false;
  windows_.release(extras.windows);
  if (!extras.replied) return tell_verdict(slot, extras.verdict);
  if (slot.abandoned()) return drop(slot);
  // The callback may take the slot again.
  std::byte* message = std::exchange(extras.message, nullptr);
  Reply ending = extras.ending;
  complete(slot, ending);
  if (message != nullptr) repost(message);
}

/// Frees the slot, then tells the application, which may submit at once.
template <dv::Provider P>
void Requester<P>::complete(Slot& slot, Reply& reply) noexcept {
  const ReplyHandler on_reply = slot.on_reply;
  void* context = slot.context;
  const std::uint32_t index = index_of(slot);
  // All of it moves here, so that the callback finds the slot free.
  Buffer long_call;
  Buffer long_reply;
  std::array<std::uint32_t, kMaxWriteChunks> written;
  if (slot.has_extras()) {
    Extras& extras = extras_[index];
    long_call = std::move(extras.long_call);
    long_reply = std::move(extras.long_reply);
    written = extras.written;
    if (extras.verdict == CallError::kNone) reply.written = {written.data(), extras.sink_count};
  }
  free_slot(slot, index);
  on_reply(context, reply);
}

/// Tells the application that the call is over for it. The slot waits for the late Reply.
template <dv::Provider P>
void Requester<P>::tell_verdict(Slot& slot, CallError verdict) noexcept {
  slot.key = (slot.key & ~kPlain) | kAbandoned;
  Reply reply;
  reply.error = verdict;
  slot.on_reply(slot.context, reply);
}

/// The end of a call whose application has been told.
template <dv::Provider P>
void Requester<P>::drop(Slot& slot) noexcept {
  const std::uint32_t index = index_of(slot);
  if (slot.has_extras()) static_cast<void>(abandon_plan(extras_[index], SubmitOutcome::kClosed));
  free_slot(slot, index);
}

template <dv::Provider P>
CancelOutcome Requester<P>::cancel(CallHandle call, Reclaim reclaim) noexcept {
  Slot* slot = find(call.xid);
  return slot == nullptr ? CancelOutcome::kUnknown : abandon(*slot, CallError::kCancelled, reclaim);
}

template <dv::Provider P>
CancelOutcome Requester<P>::abandon(Slot& slot, CallError verdict, Reclaim reclaim) noexcept {
  Extras* extras = slot.has_extras() ? &extras_[index_of(slot)] : nullptr;
  if (slot.abandoned() || (extras != nullptr && extras->replied)) return CancelOutcome::kUnknown;
  if (extras == nullptr || extras->verdict == CallError::kNone) {
    loop_.count(Count::kRequestsFailed);
    loop_.count(Count::kRequestsAbandoned);
    if (extras != nullptr) extras->verdict = verdict;
  }
  if (extras == nullptr || !extras->lends) {
    tell_verdict(slot, verdict);
    return CancelOutcome::kEnded;
  }
  if (reclaim == Reclaim::kWhenAnswered || extras->fencing) return CancelOutcome::kPending;
  if (registration_ == Registration::kKeyPerCall) {
    fence(slot);
  } else {
    ask_to_close();
  }
  return CancelOutcome::kPending;
}

template <dv::Provider P>
void Requester<P>::ask_to_close() noexcept {
  loop_.close_soon(link_);
  loop_.call_again(link_);
}

template <dv::Provider P>
void Requester<P>::sweep(std::uint64_t now_ms) noexcept {
  bool silent = false;
  for (std::uint32_t index = 0; index < asked_; ++index) {
    Slot& slot = slots_[index];
    if (slot.key < kPlain) continue;
    Age& age = ages_[index];
    if (age.xid != slot.xid()) age = {.xid = slot.xid()};
    if (age.since_ms == 0) age.since_ms = now_ms;
    const std::uint64_t waited = now_ms - age.since_ms;
    // More, not as much: the clock counts whole milliseconds.
    silent = silent || (silence_ms_ != 0 && waited > silence_ms_);
    if (age.timeout_ms == 0 || waited <= age.timeout_ms) continue;
    age.timeout_ms = 0;
    (void)abandon(slot, CallError::kTimedOut, age.reclaim);
  }
  if (!silent || !open()) return;
  loop_.count(Count::kSilentPeers);
  ask_to_close();
}

template <dv::Provider P>
void Requester<P>::fail_all() noexcept {
  close();
  waiting_count_ = 0;
  for (std::uint32_t index = 0; index < asked_; ++index) {
    Slot& slot = slots_[index];
    if (slot.key < kPlain) continue;
    Reply ending;
    ending.error = CallError::kConnectionLost;
    bool counted = false;
    std::byte* message = nullptr;
    if (slot.has_extras()) {
      Extras& extras = extras_[index];
      extras.windows = {};  // they die with the queue pair
      message = std::exchange(extras.message, nullptr);
      counted = extras.replied || extras.verdict != CallError::kNone;
      if (extras.replied) {
        ending = extras.ending;
      } else if (extras.verdict != CallError::kNone) {
        ending.error = extras.verdict;
      }
    }
    if (slot.abandoned()) {
      drop(slot);
      continue;
    }
    if (!counted) loop_.count(Count::kRequestsFailed);
    complete(slot, ending);
    if (message != nullptr) repost(message);
  }
}

}  // namespace rodeo
