// SPDX-License-Identifier: Apache-2.0
#pragma once

// The fast path that the engine is written against: what a queue pair and a poll group must offer. A provider is a
// bundle of types that satisfies `Provider`; the engine's loops are templates over it, so that a work request costs no
// indirect call. The slow path (open, register, connect, close) is dv/device.h.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace rodeo::dv {

/// Outcome of a work request, as in ibv_wc_status. Only kSuccess lets `Completion::byte_count` be read.
enum class Status : std::uint8_t {
  kSuccess,
  kLocalLength,
  kLocalQpOperation,
  kLocalProtection,
  kFlushed,
  kWindowBind,
  kBadResponse,
  kLocalAccess,
  kRemoteInvalidRequest,
  kRemoteAccess,
  kRemoteOperation,
  kRetryExceeded,
  kRnrRetryExceeded,
  kRemoteAborted,
  kUnknown,
};
[[nodiscard]] std::string_view to_string(Status status) noexcept;

enum class CompletionKind : std::uint8_t {
  kReceive,            // a message arrived (or the receive was flushed); hand it to Qp::take_receive
  kSendQueue,          // a signalled (or failed) WQE of the send queue; hand it to Qp::retire_send
  kReceiveInvalidate,  // the same, and the peer's Send With Invalidate killed `invalidated_key`
};

/// One completion, whatever the device. Trivially copyable, 24 bytes.
struct Completion {
  std::uint64_t origin = 0;  // bits 39 to 16: the QPN; bits 15 to 0: the counter that names the work request
  CompletionKind kind = CompletionKind::kReceive;
  Status status = Status::kSuccess;
  std::uint32_t byte_count = 0;
  std::uint32_t invalidated_key = 0;
  std::uint8_t vendor_syndrome = 0;  // for logs only

  [[nodiscard]] static constexpr std::uint64_t origin_of(std::uint32_t qpn, std::uint16_t wqe_counter) noexcept {
    return (std::uint64_t{qpn} << 16U) | wqe_counter;
  }
  [[nodiscard]] constexpr std::uint32_t qpn() const noexcept {
    return static_cast<std::uint32_t>(origin >> 16U) & 0x00ff'ffffU;
  }
  [[nodiscard]] constexpr std::uint16_t wqe_counter() const noexcept { return static_cast<std::uint16_t>(origin); }

  /// A message, without error or invalidation: nearly all there is.
  [[nodiscard]] bool plain_receive() const noexcept {
    return (static_cast<unsigned>(kind) | static_cast<unsigned>(status)) == 0;
  }
};

/// A piece of registered local memory.
struct Sge {
  const std::byte* address = nullptr;
  std::uint32_t length = 0;
  std::uint32_t lkey = 0;
};

/// A piece of the peer's memory: what a segment of RFC 8166 names.
struct RemoteAddress {
  std::uint64_t offset = 0;
  std::uint32_t rkey = 0;
};

/// What a memory window lets the peer do.
enum class WindowAccess : std::uint8_t { kRemoteRead, kRemoteWrite };

/// What the owner of a work request gets back when it retires. Zero means "nobody waits": such requests need no
/// completion of their own, and the queue signals only every so many of them.
using Token = std::uint32_t;
inline constexpr Token kNoToken = 0;

/// Receives that several queue pairs of one poll group take from, in the order in which messages come. A queue pair
/// that is drained takes none any more; take_back() gives those that are left when all are. Runs on: the group's core.
template <class S>
concept SharedReceiveQueue = std::is_pointer_v<S> && requires(S s, void (*give)(std::byte*)) {
  { s->publish() }
  noexcept;
  { s->take_back(give) }
  noexcept;
};

/// That of a provider that has none: there never is one.
class NoSrq {
 public:
  NoSrq() = delete;
  void publish() noexcept {}
  template <class F>
  void take_back(F&&) noexcept {}
};

/// What the engine needs of a queue pair. Runs on: the one core that polls the QP's group.
/// Every post returns false when the send queue has no room; nothing is half posted, and the caller waits for
/// completions. Nothing reaches the device before ring_doorbell (Sends, Reads, Writes) or publish_receives.
template <class Q>
concept QueuePair = requires(Q q, std::uint32_t u32, std::span<const Sge> sges, RemoteAddress remote, Token token,
                             std::byte* buffer, const Completion& completion, void (*on_token)(Token), const Sge& range,
                             WindowAccess access) {
  { q.post_inline_send(u32) }
  noexcept->std::same_as<std::byte*>;
  { q.post_plain_send(u32) }
  noexcept->std::same_as<std::byte*>;
  { q.post_send(sges, token) }
  noexcept->std::same_as<bool>;
  { q.post_send_invalidate(sges, u32, token) }
  noexcept->std::same_as<bool>;
  { q.post_write(sges, remote, token) }
  noexcept->std::same_as<bool>;
  { q.post_read(sges, remote, token) }
  noexcept->std::same_as<bool>;
  { q.post_invalidate(u32, token) }
  noexcept->std::same_as<bool>;
  { q.post_bind(u32, u32, range, access, token) }
  noexcept->std::same_as<bool>;
  { q.post_drain(token) }
  noexcept->std::same_as<bool>;
  { q.ring_doorbell() }
  noexcept;
  { q.retire_send(completion, on_token) }
  noexcept;
  { q.post_receive(buffer, u32, u32) }
  noexcept->std::same_as<bool>;
  { q.repost_receive(buffer) }
  noexcept;
  { q.publish_receives() }
  noexcept;
  { q.prefetch_next_receive() }
  noexcept;
  { q.prefetch_self() }
  noexcept;
  { q.prefetch_next_send() }
  noexcept;
  { q.prefetch_doorbell() }
  noexcept;
  { q.prefetch_target(u32) }
  noexcept;
  { q.srq() }
  noexcept->SharedReceiveQueue;
  { q.take_receive(completion) }
  noexcept->std::same_as<std::byte*>;
  { q.take_own_receive(completion) }
  noexcept->std::same_as<std::byte*>;
  { q.take_shared_receive(completion) }
  noexcept->std::same_as<std::byte*>;
  { q.send_room() }
  noexcept->std::same_as<std::uint32_t>;
  { Q::kSendRoom } -> std::convertible_to<std::uint32_t>;
  { Q::kBindRoom } -> std::convertible_to<std::uint32_t>;
  { Q::kInvalidateRoom } -> std::convertible_to<std::uint32_t>;
  { q.receives_posted() }
  noexcept->std::same_as<std::uint32_t>;
  { q.drained() }
  noexcept->std::same_as<bool>;
  { q.qpn() }
  noexcept->std::same_as<std::uint32_t>;
  { q.max_inline() }
  noexcept->std::same_as<std::uint32_t>;
};

/// The completion queues that one core polls, as one.
template <class G>
concept PollableGroup = requires(G g, std::size_t most, void (*take)(const Completion&)) {
  { g.poll(most, take) }
  noexcept->std::same_as<std::size_t>;
  { g.progress() }
  noexcept;
  { g.ready() }
  noexcept->std::same_as<bool>;
};

/// The same as `queue.poll()`, a poll group's or a CQ's, into memory: up to out.size() completions.
template <class Q>
std::size_t poll_into(Q& queue, std::span<Completion> out) noexcept {
  std::size_t n = 0;
  return queue.poll(out.size(), [&](const Completion& completion) { out[n++] = completion; });
}

template <class P>
concept Provider = QueuePair<typename P::Qp> && PollableGroup<typename P::PollGroup>;

}  // namespace rodeo::dv
