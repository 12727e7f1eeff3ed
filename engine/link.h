// SPDX-License-Identifier: Apache-2.0
#pragma once

// One connection as its poll loop sees it. Runs on: the loop's core, but for what is said to be shared.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "dv/device.h"
#include "engine/call_core.h"

namespace rodeo {

enum class LinkState : std::uint8_t {
  kOpening,  // receives are posted, the connection manager is still at it
  kOpen,
  kDraining,  // in error: waits for its work requests to come back, and its Calls to be answered
  kClosed,    // the control thread may destroy it
};

/// The part that does not depend on the provider.
struct LinkBase {
  // Credits of the Responder (RFC 8166 §3.3.1).
  std::uint32_t grant_target = 1;    // where the grant is heading: min(asked for, configured)
  std::uint32_t last_requested = 0;  // rdma_credit of the latest Call
  std::uint32_t held = 0;            // receives posted, and messages taken from receives and not answered yet
  std::uint32_t granted = 1;         // goes into each message: the lesser of the two, and never 0
  std::uint32_t reply_threshold = 1024;
  std::uint32_t call_threshold = 1024;
  std::uint32_t calls_out = 0;  // Calls that exist, also those whose Reply is still being sent
  LinkState state = LinkState::kOpening;
  bool dirty = false;  // has posted something since the last doorbell
  bool drain_posted = false;
  bool in_waiters = false;
  bool in_to_close = false;
  bool may_invalidate = false;  // a Reply may invalidate a key of its Call's: both ends said so (RFC 8797 §4.1)
  CallQueue waiting_for_queue;  // replies and pulls that the send queue had no room for
  dv::CmId cm{};
  std::size_t loop = 0;
  std::atomic<bool> closed{false};  // release: pairs with the control thread's acquire
};

template <dv::Provider P>
class Requester;

template <dv::Provider P>
struct Link : LinkBase {
  typename P::Qp* qp = nullptr;
  Requester<P>* requester = nullptr;  // null: we are the Responder
};

}  // namespace rodeo
