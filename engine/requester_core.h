// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// The Requester's side of one connection. A call occupies a slot from submit() to its Reply; the XID is the slot's
// index and a generation, so a Reply finds its slot by arithmetic and a late or forged one is recognised. A plain call
// is the target's prepared headers, copied into an inline WQE, with XID and credits patched in.
//
// Receives are posted for as many calls as we may ever have out, before the first Send, and each goes back before the
// callback of its Reply returns (RFC 8166 §3.3.1). A slot stays taken until its Reply or the end of the connection,
// whatever the application does meanwhile: the peer may still use its memory.

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "engine/loop_context.h"
#include "engine/requester.h"
#include "engine/transport_header.h"
#include "engine/xdr_pad.h"

namespace rodeo {

template <dv::Provider P>
class Requester final : public Connection {
 public:
  Requester(LoopContext<P>& loop, Link<P>& link, std::uint32_t credits, std::uint32_t xid_seed)
      : loop_(loop),
        link_(link),
        asked_(credits),
        asked_be_(byte_swap(credits)),
        mask_(std::bit_ceil(credits) - 1),
        slots_(std::make_unique<Slot[]>(mask_ + 1)),
        free_(std::make_unique<std::uint32_t[]>(credits)),
        extras_(std::make_unique_for_overwrite<Extras[]>(credits)) {
    for (std::uint32_t i = 0; i < credits; ++i) {
      free_[i] = credits - 1 - i;
      slots_[i].key = (xid_seed & ~mask_) | i;
    }
    free_count_ = credits;
  }

  [[nodiscard]] SubmitOutcome submit(const CallRequest& request) noexcept override {
    if (in_flight_ >= limit_) return open() ? SubmitOutcome::kNoCredit : SubmitOutcome::kClosed;
    const CallTarget& target = *request.target;
    const auto size = static_cast<std::uint32_t>(target.bytes().size());
    const bool more = (request.arguments.size() | request.sources.size() | request.sinks.size() |
                       std::size_t{request.force_long_call}) != 0;
    if (more || size > short_call_bytes_ || request.max_results > plain_results_) [[unlikely]]
      return submit_more(request);
    std::byte* out = link_.qp->post_plain_send(size);
    if (out == nullptr) [[unlikely]]
      return submit_inline(request, size);
    target.copy_short_to(out);
    begin_plain(out, request);
    return SubmitOutcome::kPosted;
  }

