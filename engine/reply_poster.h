// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// From an answered Call to work requests. Order on the wire: the RDMA Writes of the results, then the Send that
// announces them (RFC 8166 §3.4.6). Nothing is written before all of it is known to fit what the Requester offered, so
// a Reply that does not fit becomes ERR_CHUNK and touches no memory. When the send queue is full, post() returns false
// and is called again later; it goes on where it stopped.
//
// Who owns what meanwhile: an inline Send copies, so its Call is over at once. A Send from a small buffer owns that
// buffer (its token returns it). RDMA Writes read memory that the Call holds, so the Call lives until the last of them
// has completed.

#include <algorithm>
#include <cstring>
#include <optional>

#include "engine/loop_context.h"
#include "engine/receive_credit.h"
#include "engine/transport_header.h"

namespace rodeo {

template <dv::Provider P>
class ReplyPoster {
 public:
  explicit ReplyPoster(LoopContext<P>& loop) noexcept : loop_(loop) {}

  /// Posts the Reply of a Call that is plainly_answered(). False: the send queue is full, call post() later.
  [[nodiscard, gnu::always_inline]] bool post_plain(const CallCore& call, Link<P>& link) noexcept {
    constexpr std::uint32_t kBytes = kMinHeaderBytes + kAcceptedReplyBytes;
    std::byte* out = link.qp->post_inline_send(kBytes);
    if (out == nullptr) [[unlikely]]
      return false;
    ReceiveCredit<P>(loop_).recycle_before_reply(link, call.message);
    const std::uint32_t xid = call.rpc.xid;
    store_plain_header(out, xid, link.granted);
    encode_accepted(out + kMinHeaderBytes, xid, AcceptStat::kSuccess);
    loop_.mark_dirty(link);
    loop_.count(Count::kRepliesSent);
    return true;
  }

  /// Posts the Reply of any Call that ended with reply or reject. False: the send queue is full, call again.
  [[nodiscard, gnu::noinline]] bool post(CallCore& call) noexcept {
    auto& link = *static_cast<Link<P>*>(call.link);
    if (!call.reply_prepared) prepare(call, link);
    if (call.form == ReplyForm::kErrChunk) return post_err_chunk(call, link);
    if (call.chunks != nullptr && !post_writes(call, link)) return false;
    return post_send(call, link);
  }

  /// RDMA_ERROR for a message that became no Call. False: the send queue is full.
  [[nodiscard]] bool post_err_vers(Link<P>& link, const TransportHeader& header) noexcept {
    std::byte* out = link.qp->post_inline_send(kErrVersBytes);
    if (out == nullptr) return false;
    encode_err_vers(out, header.xid, header.vers, link.granted);
    loop_.mark_dirty(link);
    loop_.count(Count::kErrVersSent);
    return true;
  }

 private:
  /// Decides the form (RFC 8166 §3.5; protocol.md 2.7) and fills in the lengths that go back.
  void prepare(CallCore& call, Link<P>& link) noexcept {
    call.reply_prepared = true;
    call.form = ReplyForm::kMsg;
    if (call.ending == Ending::kReply && call.results_open && !call.writer.ok()) {
      const bool no_buffer = call.results_buffer == nullptr && !call.results_refused;
      call.ending = Ending::kReject;
      call.reject_with = AcceptStat::kSystemErr;
      if (!no_buffer) call.form = ReplyForm::kErrChunk;
    }
    const std::uint64_t payload = payload_bytes(call);
    if (call.chunks == nullptr) {
      if (kMinHeaderBytes + payload > link.outgoing_threshold) call.form = ReplyForm::kErrChunk;
      return;
    }
    CallChunks& chunks = *call.chunks;
    chunks.returned.clear(chunks.lists);
    chunks.writes = {};
    if (call.form == ReplyForm::kErrChunk) return;
    if (call.ending == Ending::kReply) {
      for (std::uint16_t i = 0; i < chunks.push_count; ++i) {
        const Push& push = chunks.pushes[i];
        if (!chunks.returned.fill_write(chunks.lists, push.chunk, bytes_of(push.all())) || !registered(push)) {
          call.form = ReplyForm::kErrChunk;
          return;
        }
        chunks.writes.left = static_cast<std::uint16_t>(chunks.writes.left + writes_needed(chunks, push));
      }
    }
    const std::size_t header = reply_header_size(chunks.lists);
    if (header + payload <= link.outgoing_threshold) return;
    if (header > link.outgoing_threshold || call.results_buffer == nullptr || call.ending != Ending::kReply ||
        !chunks.lists.reply_present || !chunks.returned.fill_reply(chunks.lists, payload)) {
      call.form = ReplyForm::kErrChunk;
      return;
    }
    call.form = ReplyForm::kNomsg;
    for (std::uint16_t i = 0; i < chunks.lists.reply_count; ++i) chunks.writes.left += chunks.returned.reply[i] != 0;
    encode_accepted(call.results_buffer + call.results_offset - kAcceptedReplyBytes, call.rpc.xid,
                    AcceptStat::kSuccess);
  }

