// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// A Call's way through its poll loop, from the receive buffer to the Reply:
//
//   on_message   header → (Long Call: pull the Payload) → RPC header → procedure
//   run          the handler here, or the Call to a worker's ring
//   settle       what the handler asked for: a Reply, a pull and another stage, or nothing yet (deferred)
//   on_token     RDMA Reads or Writes of the Call have completed
//   finish       everything it held goes back
//
// Whatever cannot go on for want of room waits in a queue of its own and is retried: for the send queue in its link,
// for a buffer here. Malformed messages are answered as header_outcome.h says and never reach a handler.
//
// On a connection that we opened, the peer's Calls are those in reverse direction (RFC 8167): the Requester finds them
// among its Replies and gives them to on_reverse_call(). They are Short, and so are their Replies: one with any chunk
// is answered ERR_CHUNK. On one that the peer opened, what proves to be no Call may be a Reply to a reverse Call of
// ours. Where the direction cannot be told, this is the role that answers, and the credit value counts for neither.

#include <algorithm>
#include <cstring>

#include "engine/loop_context.h"
#include "engine/read_puller.h"
#include "engine/receive_credit.h"
#include "engine/reply_poster.h"
#include "engine/transport_header.h"

namespace rodeo {

template <dv::Provider P>
class Responder {
 public:
  explicit Responder(LoopContext<P>& loop) noexcept : loop_(loop) {}

  /// A whole message in `buffer`, which is now ours.
  [[gnu::always_inline]] void on_message(Link<P>& link, std::byte* buffer, std::uint32_t length) noexcept {
    TransportHeader header;
    if (!is_plain_msg(buffer, length, header)) [[unlikely]]
      return on_uncommon(link, buffer, length);
    const std::byte* payload = buffer + kMinHeaderBytes;
    const std::uint32_t payload_bytes = length - static_cast<std::uint32_t>(kMinHeaderBytes);
    const KnownCalls::Entry* known = loop_.known_calls.find(payload, payload_bytes);
    if (known == nullptr || load_be32(payload) != header.xid) [[unlikely]]
      return on_new_header(link, buffer, length);
    CallCore* opened = open_call(link, buffer);
    if (opened == nullptr) [[unlikely]]
      return overrun(link, buffer);
    CallCore& call = *opened;
    credit().heed(link, header.credit);
    call.payload = payload;
    call.payload_bytes = payload_bytes;
    call.recognised = true;
    call.rpc.xid = header.xid;
    call.rpc.args_offset = known->header_bytes;
    begin(call, *known->procedure);
  }

  /// A Call on a connection that we opened, in `buffer`, which is now ours.
  [[gnu::noinline]] void on_reverse_call(Link<P>& link, std::byte* buffer, std::uint32_t length) noexcept {
    if (link.state != LinkState::kOpen) return credit().recycle(link, buffer);
    loop_.count(Count::kReverseCallsReceived);
    // The receives are shared with our Replies, so nothing but this count keeps the peer to its grant.
    if (link.calls_out >= std::max(link.held, 1U)) return overrun(link, buffer);
    TransportHeader header;
    const bool plain = is_plain_msg(buffer, length, header);
    CallCore* opened = open_call(link, buffer);
    if (opened == nullptr) return overrun(link, buffer);
    CallCore& call = *opened;
    call.recognised = false;
    call.rpc.xid = load_be32(buffer + kXidOffset);
    if (!plain) {
      loop_.count(Count::kReverseChunks);
      credit().heed(link, load_be32(buffer + kCreditOffset));
      return err_chunk(call);
    }
    begin_plain(call, buffer, length);
  }

  /// A handler's stage has ended (here or on a worker), or a deferred Call has been answered.
  [[gnu::always_inline]] void settle(CallCore& call) noexcept {
    call.link->state == LinkState::kOpen ? settle_open(call) : settle_uncommon(call);
  }

  /// The last RDMA operation of a stage has completed or failed.
  void on_token(std::uint32_t index, dv::Status status) noexcept {
    CallCore& call = loop_.calls.at(index - 1);
    --call.tokens_out;
    if (status != dv::Status::kSuccess || call.link->state != LinkState::kOpen) {
      // One that waits for room, its Writes posted and its Send not, is dropped when its turn comes.
      if (!call.waiting) drop(call);
    } else if (call.send_posted) {
      if (call.tokens_out == 0) finish(call);
    } else if (call.pulling) {
      call.pulling = false;
      next_stage(call);
    }
  }