  [[nodiscard]] std::uint32_t credits_left() const noexcept override {
    return in_flight_ < limit_ ? limit_ - in_flight_ : 0;
  }
  [[nodiscard]] std::uint32_t in_flight() const noexcept override { return in_flight_; }
  [[nodiscard]] bool open() const noexcept override { return open_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint32_t call_threshold() const noexcept override { return link_.call_threshold; }
  [[nodiscard]] std::uint32_t reply_threshold() const noexcept override { return link_.reply_threshold; }
  [[nodiscard]] Buffer make_buffer(std::size_t bytes) noexcept override { return loop_.memory.make_buffer(bytes); }

  [[nodiscard]] Link<P>& link() noexcept { return link_; }
  [[nodiscard]] std::uint32_t receives_wanted() const noexcept { return asked_; }

  /// The connection is up. Release: pairs with open().
  void establish() noexcept {
    plain_call_bytes_ = std::min(link_.call_threshold, link_.qp->max_inline());
    short_call_bytes_ = std::min(plain_call_bytes_, static_cast<std::uint32_t>(CallTarget::kMostShortBytes));
    plain_results_ = link_.reply_threshold - static_cast<std::uint32_t>(kMinHeaderBytes + kAcceptedReplyBytes);
    limit_ = 1;
    open_.store(true, std::memory_order_release);
  }

  void prefetch() const noexcept {
    __builtin_prefetch(this);
    __builtin_prefetch(reinterpret_cast<const char*>(this) + 64);
  }

  /// A message in `buffer`, which goes back to the receive queue in the end.
  [[gnu::always_inline]] void on_message(std::byte* buffer, std::uint32_t length) noexcept {
    TransportHeader header;
    if (is_plain_msg(buffer, length, header)) [[likely]] {
      const std::uint32_t index = header.xid & mask_;
      Slot& slot = slots_[index];
      const std::byte* rpc = buffer + kMinHeaderBytes;
      if (slot.key == (kPlain | header.xid) && length >= kMinHeaderBytes + kAcceptedReplyBytes &&
          accepted_success(rpc, header.xid)) [[likely]] {
        heed(header.credit);
        plain_reply_.results = {rpc + kAcceptedReplyBytes, length - kMinHeaderBytes - kAcceptedReplyBytes};
        const ReplyHandler on_reply = slot.on_reply;
        void* context = slot.context;
        free_slot(slot, index);
        loop_.count(Count::kRepliesReceived);
        on_reply(context, plain_reply_);
        return repost(buffer);
      }
    }
    on_uncommon(buffer, length);
    repost(buffer);
  }

  /// Ends every call: the connection has gone, and with it the peer's reach into our memory.
  [[gnu::noinline, gnu::cold]] void fail_all() noexcept {
    close();
    for (std::uint32_t i = 0; i < asked_; ++i) {
      if (slots_[i].key >= kPlain) fail(slots_[i], CallError::kConnectionLost);
    }
  }
  void close() noexcept {
    open_.store(false, std::memory_order_release);
    limit_ = 0;
  }

 private:
  // What a slot's key has beside the XID: nothing while it is free.
  static constexpr std::uint64_t kPlain = std::uint64_t{1} << 32U;
  static constexpr std::uint64_t kWithExtras = std::uint64_t{2} << 32U;
  struct Slot {
    ReplyHandler on_reply = nullptr;
    void* context = nullptr;
    std::uint64_t key = 0;
    [[nodiscard]] std::uint32_t xid() const noexcept { return static_cast<std::uint32_t>(key); }
    [[nodiscard]] bool has_extras() const noexcept { return (key & kWithExtras) != 0; }
  };
  /// What a call with chunks holds until its Reply.
  struct Extras {
    ChunkLists lists;
    Buffer long_call;
    Buffer long_reply;
    std::array<std::uint32_t, kMaxWriteChunks> written;
    std::uint32_t sink_count = 0;
    std::size_t max_results = 0;

    Extras() noexcept {}
  };

  /// Takes a slot for a plain call whose message is in its WQE, and makes the message its own.
  [[gnu::always_inline]] void begin_plain(std::byte* out, const CallRequest& request) noexcept {
    const std::uint32_t xid = byte_swap(take_slot(request, kPlain));
    std::memcpy(out + kXidOffset, &xid, sizeof xid);
    std::memcpy(out + kCreditOffset, &asked_be_, sizeof asked_be_);
    std::memcpy(out + kMinHeaderBytes, &xid, sizeof xid);
    loop_.mark_dirty(link_);
  }
  /// Apart from submit(), which thus calls nothing but at its end, and has no register to save.
  [[nodiscard, gnu::noinline]] SubmitOutcome submit_more(const CallRequest& request) noexcept {
    const std::size_t size = request.target->bytes().size() + request.arguments.size();
    const bool chunks = (request.sources.size() | request.sinks.size() | std::size_t{request.force_long_call}) != 0;
    if (chunks || size > plain_call_bytes_ || request.max_results > plain_results_) return submit_general(request);
    return submit_inline(request, static_cast<std::uint32_t>(size));
  }
  /// A plain call with arguments, or with a long header, or one whose Send the queue has to look after.
  [[nodiscard, gnu::noinline]] SubmitOutcome submit_inline(const CallRequest& request, std::uint32_t size) noexcept {
    std::byte* out = link_.qp->post_inline_send(size);
    if (out == nullptr) return SubmitOutcome::kSendQueueFull;
    request.target->copy_to(out);
    if (!request.arguments.empty()) {
      std::memcpy(out + request.target->bytes().size(), request.arguments.data(), request.arguments.size());
    }
    begin_plain(out, request);
    return SubmitOutcome::kPosted;
  }

  /// Returns the XID.
  [[gnu::always_inline]] std::uint32_t take_slot(const CallRequest& request, std::uint64_t kind) noexcept {
    Slot& slot = slots_[free_[--free_count_]];
    slot.on_reply = request.on_reply;
    slot.context = request.context;
    slot.key |= kind;
    ++in_flight_;
    loop_.count(Count::kCallsSubmitted);
    return slot.xid();
  }
  /// From here on a Reply to the XID that the slot had is late, and the application may submit at once.
  [[gnu::always_inline]] void free_slot(Slot& slot, std::uint32_t index) noexcept {
    slot.key = slot.xid() + mask_ + 1;
    --in_flight_;
    free_[free_count_++] = index;
  }

  /// nullptr when no call has this XID.
  [[nodiscard]] Slot* find(std::uint32_t xid) noexcept {
    Slot& slot = slots_[xid & mask_];
    return slot.xid() == xid && slot.key >= kPlain ? &slot : nullptr;
  }

  [[nodiscard]] static bool accepted_success(const std::byte* rpc, std::uint32_t xid) noexcept {
    // XID, REPLY, MSG_ACCEPTED, verifier AUTH_NONE of length 0, SUCCESS.
    std::uint64_t first;
    std::uint64_t second;
    std::uint64_t third;
    std::memcpy(&first, rpc, 8);
    std::memcpy(&second, rpc + 8, 8);
    std::memcpy(&third, rpc + 16, 8);
    const std::uint64_t expected = byte_swap((std::uint64_t{xid} << 32U) | static_cast<std::uint32_t>(MsgType::kReply));
    return ((first ^ expected) | second | third) == 0;
  }

  /// ENG-CR-1: a grant of 0 counts as 1, one above our own request as our request.
  [[gnu::always_inline]] void heed(std::uint32_t granted) noexcept {
    if (granted == granted_) [[likely]]
      return;
    granted_ = granted;
    if (open_.load(std::memory_order_relaxed)) limit_ = std::clamp(granted, 1U, asked_);
  }

  /// Ends a call without a Reply that says how its RPC went.
  void fail(Slot& slot, CallError error) noexcept {
    Reply reply;
    reply.error = error;
    loop_.count(Count::kRequestsFailed);
    complete(slot, reply);
  }

  /// Frees the slot, then tells the application, which may submit at once.
  [[gnu::noinline]] void complete(Slot& slot, Reply& reply) noexcept {
    const ReplyHandler on_reply = slot.on_reply;
    void* context = slot.context;
    const auto index = static_cast<std::uint32_t>(&slot - slots_.get());
    // All of it moves here, so that the callback finds the slot free.
    Buffer long_call;
    Buffer long_reply;
    std::array<std::uint32_t, kMaxWriteChunks> written;
    if (slot.has_extras()) {
      Extras& extras = extras_[index];
      long_call = std::move(extras.long_call);
      long_reply = std::move(extras.long_reply);
      written = extras.written;
      reply.written = {written.data(), extras.sink_count};
    }
    free_slot(slot, index);
    on_reply(context, reply);
  }

  [[gnu::always_inline]] void repost(std::byte* buffer) noexcept {
    if (link_.state > LinkState::kOpen) [[unlikely]]
      return loop_.memory.put_small(buffer);
    link_.qp->repost_receive(buffer);
    loop_.mark_dirty(link_);
  }

  /// Replies with chunks, errors, and whatever is to be discarded (RFC 8166 §4.5: a Requester never answers).
  [[gnu::noinline]] void on_uncommon(const std::byte* message, std::uint32_t length) noexcept {
    TransportHeader header;
    ChunkLists& lists = reply_lists_;
    const HeaderOutcome outcome = decode_reply_header({message, length}, header, lists);
    if (outcome != HeaderOutcome::kOk) return discard(outcome);
    Slot* slot = find(header.xid);
    if (slot == nullptr) return loop_.count(Count::kRepliesUnknownXid);
    if (header.proc == Proc::kError) {
      heed(header.credit);
      return fail(*slot, header.rdma_err == RdmaErr::kVers ? CallError::kErrVers : CallError::kErrChunk);
    }
    Extras* extras = slot->has_extras() ? &extras_[static_cast<std::uint32_t>(slot - slots_.get())] : nullptr;
    const ChunkLists& offered = extras != nullptr ? extras->lists : kNoLists;
    if (offered.write_chunk_count == 0 && any_written(lists)) return end_by_bad_reply(*slot, header.credit);
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
      collect_written(*extras, lists);
      if (head.success() && left_inline(*extras, rpc.size() - head.results_offset)) {
        return end_by_bad_reply(*slot, header.credit);
      }
    }
    heed(header.credit);
    Reply reply;
    reply.accept_stat = head.accept_stat;
    if (head.reply_stat == ReplyStat::kDenied) reply.error = CallError::kDenied;
    reply.results = rpc.subspan(head.results_offset);
    loop_.count(Count::kRepliesReceived);
    complete(*slot, reply);
  }

