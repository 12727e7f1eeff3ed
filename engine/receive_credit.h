// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// The Responder's side of credits (RFC 8166 §3.3.1). What a Requester may have outstanding is what we hold receives
// for: those posted, and those whose message is not answered yet. That sum is the grant, it is never 0, and it moves
// towards the target min(asked for, configured) by posting more receives or by not posting again. A receive is back in
// the queue before the Reply that grants it is sent. Every receive posted is backed by a free Call, so a message never
// lacks one. As long as nobody asks for more or less, a message comes and goes without any of this changing.

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
    while (link.held < link.grant_target && loop_.receive_slots != 0 && loop_.add_receive(link)) {
      ++link.held;
      --loop_.receive_slots;
      loop_.mark_dirty(link);
    }
    update_grant(link);
  }

  /// A message is done with: posts its buffer again, or keeps it back while the grant shrinks (ENG-CR-3). Before the
  /// Reply to it, which grants it again.
  void recycle(Link<P>& link, std::byte* buffer) noexcept {
    if (link.state > LinkState::kOpen) return retire(link, buffer);
    recycle_before_reply(link, buffer);
    loop_.mark_dirty(link);
  }
  /// The same for a link that is marked as dirty when the Reply is posted.
  [[gnu::always_inline]] void recycle_before_reply(Link<P>& link, std::byte* buffer) noexcept {
    if (link.held > link.grant_target) [[unlikely]]
      return keep_back(link, buffer);
    link.qp->repost_receive(buffer);
    loop_.memory.memory().small().set_owner(buffer, pools::Owner::kPosted);
  }

  /// A receive of a connection that is being closed: nothing is posted again. Of those that our own calls had, and of
  /// Calls' messages, either may come first.
  void retire(Link<P>& link, std::byte* buffer) noexcept {
    loop_.drop_receive(link, buffer);
    if (link.held == 0) return;
    --link.held;
    ++loop_.receive_slots;
  }

 private:
  [[gnu::noinline, gnu::cold]] void retarget(Link<P>& link, std::uint32_t requested) noexcept {
    link.last_requested = requested;
    link.grant_target = std::clamp(requested, 1U, link.details->grant_limit);
    top_up(link);
  }
  [[gnu::noinline, gnu::cold]] void keep_back(Link<P>& link, std::byte* buffer) noexcept {
    --link.held;
    loop_.drop_receive(link, buffer);
    ++loop_.receive_slots;
    update_grant(link);
  }
  static void update_grant(Link<P>& link) noexcept {
    link.granted = std::max(1U, std::min(link.held, link.grant_target));
  }

  LoopContext<P>& loop_;
};

}  // namespace rodeo