  /// The link's send queue may have room again.
  void retry(Link<P>& link) noexcept {
    while (!link.details->waiting_for_queue.empty()) {
      CallCore& call = *link.details->waiting_for_queue.front();
      if (link.state != LinkState::kOpen) {
        link.details->waiting_for_queue.pop();
        drop(call);
        continue;
      }
      if (call.pulling) {
        if (puller().post(call, present_chunk(call)) == ReadPuller<P>::Progress::kQueueFull) return;
        link.details->waiting_for_queue.pop();
      } else {
        if (!poster().post(call)) return;
        link.details->waiting_for_queue.pop();
        if (call.tokens_out == 0) finish(call);
      }
    }
  }

  /// Buffers may be free again.
  void retry_buffers() noexcept {
    while (!waiting_for_buffer_.empty()) {
      CallCore& call = *waiting_for_buffer_.front();
      if (call.link->state != LinkState::kOpen) {
        waiting_for_buffer_.pop();
        drop(call);
        continue;
      }
      if (call.serving == nullptr) {
        call.stream_buffer = loop_.memory.get_bulk(pools::Owner::kCall);
        if (call.stream_buffer == nullptr) return;
        waiting_for_buffer_.pop();
        pull_stream(call);
      } else {
        Buffer buffer = call.make_buffer(call.waiting_argument.length);
        if (!buffer) return;
        waiting_for_buffer_.pop();
        if (call.waits_for_results) {
          buffer.reset();    // back to this core, where the stage finds it
          return run(call);  // one a turn: it may come to wait again
        }
        call.pull(call.waiting_argument, call.keep(std::move(buffer)).first(call.waiting_argument.length),
                  call.next_stage);
        settle(call);
      }
    }
  }
  [[nodiscard]] bool buffers_awaited() const noexcept { return !waiting_for_buffer_.empty(); }

  // Made where they are needed: all that they have is the loop, of which the compiler thus sees that it is the same.
  [[nodiscard]] ReceiveCredit<P> credit() noexcept { return ReceiveCredit<P>(loop_); }

  /// Calls staged for the workers go into their rings, one burst each.
  void flush_handoff() noexcept {
    for (std::size_t w = 0; w < staged_.size(); ++w) flush_worker(w);
  }
  void set_workers(std::size_t count) { staged_.resize(count); }

 private:
  [[nodiscard]] ReplyPoster<P> poster() noexcept { return ReplyPoster<P>(loop_); }
  [[nodiscard]] ReadPuller<P> puller() noexcept { return ReadPuller<P>(loop_); }

  static constexpr std::size_t kBurst = 32;
  struct Staged {
    std::array<CallCore*, kBurst> calls;
    std::size_t count = 0;
  };

  /// nullptr when there are no more Calls. Every receive is backed by one, and as many again may still be sending, so
  /// only a peer that ignores its grant gets there.
  [[nodiscard, gnu::always_inline]] CallCore* open_call(Link<P>& link, std::byte* buffer) noexcept {
    const auto introduce = [this](CallCore& made, std::uint32_t index) {
      made.index = index + 1;
      made.home = loop_.returned.get();
    };
    if (!loop_.calls.ready(introduce)) [[unlikely]]
      return nullptr;
    CallCore& call = *loop_.calls.pop();
    call.link = &link;
    call.message = buffer;
    ++link.calls_out;
    loop_.memory.memory().small().set_owner(buffer, pools::Owner::kCall);
    loop_.count(Count::kCallsReceived);
    return &call;
  }

  [[gnu::noinline, gnu::cold]] void overrun(Link<P>& link, std::byte* buffer) noexcept {
    loop_.count(Count::kCallsOverrun);
    credit().recycle(link, buffer);
    loop_.close_soon(link);
  }

  /// A plain message whose RPC header was not seen before, or not lately. It may be a Reply.
  [[gnu::noinline]] void on_new_header(Link<P>& link, std::byte* buffer, std::uint32_t length) noexcept {
    if (classify_plain(buffer, length) == Direction::kReply) [[unlikely]]
      return on_reply(link, buffer, length);
    CallCore* opened = open_call(link, buffer);
    if (opened == nullptr) return overrun(link, buffer);
    CallCore& call = *opened;
    call.recognised = false;
    call.rpc.xid = load_be32(buffer + kXidOffset);
    begin_plain(call, buffer, length);
  }

