// SPDX-License-Identifier: Apache-2.0
#pragma once

// What one poll loop counts. Refusals and drops each have a name of their own; header outcomes are counted apart, by
// their own table (engine/header_outcome.h).

#include <array>
#include <cstdint>

#include "pools/counters.h"

namespace rodeo {

enum class Count : std::uint8_t {
  kCallsReceived,
  kRepliesSent,
  kRepliesInline,
  kLongReplies,
  kErrVersSent,
  kErrChunkSent,
  kRpcErrorsSent,
  kKeysInvalidated,
  kCallsHandedOff,
  kCallsDeferred,
  kLongCallsPulled,
  kReadBytesPulled,
  kWriteBytesPushed,
  kCallsSubmitted,
  kRepliesReceived,
  kRepliesUnknownXid,
  kRepliesDiscarded,
  kRequestsFailed,
  kRequestsAbandoned,
  kRepliesLate,
  kWindowsBound,
  kWindowsInvalidated,
  kWindowsInvalidatedByPeer,
  kForeignInvalidations,
  kSilentPeers,
  kReverseCallsReceived,
  kReverseChunks,
  kReverseReplies,
  kMessagesNotForUs,
  kCallsOverrun,
  kStaleCompletions,
  kErrorCompletions,
  kSendQueueWaits,
  kBufferWaits,
  kBufferRefusals,
  kHandlerMisuse,
  kRepliesDropped,
  kConnectionsOpened,
  kConnectionsClosed,
  kCount,
};

[[nodiscard]] constexpr std::array<pools::CounterInfo, static_cast<std::size_t>(Count::kCount)> counter_table(
    Count) noexcept {
  return {{
      {"calls_received", "well-formed Calls taken from receive buffers"},
      {"replies_sent", "Replies posted, of every form"},
      {"replies_inline", "Replies that were one inline WQE"},
      {"long_replies", "Replies written to a Reply chunk (RDMA_NOMSG)"},
      {"err_vers_sent", "RDMA_ERROR messages with ERR_VERS"},
      {"err_chunk_sent", "RDMA_ERROR messages with ERR_CHUNK"},
      {"rpc_errors_sent", "Replies that reject or deny at the RPC level"},
      {"keys_invalidated", "Replies that made a key of their Call unusable (Send With Invalidate)"},
      {"calls_handed_off", "Calls passed to a worker core"},
      {"calls_deferred", "Calls whose handler answered later"},
      {"long_calls_pulled", "Calls pulled through a Position-Zero Read chunk"},
      {"read_bytes_pulled", "octets moved by RDMA Read"},
      {"write_bytes_pushed", "octets moved by RDMA Write"},
      {"calls_submitted", "Calls sent as Requester"},
      {"replies_received", "Replies matched to one of our Calls"},
      {"replies_unknown_xid", "messages with an XID that is not outstanding, discarded"},
      {"replies_discarded", "malformed Replies, discarded"},
      {"requests_failed", "Calls of ours that ended without a Reply"},
      {"requests_abandoned", "of them, those that were cancelled or timed out"},
      {"replies_late", "Replies to Calls that were cancelled or had timed out, dropped"},
      {"windows_bound", "memory windows bound for segments of our Calls"},
      {"windows_invalidated", "of them, those that we invalidated"},
      {"windows_invalidated_by_peer", "of them, those that a Reply invalidated"},
      {"foreign_invalidations", "messages that invalidated a key which is not their Call's; the connection is closed"},
      {"silent_peers", "connections closed since a Call had waited too long for its Reply"},
      {"reverse_calls_received", "of calls_received, those on connections that we opened (RFC 8167)"},
      {"reverse_chunks", "of them, those with chunks, which are not taken there (answered ERR_CHUNK)"},
      {"reverse_replies", "messages for our own calls on connections that the peer opened (RFC 8167)"},
      {"messages_not_for_us", "well-formed messages for a role this connection does not have, discarded"},
      {"calls_overrun", "messages of peers that ignored their grant; the connection is closed"},
      {"stale_completions", "completions of queue pairs that are gone, or that match nothing posted"},
      {"error_completions", "work requests that failed or were flushed"},
      {"send_queue_waits", "times a Reply or pull waited for room in the send queue"},
      {"buffer_waits", "times a Call waited for a bulk buffer"},
      {"buffer_refusals", "Calls that held a bulk buffer when there was no second one (answered SYSTEM_ERR)"},
      {"handler_misuse", "handlers that returned without ending their Call (answered SYSTEM_ERR)"},
      {"replies_dropped", "Replies to connections that had gone"},
      {"connections_opened", "connections attached to this loop"},
      {"connections_closed", "connections that left this loop"},
  }};
}

}  // namespace rodeo