  /// RFC 8166 §6.1: the Responder reduced a result for which the Call offered no Write chunk, or did not reduce one for
  /// which it did. The RPC ends for good; the connection goes on.
  void end_by_bad_reply(Slot& slot, std::uint32_t granted) noexcept {
    heed(granted);
    fail(slot, CallError::kBadReply);
  }
  [[nodiscard]] static bool any_written(const ChunkLists& returned) noexcept {
    return std::ranges::any_of(returned.write_chunks(), [](const WriteChunk& chunk) { return chunk.capacity != 0; });
  }
  /// A Write chunk came back unused, and the results are longer than they can be without what belongs there.
  [[nodiscard]] static bool left_inline(const Extras& extras, std::size_t results) noexcept {
    if (results <= extras.max_results) return false;
    return std::ranges::any_of(std::span(extras.written).first(extras.sink_count),
                               [](std::uint32_t written) { return written == 0; });
  }

  void discard(HeaderOutcome outcome) noexcept {
    loop_.count(outcome);
    loop_.count(Count::kRepliesDiscarded);
  }

  static void collect_written(Extras& extras, const ChunkLists& returned) noexcept {
    extras.written.fill(0);
    for (std::uint16_t i = 0; i < returned.write_chunk_count && i < extras.sink_count; ++i) {
      extras.written[i] = static_cast<std::uint32_t>(returned.write_table[i].capacity);
    }
  }