  /// The RPC header of a Call without chunks has to be decoded. `call.rpc.xid` is rdma_xid.
  [[gnu::always_inline]] void begin_plain(CallCore& call, const std::byte* buffer, std::uint32_t length) noexcept {
    call.payload = buffer + kMinHeaderBytes;
    call.payload_bytes = length - static_cast<std::uint32_t>(kMinHeaderBytes);
    const std::uint32_t xid = call.rpc.xid;
    const CallOutcome outcome = decode_call({call.payload, call.payload_bytes}, call.rpc);
    auto& link = *static_cast<Link<P>*>(call.link);
    const std::uint32_t requested = load_be32(buffer + kCreditOffset);
    if (outcome == CallOutcome::kOk && call.rpc.xid == xid) [[likely]] {
      credit().heed(link, requested);
      return dispatch(call);
    }
    // Whoever may call and be called may have meant a Reply by what is malformed (RFC 8167 §4.1).
    const bool malformed =
        call.rpc.xid != xid || outcome == CallOutcome::kTruncated || outcome == CallOutcome::kNotCall;
    if (!malformed || (link.reverse == nullptr && !link.opened_here)) credit().heed(link, requested);
    refuse(call, xid, outcome);
  }

  /// A message for a Requester, on a connection that the peer opened.
  [[gnu::noinline, gnu::cold]] void on_reply(Link<P>& link, std::byte* buffer, std::uint32_t length) noexcept {
    if (link.reverse != nullptr) {
      loop_.count(Count::kReverseReplies);
      return link.reverse->on_message(buffer, length);
    }
    // We have called nobody on this connection: not for us (RFC 8167 §4).
    loop_.count(Count::kMessagesNotForUs);
    credit().recycle(link, buffer);
  }

  /// Chunks, errors, other versions: everything that is not a plain RDMA_MSG.
  [[gnu::noinline]] void on_uncommon(Link<P>& link, std::byte* buffer, std::uint32_t length) noexcept {
    if (link.reverse != nullptr) [[unlikely]] {
      const Direction direction = classify({buffer, length});
      if (direction == Direction::kReply || direction == Direction::kError) return on_reply(link, buffer, length);
    }
    TransportHeader header;
    CallChunks* chunks = loop_.chunks.take();
    if (chunks == nullptr) return overrun(link, buffer);
    HeaderOutcome outcome = decode_call_header({buffer, length}, header, chunks->lists);
    if (outcome == HeaderOutcome::kOk && chunks->lists.read_total > loop_.limits.read_bytes) {
      outcome = HeaderOutcome::kReadsTooLong;
    }
    if (outcome != HeaderOutcome::kOk) {
      loop_.chunks.give_back(chunks);
      return on_bad_header(link, buffer, length, header, outcome);
    }
    CallCore* opened = open_call(link, buffer);
    if (opened == nullptr) {
      loop_.chunks.give_back(chunks);
      return overrun(link, buffer);
    }
    CallCore& call = *opened;
    credit().heed(link, header.credit);
    call.recognised = false;
    call.serving = nullptr;
    call.chunks = chunks;
    chunks->push_count = chunks->next_write_chunk = chunks->reads_taken = 0;
    chunks->unreduced_shift = 0;
    chunks->writes = {};
    group_read_chunks(chunks->lists, chunks->reads);
    call.rpc.xid = header.xid;
    if (header.proc == Proc::kNomsg) return begin_long_call(call);
    call.payload = buffer + header.header_bytes;
    call.payload_bytes = length - header.header_bytes;
    begin_rpc(call);
  }

  [[gnu::noinline, gnu::cold]] void on_bad_header(Link<P>& link, std::byte* buffer, std::uint32_t length,
                                                  const TransportHeader& header, HeaderOutcome outcome) noexcept {
    loop_.count(outcome);
    // Where both ends call, it might as well be a bad Reply (RFC 8167 §4.1).
    const bool asks = link.reverse == nullptr || classify({buffer, length}) == Direction::kCall;
    switch (answer_for(outcome)) {
      case Answer::kErrChunk: {
        CallCore* call = open_call(link, buffer);
        if (call == nullptr) return overrun(link, buffer);
        if (asks) credit().heed(link, header.credit);
        call->rpc.xid = header.xid;
        return err_chunk(*call);
      }
      case Answer::kErrVers:
        if (asks) credit().heed(link, header.credit);
        credit().recycle(link, buffer);  // first, as the error grants it again
        // An error that cannot be sent closes the connection (RFC 8166 §4.5.4).
        if (!poster().post_err_vers(link, header)) loop_.close_soon(link);
        return;
      case Answer::kServe:
      case Answer::kDiscard:
        break;
    }
    credit().recycle(link, buffer);
  }