  [[nodiscard]] bool registered(const Push& push) const noexcept {
    for (const RegisteredBytes& piece : push.all()) {
      if (!piece.empty() && !loop_.memory.memory().contains(piece)) return false;
    }
    return true;
  }

  /// One for each part of a segment that lies in one piece.
  [[nodiscard]] static std::uint32_t writes_needed(const CallChunks& chunks, const Push& push) noexcept {
    const WriteChunk& shape = chunks.lists.write_table[push.chunk];
    std::uint32_t writes = 0;
    std::size_t in_segment = 0;  // octets still to go there
    std::uint16_t segment = 0;
    for (const RegisteredBytes& piece : push.all()) {
      for (std::size_t left = piece.size(); left != 0; ++writes) {
        while (in_segment == 0) in_segment = chunks.returned.write[shape.first + segment++];
        const std::size_t part = std::min(in_segment, left);
        in_segment -= part;
        left -= part;
      }
    }
    return writes;
  }

  [[nodiscard]] static std::uint64_t payload_bytes(const CallCore& call) noexcept {
    if (call.ending == Ending::kReply) return kAcceptedReplyBytes + (call.results_open ? call.writer.size() : 0);
    switch (call.denial) {
      case Denial::kRpcMismatch:
        return kRpcMismatchBytes;
      case Denial::kAuthError:
        return kAuthErrorBytes;
      case Denial::kNone:
        break;
    }
    return call.reject_with == AcceptStat::kProgMismatch ? kProgMismatchBytes : kAcceptedReplyBytes;
  }

  /// The RPC Reply header at `out`; results follow only SUCCESS.
  static void encode_rpc_header(const CallCore& call, std::byte* out) noexcept {
    const std::uint32_t xid = call.rpc.xid;
    if (call.ending == Ending::kReply) {
      encode_accepted(out, xid, AcceptStat::kSuccess);
    } else if (call.denial == Denial::kRpcMismatch) {
      encode_rpc_mismatch(out, xid);
    } else if (call.denial == Denial::kAuthError) {
      encode_auth_error(out, xid, call.auth_stat);
    } else if (call.reject_with == AcceptStat::kProgMismatch) {
      encode_prog_mismatch(out, xid, call.version_low, call.version_high);
    } else {
      encode_accepted(out, xid, call.reject_with);
    }
  }

  /// The Writes of the pushes in order, then the Long Reply's. The last one tells when the Call may end.
  [[nodiscard]] bool post_writes(CallCore& call, Link<P>& link) noexcept {
    CallChunks& chunks = *call.chunks;
    WriteCursor& at = chunks.writes;
    while (at.left != 0) {
      const bool long_reply = at.push == chunks.push_count;
      const Segment* segments = chunks.lists.reply_segments.data();
      const std::uint32_t* lengths = chunks.returned.reply.data();
      std::uint16_t count = chunks.lists.reply_count;
      const RegisteredBytes stream{call.results_buffer + call.results_offset - kAcceptedReplyBytes, UINT32_MAX};
      std::span<const RegisteredBytes> pieces{&stream, 1};
      if (!long_reply) {
        const Push& push = chunks.pushes[at.push];
        const WriteChunk& shape = chunks.lists.write_table[push.chunk];
        segments = chunks.lists.write_segments.data() + shape.first;
        lengths = chunks.returned.write.data() + shape.first;
        count = shape.count;
        pieces = push.all();
      }
      for (; at.segment < count; ++at.segment, at.segment_done = 0) {
        while (at.segment_done < lengths[at.segment]) {
          const RegisteredBytes left = pieces[at.piece].subspan(at.piece_done);
          if (left.empty()) {
            ++at.piece;
            at.piece_done = 0;
            continue;
          }
          const auto length =
              static_cast<std::uint32_t>(std::min<std::size_t>(lengths[at.segment] - at.segment_done, left.size()));
          const dv::Sge sge = loop_.sge(left.data(), length);
          const dv::Token token = at.left == 1 ? make_token(TokenKind::kCall, call.index) : dv::kNoToken;
          const Segment& segment = segments[at.segment];
          if (!link.qp->post_write({&sge, 1}, {segment.offset + at.segment_done, segment.handle}, token)) return false;
          loop_.mark_dirty(link);
          loop_.count(Count::kWriteBytesPushed, length);
          at.segment_done += length;
          at.piece_done += length;
          if (--at.left == 0) ++call.tokens_out;
        }
      }
      at = {.left = at.left, .push = static_cast<std::uint16_t>(at.push + 1)};
    }
    return true;
  }

