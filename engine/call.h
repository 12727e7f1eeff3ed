// SPDX-License-Identifier: Apache-2.0
#pragma once

// One RPC at the Responder, as its handler sees it.
//
// The Call's arguments lie in the receive buffer (or, for a Long Call, in the buffer that its Position-Zero Read chunk
// was pulled into) and stay there until the Reply has been posted. Results are written once, straight into the bytes
// that will be sent. Bulk data never passes through either: pull() moves a Read chunk into registered memory and
// push() moves registered memory into a Write chunk, by RDMA.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dv/peer.h"
#include "engine/buffer.h"
#include "engine/chunk_list.h"
#include "engine/program.h"
#include "engine/rpc_message.h"
#include "engine/xdr_reader.h"
#include "engine/xdr_writer.h"

namespace rodeo {

class Connection;
class CallCore;  // what the loops keep of a Call; private to the engine

/// A variable-length opaque argument that may have come inline or by Read chunk.
struct BulkArgument {
  std::uint32_t length = 0;                // octets of the item, pad excluded
  std::span<const std::byte> inline_data;  // the octets, when they came inline
  std::int32_t chunk = -1;                 // index of the Read chunk, when they did not
  bool ok = false;                         // false: the XDR was bad, or the chunk's length does not match
};

/// A Call that will be answered later, from any core. Movable; must be used exactly once.
class DeferredCall {
 public:
  DeferredCall() noexcept = default;
  explicit DeferredCall(Call* call) noexcept : call_(call) {}
  [[nodiscard]] explicit operator bool() const noexcept { return call_ != nullptr; }
  [[nodiscard]] Call* get() const noexcept { return call_; }
  /// Sends the Reply that was prepared on the Call (results, push) with SUCCESS, or a rejection. Runs on: any core.
  void reply() noexcept;
  void reject(AcceptStat status) noexcept;
  /// Goes on with the Call where its handlers run: `next` is its next stage. Runs on: any core.
  void resume(Handler next) noexcept;

 private:
  Call* call_ = nullptr;
};

class Call {
 public:
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  [[nodiscard]] std::uint32_t xid() const noexcept;
  [[nodiscard]] std::uint32_t procedure() const noexcept;
  /// The RPC header, with the raw credential; decode_auth_sys() reads an AUTH_SYS one.
  [[nodiscard]] const CallHeader& header() const noexcept;
  /// Who sent it, where the peer opened the connection; kUnknown of a Call in reverse direction. The same object for
  /// all Calls of one connection, as long as there is a Call of it. Runs on: any core.
  [[nodiscard]] const Peer& peer() const noexcept;
  /// Our own calls to the peer, on the connection that this Call came by. On one that the peer opened they are calls in
  /// reverse direction (RFC 8167): null where Config::reverse_credits is zero, and only for the upper layer to know
  /// whether the peer is ready for them. May be kept as long as one likes, on any core, but not used when the engine is
  /// gone; when the connection has gone it is not open() any more, and its calls end with kConnectionLost. Only the
  /// peer can connect again, and then its Calls come by another one.
  [[nodiscard]] std::shared_ptr<Connection> connection() const noexcept;
  /// The chunk lists of the transport header; empty lists when there are none.
  [[nodiscard]] const ChunkLists& chunks() const noexcept;

  /// A reader at the first argument. It ends where the next Read chunk belongs until bulk_argument() has taken that
  /// one: an argument that is not DDP-eligible and was reduced all the same does not parse (RFC 8166 §6.1).
  [[nodiscard]] XdrReader arguments() const noexcept;
  /// Reads an opaque<> argument that is DDP-eligible: inline data or a reference to the Read chunk at that Position.
  [[nodiscard]] BulkArgument bulk_argument(XdrReader& reader, std::uint32_t max_length) noexcept;