  /// The Payload of a Long Call is pulled whole before anything else is known of it.
  void begin_long_call(CallCore& call) noexcept {
    const std::uint32_t bytes = call.chunks->reads.position_zero_bytes();
    StreamLayout& layout = layout_;
    const HeaderOutcome planned = plan_stream(call.chunks->reads, bytes, kMinCallHeaderBytes, layout);
    if (planned != HeaderOutcome::kOk) {
      loop_.count(planned);
      return err_chunk(call);
    }
    if (bytes > loop_.memory.memory().bulk().buffer_bytes()) {
      loop_.count(HeaderOutcome::kChunkListTooComplex);
      return err_chunk(call);
    }
    call.stream_buffer = loop_.memory.get_bulk(pools::Owner::kCall);
    if (call.stream_buffer == nullptr) return wait_for_buffer(call);
    pull_stream(call);
  }

  void pull_stream(CallCore& call) noexcept {
    call.pull_left = call.chunks->reads.position_zero_bytes();
    call.pull_sink = {call.stream_buffer, call.pull_left};
    call.pull_more = {};
    call.pull_segment = call.pull_segment_done = 0;
    call.payload = call.stream_buffer;
    call.payload_bytes = call.pull_left;
    loop_.count(Count::kLongCallsPulled);
    start_pull(call);
  }

  /// The Payload of a Call with chunks is in memory.
  void begin_rpc(CallCore& call) noexcept {
    const std::uint32_t xid = call.rpc.xid;
    const CallOutcome outcome = decode_call({call.payload, call.payload_bytes}, call.rpc);
    if (outcome != CallOutcome::kOk || call.rpc.xid != xid) return refuse(call, xid, outcome);
    HeaderOutcome placed = HeaderOutcome::kOk;
    if (call.stream_buffer != nullptr) {
      if (!data_after_header(call.chunks->reads, call.rpc.args_offset)) placed = HeaderOutcome::kPositionInRpcHeader;
    } else if (call.chunks->reads.count != 0) {
      placed = plan_stream(call.chunks->reads, call.payload_bytes, call.rpc.args_offset, layout_);
    }
    if (placed != HeaderOutcome::kOk) {
      loop_.count(placed);
      return err_chunk(call);
    }
    dispatch(call);
  }

  /// Finds the procedure and runs or hands off its handler.
  void dispatch(CallCore& call) noexcept {
    const auto& rpc = call.rpc;
    if (rpc.cred.flavor != AuthFlavor::kNone && !credential_ok(rpc.cred)) return deny(call, AuthStat::kBadCred);
    const bool reverse = call.link->opened_here;
    const ProgramTable::Lookup found = !reverse || call.link->may_call(rpc.program)
                                           ? loop_.programs.find(rpc.program, rpc.version, rpc.procedure)
                                           : ProgramTable::Lookup{nullptr, AcceptStat::kProgUnavail};
    if (found.procedure == nullptr) return reject(call, found);
    // What is known is served to everybody who calls us.
    if (!reverse) loop_.known_calls.remember({call.payload, rpc.args_offset}, *found.procedure);
    // RFC 8166 §6.1: an argument that is not DDP-eligible was reduced; no handler may see it.
    if (call.chunks != nullptr && call.chunks->reads.data().size() > found.procedure->max_read_chunks) {
      return err_chunk(call);
    }
    begin(call, *found.procedure);
  }

  [[gnu::always_inline]] void begin(CallCore& call, const Procedure& procedure) noexcept {
    call.serving = &procedure;
    call.next_stage = procedure.handler;
    run(call);
  }

  [[gnu::always_inline]] void run(CallCore& call) noexcept {
    if (call.serving->placement == Placement::kWorkerCore && !staged_.empty()) [[unlikely]]
      return hand_off(call);
    if (run_stage(call)) [[unlikely]]
      return loop_.count(Count::kCallsDeferred);
    settle_open(call);  // nothing of the connection changes while a handler runs
  }

