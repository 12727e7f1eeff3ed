// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// The Responder's side of credits (RFC 8166 §3.3.1). What a Requester may have outstanding is what we hold receives
// for: `receives posted + Calls unanswered`. That sum is the grant, it is never 0, and it moves towards the target
// min(asked for, configured) by posting more receives or by not posting again. A receive is back in the queue before
// the Reply that grants it is sent. Every receive posted is backed by a free Call, so a message never lacks one.

#include <algorithm>

#include "engine/loop_context.h"

namespace rodeo {

template <dv::Provider P>
class ReceiveCredit {
 public:
  explicit ReceiveCredit(LoopContext<P>& loop) noexcept : loop_(loop) {}

  /// A message asked for `requested` credits; 0 counts as 1 (ENG-CR-4).
  [[gnu::always_inline]] void heed(Link<P>& link, std::uint32_t requested) noexcept {
    if (requested != link.last_requested) [[unlikely]]
      retarget(link, requested);
  }

  /// Posts receives until the grant is what it should be, as far as Calls and buffers go.
  void top_up(Link<P>& link) noexcept {
    while (link.qp->receives_posted() + link.unanswered < link.grant_target && loop_.receive_slots != 0) {
      std::byte* buffer = loop_.memory.get_small(pools::Owner::kPosted);
      if (buffer == nullptr) return;
      if (!link.qp->post_receive(buffer, loop_.limits.message_bytes, loop_.region.lkey)) {
        loop_.memory.put_small(buffer);
        return;
      }
      --loop_.receive_slots;
      loop_.mark_dirty(link);
    }
  }

  /// A receive buffer is done with: posts it again, or keeps it back while the grant shrinks (ENG-CR-3).
  [[gnu::always_inline]] void recycle(Link<P>& link, std::byte* buffer) noexcept {
    if (link.state == LinkState::kOpen && link.qp->receives_posted() + link.unanswered < link.grant_target &&
        link.qp->post_receive(buffer, loop_.limits.message_bytes, loop_.region.lkey)) [[likely]] {
      loop_.memory.memory().small().set_owner(buffer, pools::Owner::kPosted);
      loop_.mark_dirty(link);
      return;
    }
    loop_.memory.put_small(buffer);
    ++loop_.receive_slots;
  }

  [[nodiscard, gnu::always_inline]] std::uint32_t granted(const Link<P>& link) const noexcept {
    return std::max(1U, std::min(link.qp->receives_posted() + link.unanswered, link.grant_target));
  }

  /// The Call's Reply is about to be posted: its receive goes back first. Returns the grant for the Reply.
  [[nodiscard, gnu::always_inline]] std::uint32_t answer(Link<P>& link, CallCore& call) noexcept {
    --link.unanswered;
    recycle(link, std::exchange(call.message, nullptr));
    return granted(link);
  }

 private:
  [[gnu::noinline, gnu::cold]] void retarget(Link<P>& link, std::uint32_t requested) noexcept {
    link.last_requested = requested;
    link.grant_target = std::clamp(requested, 1U, loop_.limits.credits);
    top_up(link);
  }

  LoopContext<P>& loop_;
};

}  // namespace rodeo
