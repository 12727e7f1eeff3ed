// SPDX-License-Identifier: Apache-2.0
#pragma once

// One connection as its poll loop sees it. Runs on: the loop's core, but for what is said to be shared.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "dv/device.h"
#include "engine/call_core.h"
#include "pools/state_memory.h"

namespace rodeo {

class Connection;

enum class LinkState : std::uint8_t {
  kOpening,  // receives are posted, the connection manager is still at it
  kOpen,
  kDraining,  // in error: waits for its work requests to come back, and its Calls to be answered
  kClosed,    // the control thread may destroy it
};

/// What of a connection only the less usual needs.
struct LinkDetails {
  CallQueue waiting_for_queue;                  // replies and pulls that the send queue had no room for
  std::uint32_t grant_limit = 1;                // most that the peer's Calls are granted
  std::vector<std::uint32_t> reverse_programs;  // of `opened_here`: those that the peer may call
  std::weak_ptr<Connection> calls_by;           // our own calls to this peer; empty where we make none
  dv::CmId cm{};
  std::size_t loop = 0;
  std::atomic<bool> closed{false};  // release: pairs with the control thread's acquire
  /// Posted on its account, and taken by its messages and not posted again. Of a shared queue, whose messages they take
  /// is another matter, but the sum of all links is what the queue has.
  std::uint32_t receives = 0;
  const Peer* peer = nullptr;  // who opened the connection; the control thread's, as long as the link has Calls
};

/// The part that does not depend on the provider.
struct LinkBase {
  // Credits of the Responder (RFC 8166 §3.3.1).
  std::uint32_t grant_target = 1;    // where the grant is heading: min(asked for, configured)
  std::uint32_t last_requested = 0;  // rdma_credit of the latest Call
  std::uint32_t held = 0;            // receives posted, and messages taken from receives and not answered yet
  std::uint32_t granted = 1;         // goes into each message: the lesser of the two, and never 0
  // The largest Send each way, whoever calls (RFC 8167 §4.2).
  std::uint32_t outgoing_threshold = 1024;
  std::uint32_t incoming_threshold = 1024;
  std::uint32_t calls_out = 0;  // Calls that exist, also those whose Reply is still being sent
  LinkState state = LinkState::kOpening;
  bool dirty = false;  // has posted something since the last doorbell
  bool drain_posted = false;
  bool in_waiters = false;
  bool in_to_close = false;
  bool own_calls_ended = false;
  bool opened_here = false;     // we are the Requester, and Calls that come are in reverse direction (RFC 8167)
  bool may_invalidate = false;  // a Reply may invalidate a key of its Call's: both ends said so (RFC 8797 §4.1)
  const std::unique_ptr<LinkDetails> details = std::make_unique<LinkDetails>();

  /// Whether the peer was told that it may call us. One that calls all the same is answered as well.
  [[nodiscard]] bool serves() const noexcept { return !opened_here || !details->reverse_programs.empty(); }
  /// In reverse direction.
  [[nodiscard]] bool may_call(std::uint32_t program) const noexcept {
    return std::ranges::find(details->reverse_programs, program) != details->reverse_programs.end();
  }
};

template <dv::Provider P>
class Requester;

/// A shared receive queue, and what the loop knows of it. Runs on: the loop's core.
template <dv::Provider P>
struct SharedReceives {
  typename P::Srq* srq = nullptr;
  std::uint32_t links = 0;  // that are attached and take from it
  std::uint32_t spare = 0;  // posted on the account of links that have gone
};

/// What each message needs of it is in its first line.
template <dv::Provider P>
struct alignas(64) Link : LinkBase {
  typename P::Qp* qp = nullptr;
  Requester<P>* requester = nullptr;    // null: the peer opened the connection, and we are the Responder
  Requester<P>* reverse = nullptr;      // then: our calls in reverse direction, if any are to be made
  SharedReceives<P>* shared = nullptr;  // where receives come from; null: the QP has its own
  [[nodiscard]] Requester<P>* own_calls() const noexcept { return requester != nullptr ? requester : reverse; }
  [[nodiscard]] static std::shared_ptr<Link> make() {
    return std::allocate_shared<Link>(pools::state_allocator<Link>());
  }
};

}  // namespace rodeo