  /// As settle, of a Call whose connection is known to be open.
  [[gnu::always_inline]] void settle_open(CallCore& call) noexcept {
    if (!call.plainly_answered()) [[unlikely]]
      return settle_uncommon(call);
    auto& link = *static_cast<Link<P>*>(call.link);
    if (!poster().post_plain(call, link)) [[unlikely]]
      return loop_.wait_for_queue(link, call);
    --link.calls_out;
    loop_.calls.give_back(&call);
  }

  void hand_off(CallCore& call) noexcept {
    if (next_worker_ >= staged_.size()) next_worker_ = 0;
    Staged& staged = staged_[next_worker_];
    staged.calls[staged.count++] = &call;
    loop_.count(Count::kCallsHandedOff);
    if (staged.count == kBurst) flush_worker(next_worker_++);
  }

  void flush_worker(std::size_t worker) noexcept {
    Staged& staged = staged_[worker];
    for (std::size_t done = 0; done < staged.count;) {
      // The ring holds every Call that exists, so this takes all at once.
      done += loop_.workers[worker]->push(std::span<CallCore* const>(staged.calls.data() + done, staged.count - done));
    }
    staged.count = 0;
  }

  void answer(CallCore& call) noexcept {
    if (call.form == ReplyForm::kRemember) [[unlikely]]
      ReplyCache::settle(call);
    if (!poster().post(call)) return loop_.wait_for_queue(*static_cast<Link<P>*>(call.link), call);
    if (call.tokens_out == 0) finish(call);
  }

  [[gnu::noinline]] void settle_uncommon(CallCore& call) noexcept {
    if (call.link->state != LinkState::kOpen) {
      // What was done for it all the same, elsewhere, is told to the Call that comes again: its last stage has that.
      const bool resumed = call.ending == Ending::kPull && call.pull_chunk < 0 && call.pull_left == 0;
      if (call.form == ReplyForm::kRemember && resumed && run_stage(call)) return;
      return drop(call);
    }
    switch (call.ending) {
      case Ending::kReply:
      case Ending::kReject:
        return answer(call);
      case Ending::kPull:
        return start_pull(call);
      case Ending::kWaitForBuffer:
        return wait_for_buffer(call);
      case Ending::kNone:
        break;
    }
    loop_.count(Count::kHandlerMisuse);
    call.reject(AcceptStat::kSystemErr);
    answer(call);
  }

  [[nodiscard]] const ReadChunk& present_chunk(const CallCore& call) const noexcept {
    const ReadChunks& reads = call.chunks->reads;
    return call.serving == nullptr ? reads.all()[0] : reads.data()[static_cast<std::size_t>(call.pull_chunk)];
  }

  void start_pull(CallCore& call) noexcept {
    using Progress = typename ReadPuller<P>::Progress;
    if (call.serving != nullptr && call.pull_chunk < 0) return next_stage(call);
    switch (puller().post(call, present_chunk(call))) {
      case Progress::kPosted:
        return;
      case Progress::kNothingToPull:
        return next_stage(call);
      case Progress::kQueueFull:
        return loop_.wait_for_queue(*static_cast<Link<P>*>(call.link), call);
    }
  }

  /// What was pulled is in memory.
  void next_stage(CallCore& call) noexcept {
    if (call.serving != nullptr) return run(call);
    begin_rpc(call);
  }

  /// A Call that waits holds no bulk buffer: one that does is refused instead. So whoever holds one runs to its end
  /// without waiting for another, and those that wait get their turn; there can be no deadlock over a dry pool.
  [[gnu::noinline, gnu::cold]] void wait_for_buffer(CallCore& call) noexcept {
    if (holds_bulk(call)) {
      loop_.count(Count::kBufferRefusals);
      call.reject(AcceptStat::kSystemErr);
      return answer(call);
    }
    loop_.count(Count::kBufferWaits);
    waiting_for_buffer_.push(&call);
  }

  [[nodiscard]] bool holds_bulk(const CallCore& call) const noexcept {
    const pools::BufferPool& bulk = loop_.memory.memory().bulk();
    return call.stream_buffer != nullptr || (call.results_buffer != nullptr && call.results_bulk) ||
           std::any_of(call.kept_buffers.begin(), call.kept_buffers.begin() + call.kept_count,
                       [&](const Buffer& kept) { return bulk.contains(kept.data()); });
  }

