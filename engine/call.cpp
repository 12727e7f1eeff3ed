// SPDX-License-Identifier: Apache-2.0

// Hot path. Runs on: the core that serves the Call.
// A handler's view of its Call. Nothing here touches a queue pair: the handler leaves its wishes in the CallCore, and
// the poll loop carries them out when the handler has returned (or the Call has come back through the ring).

#include "engine/call.h"

#include <algorithm>
#include <cstring>

#include "engine/call_core.h"
#include "engine/link.h"
#include "engine/memory.h"
#include "engine/transport_header.h"
#include "engine/xdr_pad.h"

namespace rodeo {

namespace {

const ChunkLists kNoChunks;

[[nodiscard]] bool has_untaken_chunk(const CallCore& call) noexcept {
  return call.chunks != nullptr && call.chunks->reads_taken < call.chunks->reads.data().size();
}

/// Where in the Payload the next data Read chunk belongs; its end when there is none. All Positions were found to lie
/// inside it before the handler ran.
[[nodiscard]] std::uint32_t next_chunk_place(const CallCore& call) noexcept {
  if (!has_untaken_chunk(call)) [[likely]]
    return call.payload_bytes;
  return call.chunks->reads.data()[call.chunks->reads_taken].position - call.chunks->unreduced_shift;
}

}  // namespace

namespace {

/// `argument` into `sink`, and what that does not hold into `more`.
void plan_pull(CallCore& call, const BulkArgument& argument, RegisteredBytes sink,
               std::span<const RegisteredBytes> more, Handler next) noexcept {
  call.next_stage = next;
  call.ending = Ending::kPull;
  call.pull_sink = sink;
  call.pull_more = more;
  call.pull_left = argument.length;
  call.pull_chunk = argument.chunk;
  call.pull_segment = call.pull_segment_done = 0;
  if (!argument.ok || sink.size() + bytes_of(more) < argument.length) return call.reject(AcceptStat::kGarbageArgs);
  std::span<const std::byte> left = argument.inline_data;
  for (; !left.empty(); more = more.subspan(1)) {
    const std::size_t part = std::min(sink.size(), left.size());
    if (part != 0) std::memcpy(sink.data(), left.data(), part);
    left = left.subspan(part);
    if (left.empty()) break;
    sink = more.front();
  }
}

/// An argument of which nothing is there to be pulled.
[[nodiscard]] BulkArgument buffer_of(std::size_t bytes) noexcept {
  BulkArgument argument;
  argument.length = static_cast<std::uint32_t>(bytes);
  argument.ok = true;
  return argument;
}

/// The loop keeps the Call until a buffer is free that would hold the argument.
void wait_to_run(CallCore& call, const BulkArgument& argument, Handler next) noexcept {
  call.waiting_argument = argument;
  call.waits_for_results = false;
  call.next_stage = next;
  call.ending = Ending::kWaitForBuffer;
}

}  // namespace

constinit thread_local bool deferred_in_stage = false;

std::uint32_t Call::xid() const noexcept { return core_of(*this).rpc.xid; }
std::uint32_t Call::procedure() const noexcept { return core_of(*this).serving->number; }
const CallHeader& Call::header() const noexcept {
  const CallCore& call = core_of(*this);
  // Recognised: not decoded yet, and known to decode.
  if (call.recognised) (void)decode_call({call.payload, call.payload_bytes}, call.rpc);
  return call.rpc;
}
const Peer& Call::peer() const noexcept { return *core_of(*this).link->details->peer; }
const ChunkLists& Call::chunks() const noexcept {
  const CallCore& call = core_of(*this);
  return call.chunks != nullptr ? call.chunks->lists : kNoChunks;
}
std::array<std::uint64_t, 4>& Call::state() noexcept { return core_of(*this).user_state; }
void* Call::context() const noexcept { return core_of(*this).serving->context; }

XdrReader Call::arguments() const noexcept {
  const CallCore& call = core_of(*this);
  return XdrReader({call.payload + call.rpc.args_offset, next_chunk_place(call) - call.rpc.args_offset});
}

BulkArgument Call::bulk_argument(XdrReader& reader, std::uint32_t max_length) noexcept {
  CallCore& call = core_of(*this);
  BulkArgument out;
  out.length = reader.u32();
  if (!reader.ok() || out.length > max_length) return out;
  const std::uint32_t here = call.rpc.args_offset + static_cast<std::uint32_t>(reader.position());
  if (has_untaken_chunk(call) && here == next_chunk_place(call)) {
    CallChunks& chunks = *call.chunks;
    const ReadChunk& chunk = chunks.reads.data()[chunks.reads_taken];
    // RFC 8166 §3.4.5: the chunk's length is the item's, with or without its pad.
    if (chunk.length != out.length && chunk.length != xdr_padded(out.length)) return out;
    out.chunk = chunks.reads_taken++;
    chunks.unreduced_shift += xdr_padded(chunk.length);
    reader.extend(next_chunk_place(call) - here);
    out.ok = true;
    return out;
  }
  out.inline_data = reader.opaque_fixed(out.length);
  out.ok = reader.ok();
  return out;
}

void Call::pull(const BulkArgument& argument, RegisteredBytes sink, Handler next) noexcept {
  plan_pull(core_of(*this), argument, sink, {}, next);
}

void Call::pull(const BulkArgument& argument, std::span<const RegisteredBytes> sinks, Handler next) noexcept {
  plan_pull(core_of(*this), argument, {}, sinks, next);
}

void Call::wait_for_buffer(std::size_t bytes, Handler next) noexcept {
  if (bytes > CoreMemory::current()->memory().bulk().buffer_bytes()) return reject(AcceptStat::kGarbageArgs);
  pull(buffer_of(bytes), next);
}

void Call::pull(const BulkArgument& argument, Handler next) noexcept {
  CallCore& call = core_of(*this);
  Buffer buffer = make_buffer(argument.length);
  if (!buffer) {
    if (argument.length > CoreMemory::current()->memory().bulk().buffer_bytes())
      return reject(AcceptStat::kGarbageArgs);
    return wait_to_run(call, argument, next);
  }
  pull(argument, keep(std::move(buffer)).first(argument.length), next);
}

Buffer Call::make_buffer(std::size_t bytes) noexcept {
  CoreMemory* memory = CoreMemory::current();
  return memory == nullptr ? Buffer{} : memory->make_buffer(bytes);
}

RegisteredBytes Call::keep(Buffer buffer) noexcept {
  CallCore& call = core_of(*this);
  if (call.kept_count == kMaxKept || !buffer) return {};
  Buffer& kept = call.kept_buffers[call.kept_count++];
  kept = std::move(buffer);
  return {kept.data(), kept.capacity()};
}

RegisteredBytes Call::kept(std::size_t index) const noexcept {
  const CallCore& call = core_of(*this);
  if (index >= call.kept_count) return {};
  return {call.kept_buffers[index].data(), call.kept_buffers[index].capacity()};
}

XdrWriter& Call::results(std::size_t max_bytes) noexcept {
  CallCore& call = core_of(*this);
  if (call.results_open) return call.writer;
  call.results_open = true;
  call.writer = XdrWriter({});
  CoreMemory* memory = CoreMemory::current();
  if (memory == nullptr) return call.writer;
  const std::size_t headers =
      (call.chunks != nullptr ? reply_header_size(call.chunks->lists) : kMinHeaderBytes) + kAcceptedReplyBytes;
  const std::size_t threshold = call.link->outgoing_threshold;
  std::size_t limit = threshold;
  if (headers + max_bytes <= threshold) {
    call.results_buffer = memory->get_small(pools::Owner::kCall);
  } else if (call.chunks != nullptr && call.chunks->lists.reply_present) {
    call.results_buffer = memory->get_bulk(pools::Owner::kCall);
    call.results_bulk = true;
    limit = memory->memory().bulk().buffer_bytes();
  } else {
    call.results_refused = true;  // RFC 8166 §4.5.2: the Requester provided too little for this Reply
    return call.writer;
  }
  if (call.results_buffer == nullptr) return call.writer;
  call.results_offset = static_cast<std::uint32_t>(headers);
  if (headers < limit) call.writer = XdrWriter({call.results_buffer + headers, limit - headers});
  return call.writer;
}

bool Call::open_results(std::size_t max_bytes, Handler again) noexcept {
  CallCore& call = core_of(*this);
  (void)results(max_bytes);
  if (call.results_buffer != nullptr || call.results_refused) return true;
  const std::size_t awaited = call.results_bulk ? CoreMemory::current()->memory().bulk().buffer_bytes() : max_bytes;
  call.results_open = call.results_bulk = false;
  wait_to_run(call, buffer_of(awaited), again);
  call.waits_for_results = true;
  return false;
}

namespace {

/// A result forced inline makes the Reply longer than the handler could know. Where the Requester gave a Reply chunk,
/// the results go on in a bulk buffer (RFC 8166 §3.5.3); whether all fits the chunk is decided when all is known.
void continue_in_bulk(CallCore& call) noexcept {
  CoreMemory& memory = *CoreMemory::current();
  std::byte* bulk = memory.get_bulk(pools::Owner::kCall);
  const std::size_t offset = call.results_offset;
  if (bulk == nullptr) {
    call.writer = XdrWriter({});  // reply() then answers SYSTEM_ERR
  } else {
    call.writer.move_to({bulk + offset, memory.memory().bulk().buffer_bytes() - offset});
  }
  memory.put_small(std::exchange(call.results_buffer, bulk));
  call.results_bulk = true;
}

/// Places the result that `push` tells of.
void place(Call& handle, const Push& push) noexcept {
  CallCore& call = core_of(handle);
  XdrWriter& writer = handle.results();
  const std::size_t bytes = bytes_of(push.all());
  if (CallChunks* chunks = call.chunks; chunks != nullptr &&
                                        chunks->next_write_chunk < chunks->lists.write_chunk_count &&
                                        chunks->next_write_chunk < call.serving->max_write_chunks) {
    const std::uint16_t chunk = chunks->next_write_chunk++;
    // RFC 8166 §4.3.2: an empty Write chunk asks for this result inline.
    if (chunks->lists.write_table[chunk].count != 0) {
      writer.u32(static_cast<std::uint32_t>(bytes));
      Push& placed = chunks->pushes[chunks->push_count++];
      placed = push;
      placed.chunk = chunk;
      return;
    }
  }
  const std::size_t wanted = sizeof(std::uint32_t) + xdr_padded(bytes);
  if (wanted > writer.room() && writer.ok() && call.results_buffer != nullptr && !call.results_bulk &&
      call.chunks != nullptr && call.chunks->lists.reply_present) {
    continue_in_bulk(call);
  }
  writer.u32(static_cast<std::uint32_t>(bytes));
  if (std::byte* out = writer.reserve(bytes)) {
    for (const RegisteredBytes& piece : push.all()) {
      if (!piece.empty()) std::memcpy(out, piece.data(), piece.size());
      out += piece.size();
    }
  }
  if (push.done != nullptr) push.done(push.done_context);
}

}  // namespace

void Call::push(RegisteredBytes source, void (*done)(void*) noexcept, void* done_context) noexcept {
  place(*this, {source, {}, 0, done, done_context});
}

void Call::push(std::span<const RegisteredBytes> pieces) noexcept { place(*this, {{}, pieces, 0, nullptr, nullptr}); }

void Call::at_end(void (*hook)(void*) noexcept, void* context) noexcept {
  CallCore& call = core_of(*this);
  call.has_end_hook = true;
  call.end_hook = hook;
  call.end_context = context;
}

void Call::reply() noexcept { core_of(*this).ending = Ending::kReply; }

void Call::reject(AcceptStat status) noexcept {
  CallCore& call = core_of(*this);
  call.ending = Ending::kReject;
  call.reject_with = status;
}

void Call::deny(AuthStat why) noexcept {
  CallCore& call = core_of(*this);
  call.ending = Ending::kReject;
  call.denial = Denial::kAuthError;
  call.auth_stat = why;
}

std::shared_ptr<Connection> Call::connection() const noexcept { return core_of(*this).link->details->calls_by.lock(); }

DeferredCall Call::defer() noexcept {
  deferred_in_stage = true;
  return DeferredCall(this);
}

void DeferredCall::reply() noexcept {
  CallCore& call = core_of(*std::exchange(call_, nullptr));
  call.ending = Ending::kReply;
  // The ring holds every Call of the loop, so there is always room.
  while (!call.home->push(&call)) {
  }
}

void DeferredCall::resume(Handler next) noexcept {
  CallCore& call = core_of(*std::exchange(call_, nullptr));
  call.ending = Ending::kPull;  // of nothing
  call.pull_left = 0;
  call.pull_chunk = -1;
  call.next_stage = next;
  while (!call.home->push(&call)) {
  }
}

void DeferredCall::reject(AcceptStat status) noexcept {
  call_->reject(status);
  CallCore& call = core_of(*std::exchange(call_, nullptr));
  while (!call.home->push(&call)) {
  }
}

}  // namespace rodeo