  [[nodiscard]] Segment segment_of(std::span<const std::byte> bytes) const noexcept {
    return {loop_.region.rkey, static_cast<std::uint32_t>(bytes.size()),
            reinterpret_cast<std::uintptr_t>(bytes.data())};
  }

  /// Everything but the plain small call: chunks, Long Calls, and messages too long to be inline.
  [[nodiscard, gnu::noinline]] SubmitOutcome submit_general(const CallRequest& request) noexcept {
    const auto rpc_header = request.target->rpc_header();
    const std::size_t rpc_bytes = rpc_header.size() + request.arguments.size();
    if (link_.qp->send_room() < kSendRoom) return SubmitOutcome::kSendQueueFull;
    Extras& extras = extras_[free_[free_count_ - 1]];
    if (!plan_chunks(request, rpc_header.size(), extras)) return SubmitOutcome::kTooLarge;
    // Reply chunk: only where the largest Reply might not fit (RFC 8166 §4.3.3).
    const std::size_t reply_bytes = kAcceptedReplyBytes + request.max_results;
    if (reply_header_size(extras.lists) + reply_bytes > link_.reply_threshold) {
      const std::size_t chunk_bytes = xdr_padded(reply_bytes);
      if (chunk_bytes > loop_.memory.memory().bulk().buffer_bytes()) return SubmitOutcome::kTooLarge;
      extras.long_reply = loop_.memory.make_buffer(chunk_bytes);
      if (!extras.long_reply) return SubmitOutcome::kNoBuffer;
      const Segment segment = segment_of(extras.long_reply.first(chunk_bytes));
      if (!extras.lists.set_reply({&segment, 1})) return abandon(extras, SubmitOutcome::kTooLarge);
    }
    const bool long_call = request.force_long_call || header_size(extras.lists) + rpc_bytes > link_.call_threshold;
    if (long_call) {
      if (rpc_bytes > loop_.memory.memory().bulk().buffer_bytes()) return abandon(extras, SubmitOutcome::kTooLarge);
      extras.long_call = loop_.memory.make_buffer(rpc_bytes);
      if (!extras.long_call) return abandon(extras, SubmitOutcome::kNoBuffer);
      if (!prepend_position_zero(extras.lists, segment_of(extras.long_call.first(rpc_bytes)))) {
        return abandon(extras, SubmitOutcome::kTooLarge);
      }
    }
    const std::size_t header = header_size(extras.lists);
    const std::size_t message = header + (long_call ? 0 : rpc_bytes);
    if (message > link_.call_threshold) return abandon(extras, SubmitOutcome::kTooLarge);
    std::byte* out = nullptr;
    const bool is_inline = message <= link_.qp->max_inline();
    if (is_inline) {
      out = link_.qp->post_inline_send(static_cast<std::uint32_t>(message));
      if (out == nullptr) return abandon(extras, SubmitOutcome::kSendQueueFull);
    } else {
      out = loop_.memory.get_small(pools::Owner::kSend);
      if (out == nullptr) return abandon(extras, SubmitOutcome::kNoBuffer);
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
      // There is room: kSendRoom was checked above.
      (void)link_.qp->post_send({&sge, 1},
                                make_token(TokenKind::kSmallBuffer, loop_.memory.memory().small().index_of(out)));
    }
    loop_.mark_dirty(link_);
    return SubmitOutcome::kPosted;
  }

