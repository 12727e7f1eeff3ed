// SPDX-License-Identifier: Apache-2.0
#pragma once

// The Requester's side: calls on a connection, completed by callback from the poll loop.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/buffer.h"
#include "engine/registration.h"
#include "engine/rpc_message.h"
#include "engine/xdr_reader.h"

namespace rodeo {

/// The headers of calls to one procedure with one credential, encoded once. Copyable, immutable.
class CallTarget {
 private:
  static constexpr std::size_t kHead = 64;  // less than the shortest header, of 28 + 40 octets
  static constexpr std::size_t kTail = 48;

 public:
  static constexpr std::size_t kMostShortBytes = kHead + kTail;
  static constexpr std::size_t kMaxBytes = 28 + 24 + 2 * 408;
  /// Throws nothing; an over-long credential gives a target that is not ok().
  CallTarget(std::uint32_t program, std::uint32_t version, std::uint32_t procedure, const Credential& credential);
  [[nodiscard]] bool ok() const noexcept { return size_ != 0; }
  /// Plain transport header (XID and credit zero) and RPC Call header.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {bytes_.data(), size_}; }
  /// The RPC Call header alone.
  [[nodiscard]] std::span<const std::byte> rpc_header() const noexcept { return bytes().subspan(28); }
  /// Copies bytes() of at most kMostShortBytes to `out` by a handful of stores. Nearly all targets are as short.
  void copy_short_to(std::byte* out) const noexcept {
    std::memcpy(out, bytes_.data(), kHead);
    std::memcpy(out + size_ - kTail, bytes_.data() + size_ - kTail, kTail);
  }
  void copy_to(std::byte* out) const noexcept { std::memcpy(out, bytes_.data(), size_); }

