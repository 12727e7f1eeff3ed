// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs on: poll core.
//
// Calls that are not plain: with chunks, Long Calls, and messages too long to be inline. Everything that a call needs
// is seen to be there before anything is posted: buffers, room in the send queue, and memory windows where the peer
// gets a key per Call. Then the windows are bound and the Send follows them in the same queue, so that it never names a
// key that is not yet good (RFC 8166 §8.1).

#include "engine/requester_core.h"
#include "engine/xdr_pad.h"

namespace rodeo {

template <dv::Provider P>
SubmitOutcome Requester<P>::submit(const CallRequest& request, const CallOptions& options,
                                   CallHandle& handle) noexcept {
  if (options.xid != 0 && !choose_slot(options.xid)) return open() ? SubmitOutcome::kNoCredit : SubmitOutcome::kClosed;
  const std::uint32_t index = first_free_;  // that the call takes
  const SubmitOutcome outcome = submit(request);
  if (outcome != SubmitOutcome::kPosted) return outcome;
  handle.xid = slots_[index].xid();
  ages_[index] = {.xid = handle.xid, .timeout_ms = options.timeout_ms, .since_ms = 0, .reclaim = options.reclaim};
  const std::uint32_t shortest = loop_.shortest_timeout_ms.load(std::memory_order_relaxed);
  if (options.timeout_ms != 0 && (shortest == 0 || options.timeout_ms < shortest)) {
    loop_.shortest_timeout_ms.store(options.timeout_ms, std::memory_order_relaxed);
  }
  return outcome;
}

/// Makes the next call have this XID. False when its slot is taken, or there is none.
template <dv::Provider P>
bool Requester<P>::choose_slot(std::uint32_t xid) noexcept {
  const std::uint32_t index = xid & mask_;
  std::uint32_t* link = &first_free_;
  for (std::uint32_t left = asked_ - in_flight_; left != 0; --left, link = &slots_[*link].next_free) {
    if (*link != index) continue;
    *link = slots_[index].next_free;
    slots_[index].next_free = std::exchange(first_free_, index);
    slots_[index].key = xid;
    return true;
  }
  return false;
}

template <dv::Provider P>
SubmitOutcome Requester<P>::submit_general(const CallRequest& request) noexcept {
  const auto rpc_header = request.target->rpc_header();
  const std::size_t rpc_bytes = rpc_header.size() + request.arguments.size();
  if (link_.qp->send_room() < P::Qp::kSendRoom) return SubmitOutcome::kSendQueueFull;
  Extras& extras = extras_[first_free_];
  if (!plan_chunks(request, rpc_header.size(), extras)) return SubmitOutcome::kTooLarge;
  // Reply chunk: only where the largest Reply might not fit (RFC 8166 §4.3.3).
  const std::size_t reply_bytes = kAcceptedReplyBytes + request.max_results;
  if (reply_header_size(extras.lists) + reply_bytes > link_.incoming_threshold) {
    const std::size_t chunk_bytes = xdr_padded(reply_bytes);
    if (chunk_bytes > loop_.memory.memory().bulk().buffer_bytes()) return SubmitOutcome::kTooLarge;
    extras.long_reply = loop_.memory.make_buffer(chunk_bytes);
    if (!extras.long_reply) return SubmitOutcome::kNoBuffer;
    const Segment segment = segment_of(extras.long_reply.first(chunk_bytes));
    if (!extras.lists.set_reply({&segment, 1})) return abandon_plan(extras, SubmitOutcome::kTooLarge);
  }
  const bool long_call = request.force_long_call || header_size(extras.lists) + rpc_bytes > link_.outgoing_threshold;
  if (long_call) {
    if (rpc_bytes > loop_.memory.memory().bulk().buffer_bytes()) return abandon_plan(extras, SubmitOutcome::kTooLarge);
    extras.long_call = loop_.memory.make_buffer(rpc_bytes);
    if (!extras.long_call) return abandon_plan(extras, SubmitOutcome::kNoBuffer);
    // Positions ascend, so that of the Position-Zero Read chunk goes first.
    ChunkLists& lists = extras.lists;
    if (!lists.add_read(0, segment_of(extras.long_call.first(rpc_bytes)))) {
      return abandon_plan(extras, SubmitOutcome::kTooLarge);
    }
    std::rotate(lists.read_segments.begin(), lists.read_segments.begin() + lists.read_count - 1,
                lists.read_segments.begin() + lists.read_count);
  }
  const std::size_t header = header_size(extras.lists);
  const std::size_t message = header + (long_call ? 0 : rpc_bytes);
  if (message > link_.outgoing_threshold) return abandon_plan(extras, SubmitOutcome::kTooLarge);
  if (const SubmitOutcome windows = check_windows(extras); windows != SubmitOutcome::kPosted) {
    return abandon_plan(extras, windows);
  }
  const bool is_inline = message <= link_.qp->max_inline();
  std::byte* out = nullptr;
  if (!is_inline) {
    out = loop_.memory.get_small(pools::Owner::kSend);
    if (out == nullptr) return abandon_plan(extras, SubmitOutcome::kNoBuffer);
  }
  bind_windows(extras);
  if (is_inline) {
    out = link_.qp->post_inline_send(static_cast<std::uint32_t>(message));
    // Not where windows are bound: check_windows has seen that there is room behind them.
    if (out == nullptr) return abandon_plan(extras, SubmitOutcome::kSendQueueFull);
  }
  const std::uint32_t xid = take_slot(request, kWithExtras);
  (void)encode_header({out, message}, xid, asked_, long_call ? Proc::kNomsg : Proc::kMsg, extras.lists);
  std::byte* rpc = long_call ? extras.long_call.data() : out + header;
  std::memcpy(rpc, rpc_header.data(), rpc_header.size());
  store_be32(rpc, xid);
  if (!request.arguments.empty()) {
    std::memcpy(rpc + rpc_header.size(), request.arguments.data(), request.arguments.size());
  }
  if (!is_inline) {
    const dv::Sge sge = loop_.sge(out, message);
    (void)link_.qp->post_send({&sge, 1},
                              make_token(TokenKind::kSmallBuffer, loop_.memory.memory().small().index_of(out)));
  }
  loop_.mark_dirty(link_);
  return SubmitOutcome::kPosted;
}

/// Read chunks for the sources, a Write chunk for each sink. Their handles are the pool's until windows are bound.
template <dv::Provider P>
bool Requester<P>::plan_chunks(const CallRequest& request, std::size_t rpc_header_bytes, Extras& extras) noexcept {
  extras.lists.clear();
  extras.sink_count = static_cast<std::uint32_t>(request.sinks.size());
  extras.max_results = request.max_results;
  extras.verdict = CallError::kNone;
  extras.lends = !request.sources.empty() || !request.sinks.empty();
  extras.replied = extras.fencing = false;
  if (request.sinks.size() > kMaxWriteChunks) return false;
  extras.written.fill(0);
  // RFC 8166 §3.4.5: Positions count the unreduced stream, so earlier chunks and their pads shift later ones.
  std::size_t shift = 0;
  for (const BulkSource& source : request.sources) {
    if (!loop_.memory.memory().contains(source.data) || source.data.size() > UINT32_MAX ||
        source.arguments_offset > request.arguments.size()) {
      return false;
    }
    const std::size_t position = rpc_header_bytes + source.arguments_offset + shift;
    if (position > UINT32_MAX || position % 4 != 0) return false;
    if (!extras.lists.add_read(static_cast<std::uint32_t>(position), segment_of(source.data))) return false;
    const std::size_t pad = xdr_pad(source.data.size());
    // A Responder that does not supply a missing pad would misplace what follows, so all but the last bring theirs
    // along, in a segment of its own (protocol.md ENG-RD-4).
    const bool last = &source == &request.sources.back();
    if (pad != 0 && !last &&
        !extras.lists.add_read(static_cast<std::uint32_t>(position),
                               segment_of(loop_.memory.memory().zeros().first(pad)))) {
      return false;
    }
    shift += source.data.size() + pad;
  }
  for (const RegisteredBytes& sink : request.sinks) {
    if (!loop_.memory.memory().contains(sink) || sink.size() > UINT32_MAX) return false;
    const Segment segment = segment_of(sink);
    if (!extras.lists.add_write_chunk({&segment, 1})) return false;
  }
  return true;
}

/// Whether each segment can have a window of its own now. They are invalidated later, and wait for room then, so only
/// their binding counts.
template <dv::Provider P>
SubmitOutcome Requester<P>::check_windows(const Extras& extras) const noexcept {
  if (registration_ == Registration::kPoolKey) return SubmitOutcome::kPosted;
  const ChunkLists& lists = extras.lists;
  const std::uint32_t segments = std::uint32_t{lists.read_count} + lists.write_segment_count + lists.reply_count;
  if (segments > windows_.size()) return SubmitOutcome::kTooLarge;
  if (segments > windows_.free_count()) return SubmitOutcome::kNoBuffer;
  // Where the ring ends, what a binding or the Send leaves of it is lost.
  const std::uint32_t room = (segments + 1) * P::Qp::kBindRoom + 2 * P::Qp::kSendRoom;
  return link_.qp->send_room() < room ? SubmitOutcome::kSendQueueFull : SubmitOutcome::kPosted;
}

template <dv::Provider P>
void Requester<P>::bind_windows(Extras& extras) noexcept {
  if (registration_ == Registration::kPoolKey) return;
  ChunkLists& lists = extras.lists;
  for (std::uint16_t i = 0; i < lists.read_count; ++i) {
    Segment& segment = lists.read_segments[i].target;
    segment.handle = bind_window(extras, segment, dv::WindowAccess::kRemoteRead);
  }
  for (std::uint16_t i = 0; i < lists.write_segment_count; ++i) {
    Segment& segment = lists.write_segments[i];
    segment.handle = bind_window(extras, segment, dv::WindowAccess::kRemoteWrite);
  }
  for (std::uint16_t i = 0; i < lists.reply_count; ++i) {
    Segment& segment = lists.reply_segments[i];
    segment.handle = bind_window(extras, segment, dv::WindowAccess::kRemoteWrite);
  }
}

/// Returns the key. A window cannot be empty: that of an empty segment shows an octet which is 0 for everybody.
template <dv::Provider P>
std::uint32_t Requester<P>::bind_window(Extras& extras, const Segment& segment, dv::WindowAccess access) noexcept {
  loop_.count(Count::kWindowsBound);
  if (segment.length == 0) {
    return windows_.bind(*link_.qp, loop_.sge(loop_.memory.memory().zeros().data(), 1), dv::WindowAccess::kRemoteRead,
                         extras.windows);
  }
  const auto* begin = reinterpret_cast<const std::byte*>(static_cast<std::uintptr_t>(segment.offset));
  return windows_.bind(*link_.qp, loop_.sge(begin, segment.length), access, extras.windows);
}

template <dv::Provider P>
SubmitOutcome Requester<P>::abandon_plan(Extras& extras, SubmitOutcome outcome) noexcept {
  extras.long_call.reset();
  extras.long_reply.reset();
  return outcome;
}

template <dv::Provider P>
Segment Requester<P>::segment_of(std::span<const std::byte> bytes) const noexcept {
  return {loop_.region.rkey, static_cast<std::uint32_t>(bytes.size()), reinterpret_cast<std::uintptr_t>(bytes.data())};
}

}  // namespace rodeo
