// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs on: poll core.
//
// Messages that are not plain Replies: Replies with chunks, errors, those of calls that were given up, and whatever is
// to be discarded (RFC 8166 §4.5: a Requester never answers). A function that returns bool says whether the message's
// buffer is kept: the results of a call lie in it until the call's memory is out of the peer's reach.

#include "engine/requester_core.h"
#include "engine/responder.h"

namespace rodeo {

namespace requester_replies {

/// What follows the transport header is an RPC Call.
[[nodiscard]] inline bool is_call(const std::byte* message, std::size_t header, std::size_t length) noexcept {
  return length >= header + 8 && load_be32(message + header + 4) == static_cast<std::uint32_t>(MsgType::kCall);
}

[[nodiscard]] inline bool any_written(const ChunkLists& returned) noexcept {
  return std::ranges::any_of(returned.write_chunks(), [](const WriteChunk& chunk) { return chunk.capacity != 0; });
}

/// A Write chunk came back unused, and the results are longer than they can be without what belongs there.
[[nodiscard]] inline bool left_inline(std::span<const std::uint32_t> written, std::size_t most,
                                      std::size_t results) noexcept {
  return results > most && std::ranges::any_of(written, [](std::uint32_t octets) { return octets == 0; });
}

}  // namespace requester_replies

template <dv::Provider P>
bool Requester<P>::on_uncommon(std::byte* message, std::uint32_t length) noexcept {
  TransportHeader header;
  ChunkLists& lists = loop_.reply_lists;
  const HeaderOutcome outcome = decode_reply_header({message, length}, header, lists);
  if (outcome != HeaderOutcome::kOk) return on_bad_header(message, length, outcome);
  if (header.proc == Proc::kMsg && requester_replies::is_call(message, header.header_bytes, length)) [[unlikely]]
    return on_call(message, length);
  Slot* slot = find(header.xid);
  Extras* extras = slot != nullptr && slot->has_extras() ? &extras_[index_of(*slot)] : nullptr;
  if (slot == nullptr || (extras != nullptr && extras->replied)) {
    loop_.count(Count::kRepliesUnknownXid);
    return false;
  }
  if (slot->abandoned()) return drop_late(*slot, header.credit);
  if (header.proc == Proc::kError) {
    return end_by_error(*slot, header.credit,
                        header.rdma_err == RdmaErr::kVers ? CallError::kErrVers : CallError::kErrChunk);
  }
  const ChunkLists& offered = extras != nullptr ? extras->lists : kNoLists;
  // RFC 8166 §6.1: the Responder reduced a result for which the Call offered no Write chunk. The RPC ends for good; the
  // connection goes on.
  if (offered.write_chunk_count == 0 && requester_replies::any_written(lists)) {
    return end_by_error(*slot, header.credit, CallError::kBadReply);
  }
  const HeaderOutcome returned = check_returned_lists(offered, lists);
  if (returned != HeaderOutcome::kOk) return discard(returned);
  std::span<const std::byte> rpc{message + header.header_bytes, length - header.header_bytes};
  if (header.proc == Proc::kNomsg) {
    // check_returned_lists has seen that the chunk is ours and no longer than what we offered.
    if (extras == nullptr || !extras->long_reply) return discard(HeaderOutcome::kReplyChunkLength);
    rpc = {extras->long_reply.data(), static_cast<std::size_t>(lists.reply_capacity)};
    if (load_be32(rpc.data()) != header.xid) return discard(HeaderOutcome::kXidMismatch);
  }
  ReplyHeader head;
  if (decode_reply(rpc, head) != ReplyOutcome::kOk) return discard(HeaderOutcome::kTruncated);
  if (extras != nullptr) {
    extras->written.fill(0);
    for (std::uint16_t i = 0; i < lists.write_chunk_count && i < extras->sink_count; ++i) {
      extras->written[i] = static_cast<std::uint32_t>(lists.write_table[i].capacity);
    }
    // RFC 8166 §6.1 again: a result for which there was a Write chunk was not reduced.
    if (head.success() && requester_replies::left_inline(std::span(extras->written).first(extras->sink_count),
                                                         extras->max_results, rpc.size() - head.results_offset)) {
      return end_by_error(*slot, header.credit, CallError::kBadReply);
    }
  }
  heed(header.credit);
  Reply reply;
  reply.accept_stat = head.accept_stat;
  if (head.reply_stat == ReplyStat::kDenied) reply.error = CallError::kDenied;
  reply.results = rpc.subspan(head.results_offset);
  loop_.count(extras != nullptr && extras->verdict != CallError::kNone ? Count::kRepliesLate : Count::kRepliesReceived);
  return finish(*slot, reply, message);
}

/// A Call may look like a bad Reply: with a Read list, for one.
template <dv::Provider P>
bool Requester<P>::on_bad_header(std::byte* message, std::uint32_t length, HeaderOutcome outcome) noexcept {
  return classify({message, length}) == Direction::kCall ? on_call(message, length) : discard(outcome);
}

/// RFC 8167: the peer calls us. Where we called back ourselves, its Calls have never come here.
template <dv::Provider P>
bool Requester<P>::on_call(std::byte* message, std::uint32_t length) noexcept {
  if (link_.requester != this) return discard(HeaderOutcome::kXidMismatch);
  loop_.responder->on_reverse_call(link_, message, length);
  return true;
}

template <dv::Provider P>
void Requester<P>::on_invalidating_message(std::byte* buffer, std::uint32_t length, std::uint32_t key) noexcept {
  Slot* slot = length < kFixedHeaderBytes ? nullptr : find(load_be32(buffer + kXidOffset));
  if (slot == nullptr || !slot->has_extras() || !windows_.invalidated_remotely(extras_[index_of(*slot)].windows, key))
      [[unlikely]] {
    // Whose memory it was that the peer took away, and what else it may do, nobody knows (protocol.md ENG-8797-2).
    loop_.count(Count::kForeignInvalidations);
    loop_.close_soon(link_);
    return repost(buffer);
  }
  loop_.count(Count::kWindowsInvalidatedByPeer);
  if (!on_uncommon(buffer, length)) repost(buffer);
}

template <dv::Provider P>
bool Requester<P>::end_by_error(Slot& slot, std::uint32_t granted, CallError error) noexcept {
  heed(granted);
  const bool given_up = slot.has_extras() && extras_[index_of(slot)].verdict != CallError::kNone;
  loop_.count(given_up ? Count::kRepliesLate : Count::kRequestsFailed);
  Reply reply;
  reply.error = error;
  return finish(slot, reply, nullptr);
}

/// The application has been told that the call is over; this gives its credit back.
template <dv::Provider P>
bool Requester<P>::drop_late(Slot& slot, std::uint32_t granted) noexcept {
  heed(granted);
  loop_.count(Count::kRepliesLate);
  return finish(slot, {}, nullptr);
}

template <dv::Provider P>
bool Requester<P>::discard(HeaderOutcome outcome) noexcept {
  loop_.count(outcome);
  loop_.count(Count::kRepliesDiscarded);
  return false;
}

}  // namespace rodeo