  [[nodiscard]] bool post_send(CallCore& call, Link<P>& link) noexcept {
    const std::size_t header = call.chunks != nullptr ? reply_header_size(call.chunks->lists) : kMinHeaderBytes;
    const std::size_t payload = call.form == ReplyForm::kNomsg ? 0 : payload_bytes(call);
    const std::size_t total = header + payload;
    const std::optional<std::uint32_t> key = key_to_invalidate(call, link);
    if (total <= link.qp->max_inline() && !key) {
      std::byte* out = link.qp->post_inline_send(static_cast<std::uint32_t>(total));
      if (out == nullptr) return false;
      write_message(call, link, {out, total}, header);
      if (payload > kAcceptedReplyBytes && call.ending == Ending::kReply) {
        std::memcpy(out + header + kAcceptedReplyBytes, call.results_buffer + call.results_offset,
                    payload - kAcceptedReplyBytes);
      }
      loop_.count(Count::kRepliesInline);
    } else if (!post_from_buffer(call, link, header, payload, key)) {
      return false;
    }
    loop_.mark_dirty(link);
    call.send_posted = true;
    loop_.count(Count::kRepliesSent);
    if (call.form == ReplyForm::kNomsg) loop_.count(Count::kLongReplies);
    if (call.ending == Ending::kReject) loop_.count(Count::kRpcErrorsSent);
    return true;
  }

  /// A key of this very Call, all of whose RDMA has been posted or is over (RFC 8797 §4.1). Where there are several,
  /// the Requester invalidates them itself.
  [[nodiscard]] static std::optional<std::uint32_t> key_to_invalidate(const CallCore& call,
                                                                      const Link<P>& link) noexcept {
    if (!link.may_invalidate || call.chunks == nullptr) [[likely]]
      return std::nullopt;
    return only_handle(call.chunks->lists);
  }

  /// A message that is too long to be inline, or invalidates a key, goes out of the results' own buffer, in front of
  /// which there is room for headers.
  [[nodiscard]] bool post_from_buffer(CallCore& call, Link<P>& link, std::size_t header, std::size_t payload,
                                      std::optional<std::uint32_t> key) noexcept {
    std::byte* buffer = call.results_buffer;
    const bool own = buffer != nullptr && call.form == ReplyForm::kMsg && call.ending == Ending::kReply;
    if (link.qp->send_room() < 2) return false;
    if (!own) buffer = loop_.memory.get_small(pools::Owner::kSend);
    if (buffer == nullptr) return false;
    const bool small = !own || !call.results_bulk;
    const dv::Token token = small ? make_token(TokenKind::kSmallBuffer, loop_.memory.memory().small().index_of(buffer))
                                  : make_token(TokenKind::kCall, call.index);
    write_message(call, link, {buffer, header + payload}, header);
    const dv::Sge sge = loop_.sge(buffer, header + payload);
    const bool posted =
        key ? link.qp->post_send_invalidate({&sge, 1}, *key, token) : link.qp->post_send({&sge, 1}, token);
    if (!posted) return false;  // cannot be: there was room
    if (key) loop_.count(Count::kKeysInvalidated);
    if (own && small) {
      loop_.memory.memory().small().set_owner(buffer, pools::Owner::kSend);
      call.results_buffer = nullptr;
    }
    if (!small) ++call.tokens_out;
    return true;
  }

  /// Transport header and RPC header; the results are there already or are copied by the caller.
  void write_message(CallCore& call, Link<P>& link, std::span<std::byte> out, std::size_t header) noexcept {
    hand_back_message(call, link);
    if (call.chunks == nullptr) {
      store_plain_header(out.data(), call.rpc.xid, link.granted);
    } else {
      const Proc proc = call.form == ReplyForm::kNomsg ? Proc::kNomsg : Proc::kMsg;
      (void)encode_reply_header(out, call.rpc.xid, link.granted, proc, call.chunks->lists, call.chunks->returned);
    }
    if (call.form == ReplyForm::kMsg) encode_rpc_header(call, out.data() + header);
  }

  void hand_back_message(CallCore& call, Link<P>& link) noexcept {
    ReceiveCredit<P>(loop_).recycle(link, std::exchange(call.message, nullptr));
  }

  [[nodiscard]] bool post_err_chunk(CallCore& call, Link<P>& link) noexcept {
    std::byte* out = link.qp->post_inline_send(kErrChunkBytes);
    if (out == nullptr) return false;
    hand_back_message(call, link);
    encode_err_chunk(out, call.rpc.xid, kRdmaVersion, link.granted);
    loop_.mark_dirty(link);
    call.send_posted = true;
    loop_.count(Count::kErrChunkSent);
    return true;
  }

  LoopContext<P>& loop_;
};

}  // namespace rodeo