  /// Read chunks for the sources, a Write chunk for each sink.
  [[nodiscard]] bool plan_chunks(const CallRequest& request, std::size_t rpc_header_bytes, Extras& extras) noexcept {
    extras.lists.clear();
    extras.sink_count = static_cast<std::uint32_t>(request.sinks.size());
    extras.max_results = request.max_results;
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
      if (!loop_.memory.memory().contains(sink)) return false;
      const Segment segment = segment_of(sink);
      if (!extras.lists.add_write_chunk({&segment, 1})) return false;
    }
    return true;
  }

  /// The Position-Zero Read chunk goes first, as Positions ascend.
  [[nodiscard]] static bool prepend_position_zero(ChunkLists& lists, const Segment& segment) noexcept {
    if (lists.read_count == kMaxReadSegments || !lists.add_read(0, segment)) return false;
    std::rotate(lists.read_segments.begin(), lists.read_segments.begin() + lists.read_count - 1,
                lists.read_segments.begin() + lists.read_count);
    return true;
  }

  [[nodiscard]] static SubmitOutcome abandon(Extras& extras, SubmitOutcome outcome) noexcept {
    extras.long_call.reset();
    extras.long_reply.reset();
    return outcome;
  }

  static constexpr std::uint32_t kSendRoom = 16;  // BBs: the longest WQE and a NOP before it
  static inline const ChunkLists kNoLists;

  LoopContext<P>& loop_;
  Link<P>& link_;
  std::uint32_t asked_;  // credits asked for, and receives posted
  std::uint32_t asked_be_;
  std::uint32_t limit_ = 0;    // while open; RFC 8166 §3.3.3: one until the first Reply
  std::uint32_t granted_ = 1;  // by the latest Reply, as it stood there
  std::uint32_t in_flight_ = 0;
  std::uint32_t mask_;
  std::uint32_t free_count_ = 0;
  std::unique_ptr<Slot[]> slots_;
  std::unique_ptr<std::uint32_t[]> free_;
  std::unique_ptr<Extras[]> extras_;  // by slot
  std::atomic<bool> open_{false};
  std::uint32_t plain_call_bytes_ = 0;  // longest call, and longest results, that need neither chunk nor buffer
  std::uint32_t plain_results_ = 0;
  std::uint32_t short_call_bytes_ = 0;  // longest call without arguments that submit() handles itself
  Reply plain_reply_;                   // of the call that is being completed
  ChunkLists reply_lists_;              // scratch of on_uncommon
};

}  // namespace rodeo