  [[nodiscard]] static bool credential_ok(const OpaqueAuth& cred) noexcept {
    AuthSys sys;
    return cred.flavor == AuthFlavor::kSys && decode_auth_sys(cred.body, sys);
  }

  [[gnu::noinline, gnu::cold]] void refuse(CallCore& call, std::uint32_t xid, CallOutcome outcome) noexcept {
    if (outcome == CallOutcome::kNotCall) {  // neither Call nor Reply
      loop_.count(Count::kMessagesNotForUs);
      return finish(call);
    }
    if (call.rpc.xid != xid || outcome == CallOutcome::kTruncated || outcome == CallOutcome::kOk) {
      call.rpc.xid = xid;
      loop_.count(outcome == CallOutcome::kTruncated ? HeaderOutcome::kTruncated : HeaderOutcome::kXidMismatch);
      return err_chunk(call);
    }
    call.denial = outcome == CallOutcome::kRpcMismatch ? Denial::kRpcMismatch : Denial::kAuthError;
    call.auth_stat = AuthStat::kBadCred;
    call.ending = Ending::kReject;
    answer(call);
  }
  [[gnu::noinline, gnu::cold]] void deny(CallCore& call, AuthStat why) noexcept {
    call.denial = Denial::kAuthError;
    call.auth_stat = why;
    call.ending = Ending::kReject;
    answer(call);
  }
  [[gnu::noinline, gnu::cold]] void reject(CallCore& call, const ProgramTable::Lookup& found) noexcept {
    call.version_low = found.low;
    call.version_high = found.high;
    call.reject(found.status);
    answer(call);
  }
  [[gnu::noinline, gnu::cold]] void err_chunk(CallCore& call) noexcept {
    call.form = ReplyForm::kErrChunk;
    call.reply_prepared = true;
    call.ending = Ending::kReject;
    answer(call);
  }

  /// The connection has gone: no Reply. The Call stays while RDMA of its own is outstanding.
  [[gnu::noinline, gnu::cold]] void drop(CallCore& call) noexcept {
    if (call.form == ReplyForm::kRemember) ReplyCache::settle(call);
    if (call.tokens_out != 0) {
      call.send_posted = true;  // on_token drops it for good when the last one is back
      return;
    }
    loop_.count(Count::kRepliesDropped);
    finish(call);
  }

  void finish(CallCore& call) noexcept {
    auto& link = *static_cast<Link<P>*>(call.link);
    if (call.message != nullptr) credit().recycle(link, std::exchange(call.message, nullptr));
    if (call.chunks != nullptr || call.results_open) release_extras(call);
    if (call.has_end_hook) call.end_hook(call.end_context);
    reset(call);
    --link.calls_out;
    loop_.calls.give_back(&call);
  }

  [[gnu::noinline]] void release_extras(CallCore& call) noexcept {
    if (call.chunks != nullptr) {
      for (std::uint16_t i = 0; i < call.chunks->push_count; ++i) {
        const Push& push = call.chunks->pushes[i];
        if (push.done != nullptr) push.done(push.done_context);
      }
      loop_.chunks.give_back(std::exchange(call.chunks, nullptr));
    }
    if (call.results_buffer != nullptr) {
      call.results_bulk ? loop_.memory.put_bulk(call.results_buffer) : loop_.memory.put_small(call.results_buffer);
      call.results_buffer = nullptr;
    }
    if (call.stream_buffer != nullptr) loop_.memory.put_bulk(std::exchange(call.stream_buffer, nullptr));
    call.results_open = call.results_refused = call.results_bulk = false;
  }

  /// As open_call expects it.
  static void reset(CallCore& call) noexcept {
    if (call.kept_count != 0) {
      for (Buffer& buffer : call.kept_buffers) buffer.reset();
    }
    static_cast<CallProgress&>(call) = {};
    call.denial = Denial::kNone;
    call.pulling = false;
  }

  LoopContext<P>& loop_;
  CallQueue waiting_for_buffer_;
  std::vector<Staged> staged_;
  std::size_t next_worker_ = 0;
  StreamLayout layout_;  // scratch of begin_rpc and begin_long_call
};

}  // namespace rodeo