 private:
  alignas(16) std::array<std::byte, kMaxBytes + 12> bytes_{};
  std::size_t size_ = 0;
};

/// An opaque<> argument that the Responder is to pull by RDMA Read. Its length word stays in the arguments, at
/// `arguments_offset - 4`; the octets and their pad do not (RFC 8166 §3.4.5).
struct BulkSource {
  std::size_t arguments_offset = 0;
  RegisteredBytes data;
};

enum class CallError : std::uint8_t {
  kNone,            // a Reply came; accept_stat says how the RPC went
  kDenied,          // MSG_DENIED: RPC_MISMATCH or AUTH_ERROR
  kErrChunk,        // RDMA_ERROR ERR_CHUNK
  kErrVers,         // RDMA_ERROR ERR_VERS
  kBadReply,        // the Reply breaks a rule that ends the RPC (RFC 8166 §6.1)
  kConnectionLost,  // nobody knows whether the Call ran
  kTimedOut,        // no Reply within CallOptions::timeout_ms
  kCancelled,       // Connection::cancel()
  kNotSent,         // given up before it was ever sent (PersistentConnection)
};
[[nodiscard]] std::string_view to_string(CallError error) noexcept;

/// Whether the Responder's handler has run for a call.
enum class Ran : std::uint8_t { kNo, kPerhaps, kYes };

/// What a completion gets. Valid during the callback only.
struct Reply {
  CallError error = CallError::kNone;
  AcceptStat accept_stat = AcceptStat::kSuccess;
  std::span<const std::byte> results;      // XDR results, inline or from the Reply chunk
  std::span<const std::uint32_t> written;  // octets placed in each of the Call's `sinks`
  [[nodiscard]] bool ok() const noexcept { return error == CallError::kNone && accept_stat == AcceptStat::kSuccess; }
  /// Whether the call may safely be made again although it must not run twice: only after kNo.
  [[nodiscard]] Ran ran() const noexcept;
  [[nodiscard]] XdrReader reader() const noexcept { return XdrReader(results); }
};

using ReplyHandler = void (*)(void* context, const Reply& reply) noexcept;

/// One call. Everything it names except `target` and `arguments` must stay valid until the completion.
struct CallRequest {
  const CallTarget* target = nullptr;
  std::span<const std::byte> arguments{};    // XDR, without the data of `sources`; copied
  std::span<const BulkSource> sources{};     // one Read chunk each, ascending offsets
  std::span<const RegisteredBytes> sinks{};  // one Write chunk each, for DDP-eligible results in order
  std::size_t max_results = 0;               // octets of the largest results, without what goes to `sinks`: decides
                                             // whether a Reply chunk is offered (RFC 8166 §4.3.3)
  bool force_long_call = false;              // RDMA_NOMSG whatever the size
  ReplyHandler on_reply = nullptr;
  void* context = nullptr;
};

/// When a call that is cancelled or times out gives back the memory that it lent, its `sources` and `sinks`. A call
/// that lent none ends at once in any case.
enum class Reclaim : std::uint8_t {
  /// With its late Reply, or when the connection has gone. The Responder may use the memory until then.
  kWhenAnswered,
  /// As soon as the Responder cannot reach it any more. Its windows are invalidated, and a Responder that uses them all
  /// the same loses the connection. Where the Responder has a key that cannot be taken from it
  /// (Registration::kPoolKey),
  /// or may be about to invalidate one itself (kRemoteInvalidation), the connection is closed.
  kAtOnce,
};

/// What most calls do without.
struct CallOptions {
  std::uint32_t timeout_ms = 0;  // 0: none. Looked at about eight times within the shortest in use, at most every
                                 // millisecond; a call never ends early
  Reclaim reclaim = Reclaim::kWhenAnswered;  // after the timeout
  std::uint32_t xid = 0;  // not 0: of an earlier transmission of this very call, on a connection that has gone
                          // (RFC 5531 §9), which asked for as many credits. kNoCredit while another call has its place
};

/// Names one call of one connection, also when it is over.
struct CallHandle {
  std::uint32_t xid = 0;
};

enum class CancelOutcome : std::uint8_t {
  kEnded,    // on_reply has been called, with kCancelled
  kPending,  // on_reply will be called, with kCancelled, when the memory is out of the Responder's reach
  kUnknown,  // the call is over, or its Reply has come and is about to be delivered
};

enum class SubmitOutcome : std::uint8_t {
  kPosted,         // on_reply will be called once
  kNoCredit,       // as many calls are out as the Responder granted: try again after a completion
  kSendQueueFull,  // try again after a completion
  kNoBuffer,       // a pool is empty, or no memory window is free: try again after a completion
  kTooLarge,       // arguments or results exceed the bulk buffer size, or there are too many chunks
  kClosed,         // the connection is gone
};
[[nodiscard]] std::string_view to_string(SubmitOutcome outcome) noexcept;

/// A connection on which we make calls: one that we opened, or one that a peer opened (Call::connection()), where calls
/// are in reverse direction (RFC 8167). They are Short messages without chunks; a request that needs more is kTooLarge.
/// Owned by the engine, bound to one poll core. Runs on: that core, unless said otherwise.
class Connection {
 public:
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  /// Posts one call; it leaves with the burst that the loop is in. Anything but kPosted means nothing happened.
  [[nodiscard]] virtual SubmitOutcome submit(const CallRequest& request) noexcept = 0;
  /// The same with options; `handle` then names the call.
  [[nodiscard]] virtual SubmitOutcome submit(const CallRequest& request, const CallOptions& options,
                                             CallHandle& handle) noexcept = 0;
  /// Ends a call without its Reply. The Call stays in flight, and its credit in use, until the late Reply comes and is
  /// dropped: the Responder does not know.
  virtual CancelOutcome cancel(CallHandle call, Reclaim reclaim = Reclaim::kWhenAnswered) noexcept = 0;

  /// How many more calls could be submitted now.
  [[nodiscard]] virtual std::uint32_t credits_left() const noexcept = 0;
  /// Calls without a Reply, those that were cancelled or timed out among them.
  [[nodiscard]] virtual std::uint32_t in_flight() const noexcept = 0;
  /// How the Responder reaches the memory of our Calls; never kAuto.
  [[nodiscard]] virtual Registration registration() const noexcept = 0;
  /// Any core.
  [[nodiscard]] virtual bool open() const noexcept = 0;
  /// The poll loop that it is bound to: where Engine::run_on_loop reaches it. Any core.
  [[nodiscard]] virtual std::size_t loop() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t call_threshold() const noexcept = 0;
  [[nodiscard]] virtual std::uint32_t reply_threshold() const noexcept = 0;
  /// A buffer of this core's pools; empty when none is free or `bytes` exceeds the bulk size.
  [[nodiscard]] virtual Buffer make_buffer(std::size_t bytes) noexcept = 0;

 protected:
  Connection() noexcept = default;
  virtual ~Connection() = default;
};

}  // namespace rodeo