  /// Pulls bulk argument `argument` into `sink`, which holds at least its length, then runs `next` on this same core
  /// with this handler's context. Inline data is copied. The sink must stay valid until `next` runs; hold a Buffer in
  /// the Call with keep(). RFC 8166 §3.4.5.
  void pull(const BulkArgument& argument, RegisteredBytes sink, Handler next) noexcept;
  /// The same into a buffer of the engine's, kept(0) from then on unless others were kept before. When none is free
  /// the Call waits its turn, or is answered SYSTEM_ERR where it holds a bulk buffer already (as every Long Call does):
  /// those who wait hold none, so that they cannot wait for each other. A handler that keeps such buffers elsewhere
  /// than in the Call must follow that rule itself. An argument above the bulk size is answered GARBAGE_ARGS.
  void pull(const BulkArgument& argument, Handler next) noexcept;

  /// The same into several pieces, one after the other, which together hold at least the argument's length. The array,
  /// too, must stay valid until `next` runs.
  void pull(const BulkArgument& argument, std::span<const RegisteredBytes> sinks, Handler next) noexcept;

  /// Waits for a buffer of the engine's that holds `bytes`, kept from then on, and runs `next`: by the rules of a pull
  /// into one.
  void wait_for_buffer(std::size_t bytes, Handler next) noexcept;

  /// A buffer of this core's pools that holds `bytes`; empty when none is free or `bytes` exceeds the bulk size.
  [[nodiscard]] Buffer make_buffer(std::size_t bytes) noexcept;
  /// Keeps a buffer until the Call is over: until the Reply, and every Write from the buffer, has left. At most two.
  /// Returns its bytes.
  RegisteredBytes keep(Buffer buffer) noexcept;
  [[nodiscard]] RegisteredBytes kept(std::size_t index) const noexcept;

  /// Room for the XDR results (what follows accept_stat). `max_bytes`: the most this Reply needs, without what is
  /// pushed; more than fits inline is granted only when the Requester gave a Reply chunk. Not ok() when there is no
  /// such room; reply() then answers ERR_CHUNK (or SYSTEM_ERR where it was a pool that had run dry).
  [[nodiscard]] XdrWriter& results(std::size_t max_bytes = 0) noexcept;

  /// Opens results(max_bytes), or where a pool has run dry lets the Call wait its turn, by the rules of pull(), and
  /// then runs `again`. Whether they are open; a handler that gets false returns at once.
  [[nodiscard]] bool open_results(std::size_t max_bytes, Handler again) noexcept;

  /// Places one DDP-eligible result: writes its length word into results(), and the octets into the next Write chunk
  /// by RDMA. Where no Write chunk is left, or an empty one asks for it, they go inline with their pad (RFC 8166
  /// §4.3.2). The source must not change until the Call is over; `done` (optional) then tells so, on a core of ours.
  void push(RegisteredBytes source, void (*done)(void*) noexcept = nullptr, void* done_context = nullptr) noexcept;
  /// The same for a result that lies in several pieces. The array, too, must not change until the Call is over.
  void push(std::span<const RegisteredBytes> pieces) noexcept;

  /// Runs `hook` on a core of ours when the Call is over, whatever its end: when its Reply, and every Write before
  /// it, has left, or when its connection has gone and nothing of it is under way any more. At most one.
  void at_end(void (*hook)(void* context) noexcept, void* context) noexcept;

  /// Ends the Call. Exactly one of them, once.
  void reply() noexcept;
  void reject(AcceptStat status) noexcept;
  /// MSG_DENIED, AUTH_ERROR: the credential is not good enough (RFC 5531 §9).
  void deny(AuthStat why) noexcept;
  [[nodiscard]] DeferredCall defer() noexcept;

  /// Four words for a handler's own state between its stages.
  [[nodiscard]] std::array<std::uint64_t, 4>& state() noexcept;
  /// The context given at registration.
  [[nodiscard]] void* context() const noexcept;

 protected:
  Call() noexcept = default;
  ~Call() = default;
};

}  // namespace rodeo
