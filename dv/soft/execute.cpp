// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>

#include "dv/soft/prefetch.h"
#include "dv/soft/send_engine.h"

// Hot path. Runs on: the core that rings the doorbell.
//
// The loop handles a Send of one inline segment itself, since that is what small RPCs are made of; one that comes alone
// has a shorter way beside the loop. Whatever deviates in any way (another operation, no receive left that we know of,
// a full CQ, a buffer of another region) goes to execute_one, which checks everything again and reports what is wrong.
//
// Line transfers dominate the cost: a message moves the lines of its receive buffer and its CQE from the peer's cache
// to ours and back. Those of a doorbell's first messages are asked for at once, before anything else: alone, a message
// then waits for one trip instead of two. More than that would be too much of a good thing: the stores of a burst ask
// for lines early enough themselves, and the lines that they ask for would have to queue behind those prefetched.

namespace rodeo::dv::soft {

namespace {

/// Messages of a doorbell whose target lines are fetched ahead.
constexpr std::uint32_t kPrefetchMessages = 2;

constexpr std::uint32_t kBbsPerMessage = 2;  // a small inline Send, to guess how many messages were rung

constexpr std::uint32_t kLoneBbs = 3;  // of a Send that is small enough to come alone

constexpr std::uint64_t kSendWord = std::uint64_t{MLX5_OPCODE_SEND} << 32;
constexpr unsigned kIndexShift = 40;
constexpr std::uint64_t kDsLimit = 64;
constexpr std::size_t kFlagsOffset = offsetof(mlx5_wqe_ctrl_seg, fm_ce_se);
constexpr std::size_t kBlockBytes = 64;

using Word [[gnu::may_alias]] = std::uint64_t;

/// Copies in whole blocks where that is shorter: the buffer has room for two, and the bytes behind a message are
/// undefined anyway. The send ring has slack behind its end for the surplus reads.
[[gnu::always_inline]] inline void copy_inline(std::byte* to, const std::byte* from, std::uint64_t length) noexcept {
  if (length > 2 * kBlockBytes) [[unlikely]] {
    std::memcpy(to, from, length);
    return;
  }
  std::memcpy(to, from, kBlockBytes);
  if (length > kBlockBytes) std::memcpy(to + kBlockBytes, from + kBlockBytes, kBlockBytes);
}

/// What the first word of the Send at the consumer index is but for its DS; the index is in bits 40 to 55.
[[nodiscard, gnu::always_inline]] inline std::uint64_t next_send_word(const SendEngine& engine) noexcept {
  return (std::uint64_t{engine.consumer} << kIndexShift) | kSendWord | (std::uint64_t{engine.qpn} << 8);
}

/// The last word of the CQE for the peer's next message; the counter or index of its receive is in bits 16 to 31.
[[nodiscard, gnu::always_inline]] inline std::uint64_t next_message_tail(const SendEngine& engine, const CqWriter& cq,
                                                                         std::uint16_t receive) noexcept {
  return (std::uint64_t{engine.peer_qpn} << 32) | (std::uint64_t{receive} << 16) | (MLX5_CQE_RESP_SEND << 4) |
         ((cq.producer & cq.count) != 0 ? 1U : 0U);
}

/// A Send of one inline segment, as its WQE says.
struct InlineSend {
  /// `expected`: the WQE's first word but for DS. One comparison checks opmod, index, opcode and QPN; what is left of
  /// the word is DS.
  [[gnu::always_inline]] InlineSend(const std::byte* wqe, std::uint64_t expected) noexcept
      : ds(load_be64(wqe) ^ expected), length(load_be32(wqe + sizeof(mlx5_wqe_ctrl_seg)) ^ MLX5_INLINE_SEG) {}

  [[nodiscard]] std::uint64_t used() const noexcept { return ds * mlx5::kDsBytes; }
  /// Of whole blocks.
  [[nodiscard]] std::uint64_t bytes() const noexcept {
    return (used() + mlx5::kBbBytes - 1) & ~std::uint64_t{mlx5::kBbBytes - 1};
  }
  /// False for whatever else the WQE may be.
  [[nodiscard]] bool well_formed() const noexcept { return ds < kDsLimit && length + mlx5::kInlineOffset <= used(); }

  std::uint64_t ds;
  std::uint64_t length;  // far too long without the inline bit
};

[[nodiscard, gnu::always_inline]] inline bool signalled(const std::byte* wqe) noexcept {
  return (std::to_integer<std::uint32_t>(wqe[kFlagsOffset]) & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
}

/// A RESP_SEND CQE: the words that a consumer looks at. `tail` is the last one.
[[gnu::always_inline]] inline void put_message(mlx5_cqe64& cqe, std::uint64_t length, std::uint64_t tail) noexcept {
  auto* words = reinterpret_cast<Word*>(&cqe);
  words[5] = byte_swap(length);  // app.. 0, byte_cnt
  // Release: pairs with the load of op_own in mlx5::Cq::poll.
  __atomic_store_n(&words[7], byte_swap(tail), __ATOMIC_RELEASE);
}

/// Where receives lead, as long as they look like the last one that execute_one has checked, and any inline Send fits.
struct UsualReceive {
  explicit UsualReceive(const ReceiveQueue& receives) noexcept {
    const std::uint32_t room = byte_swap(static_cast<std::uint32_t>(receives.usual));
    if (room < kDsLimit * mlx5::kDsBytes) return;
    const Region& region = *receives.region;
    head = receives.usual;
    address = region.address;
    last_offset = region.length - room;
    local = region.local;
  }

  /// Where the buffer is in the region; beyond last_offset for whatever needs a closer look. The peer may scribble on
  /// its receive ring, so each word is read once.
  [[gnu::always_inline]] std::uint64_t find(const mlx5_wqe_data_seg& receive) const noexcept {
    const auto* words = reinterpret_cast<const Word*>(&receive);
    const std::uint64_t offset = byte_swap(std::uint64_t{__atomic_load_n(&words[1], __ATOMIC_RELAXED)}) - address;
    return __atomic_load_n(&words[0], __ATOMIC_RELAXED) == head ? offset : ~std::uint64_t{0};
  }

  [[nodiscard]] bool known() const noexcept { return local != nullptr; }

  std::uint64_t head = 0;  // byte_count and lkey, as they stand in the ring
  std::uint64_t address = 0;
  std::uint64_t last_offset = 0;
  std::byte* local = nullptr;
};

/// The lines of a message to `receive`, and of its CQE, which is the `ahead`th from now.
[[gnu::always_inline]] inline void prefetch_message(const SendEngine& engine, const Region& region,
                                                    const mlx5_wqe_data_seg& receive, std::uint32_t ahead) noexcept {
  // As integers: slots that were never posted hold nonsense.
  const std::uint64_t buffer =
      byte_swap(std::uint64_t{receive.addr}) + reinterpret_cast<std::uintptr_t>(region.local) - region.address;
  prefetch_for_write(engine.outlet->cq.slot(ahead));
  prefetch_for_write(reinterpret_cast<const void*>(buffer));
  prefetch_for_write(reinterpret_cast<const void*>(buffer + 64));
}

void prefetch_targets(const SendEngine& engine, std::uint32_t messages) noexcept {
  const ReceiveQueue& receives = engine.own_receives;
  if (receives.region == nullptr) return;
  messages = std::min(messages, kPrefetchMessages);
  const auto* ring = reinterpret_cast<const mlx5_wqe_data_seg*>(receives.wqes);
  for (std::uint32_t i = 0; i < messages; ++i) {
    prefetch_message(engine, *receives.region, ring[(receives.consumer + i) & (receives.count - 1)], i);
  }
}

/// How many messages may go before the receive ring, its 16-bit index or the CQ wraps, or the peer must be asked again.
[[nodiscard]] inline std::uint32_t messages_at_most(const SendEngine& engine, const CqWriter& cq) noexcept {
  const ReceiveQueue& receives = engine.own_receives;
  const std::uint32_t receive = receives.consumer;
  const std::uint32_t known = static_cast<std::uint16_t>(receives.seen - receive);
  const std::uint32_t to_ring_end = receives.count - (receive & (receives.count - 1));
  const std::uint32_t to_cq_end = cq.count - (cq.producer & (cq.count - 1));
  // Rings are powers of two, so the index wraps where the ring does.
  return std::min(std::min(known, to_ring_end), std::min(cq.limit - cq.producer, to_cq_end));
}

/// Executes plain inline Sends until something else comes, or a ring ends: run() comes again for the rest, so that
/// nothing wraps in here. Works on copies of whatever it needs: its stores are bytes, so the compiler would load
/// everything again after each.
[[gnu::always_inline]] inline void run_inline_sends(SendEngine& engine, std::uint16_t producer) noexcept {
  CqWriter& cq = engine.outlet->cq;
  CqWriter& send_cq = engine.group->send_cq;
  ReceiveQueue& receives = engine.own_receives;
  const UsualReceive usual(receives);
  const std::uint32_t first_slot = engine.consumer & (engine.sq_bbs - 1);
  const std::byte* const first = engine.sq + first_slot * std::size_t{mlx5::kBbBytes};
  const std::byte* const end =
      first + mlx5::kBbBytes * std::min<std::size_t>(static_cast<std::uint16_t>(producer - engine.consumer),
                                                     engine.sq_bbs - first_slot);
  const std::byte* wqe = first;
  std::uint64_t expected = next_send_word(engine);
  const mlx5_wqe_data_seg* const first_receive = &receives.own_next();
  const mlx5_wqe_data_seg* receive = first_receive;
  const mlx5_wqe_data_seg* const last_receive = receive + (usual.known() ? messages_at_most(engine, cq) : 0);
  mlx5_cqe64* cqe = &cq.cqes[cq.producer & (cq.count - 1)];
  std::uint64_t tail = next_message_tail(engine, cq, receives.consumer);
  while (wqe != end && receive != last_receive) {
    const InlineSend send(wqe, expected);
    if (!send.well_formed()) [[unlikely]]
      break;
    const std::uint64_t bytes = send.bytes();
    const std::uint64_t offset = usual.find(*receive);
    if (offset > usual.last_offset || bytes > static_cast<std::size_t>(end - wqe)) [[unlikely]]
      break;
    if (signalled(wqe)) [[unlikely]] {
      // Nothing can fail any more, and only this core looks there.
      if (!send_cq.has_room()) break;
      send_cq.put(MLX5_CQE_REQ, (std::uint32_t{MLX5_OPCODE_SEND} << 24) | engine.qpn,
                  static_cast<std::uint32_t>(expected >> kIndexShift) & 0xffffU, 0, 0, 0);
    }
    copy_inline(usual.local + offset, wqe + mlx5::kInlineOffset, send.length);
    put_message(*cqe, send.length, tail);
    ++receive;
    ++cqe;
    tail += std::uint64_t{1} << 16U;
    wqe += bytes;
    expected += (bytes / mlx5::kBbBytes) << kIndexShift;  // it wraps where the ring does, which is the end
  }
  const auto sent = static_cast<std::uint32_t>(receive - first_receive);
  engine.consumer =
      static_cast<std::uint16_t>(engine.consumer + static_cast<std::uint32_t>(wqe - first) / mlx5::kBbBytes);
  receives.consumer = static_cast<std::uint16_t>(receives.consumer + sent);
  cq.producer += sent;
}

/// The CQE of a signalled Send at the consumer index. False when there is no room for it.
[[gnu::always_inline]] inline bool complete_inline_send(SendEngine& engine) noexcept {
  CqWriter& send_cq = engine.group->send_cq;
  if (!send_cq.has_room()) return false;
  send_cq.put(MLX5_CQE_REQ, (std::uint32_t{MLX5_OPCODE_SEND} << 24) | engine.qpn, engine.consumer, 0, 0, 0);
  return true;
}

/// One inline Send of at most `bbs` blocks, which does not wrap. False when it is anything else, or may have to wait.
/// Returns how many blocks it took, or 0.
template <bool kShared>
[[gnu::always_inline]] inline std::uint32_t run_one_send(SendEngine& engine, ReceiveQueue& receives,
                                                         std::uint32_t bbs) noexcept {
  const std::uint32_t slot = engine.consumer & (engine.sq_bbs - 1);
  const std::byte* const wqe = engine.sq + slot * std::size_t{mlx5::kBbBytes};
  const InlineSend send(wqe, next_send_word(engine));
  if (!send.well_formed()) return 0;
  const auto taken = static_cast<std::uint32_t>(send.bytes() / mlx5::kBbBytes);
  if (taken > bbs || slot + taken > engine.sq_bbs) return 0;
  CqWriter& cq = engine.outlet->cq;
  if (!receive_ready(engine, receives) || !cq.has_room()) [[unlikely]]
    return 0;
  const UsualReceive usual(receives);
  const std::uint64_t offset = usual.find(kShared ? receives.shared_next() : receives.own_next());
  if (!usual.known() || offset > usual.last_offset) [[unlikely]]
    return 0;
  mlx5_cqe64& cqe = cq.cqes[cq.producer & (cq.count - 1)];
  prefetch_for_write(&cqe);
  if (signalled(wqe)) [[unlikely]] {
    // Nothing can fail any more, and only this core looks there.
    if (!complete_inline_send(engine)) return 0;
  }
  copy_inline(usual.local + offset, wqe + mlx5::kInlineOffset, send.length);
  put_message(cqe, send.length, next_message_tail(engine, cq, kShared ? receives.index : receives.consumer));
  engine.consumer = static_cast<std::uint16_t>(engine.consumer + taken);
  kShared ? receives.use_shared() : receives.use_own();
  ++cq.producer;
  return taken;
}

/// A doorbell for one small inline Send: what a burst of many connections is made of. False when it is anything else.
[[gnu::always_inline]] inline bool run_lone_send(SendEngine& engine, std::uint16_t producer) noexcept {
  const std::uint32_t bbs = static_cast<std::uint16_t>(producer - engine.consumer);
  return bbs <= kLoneBbs && run_one_send<false>(engine, engine.own_receives, bbs) == bbs && bbs != 0;
}

/// Receives come one by one from the list that all queue pairs of the lane share.
void run_shared(SendEngine& engine) noexcept {
  const std::uint16_t producer = send_producer(engine);
  while (engine.consumer != producer) {
    const std::uint32_t bbs = static_cast<std::uint16_t>(producer - engine.consumer);
    if (run_one_send<true>(engine, engine.outlet->shared, bbs) != 0) continue;
    if (execute_one(engine) != Outcome::kDone) return;
  }
}

}  // namespace

void execute(SendEngine& engine) noexcept {
  // Of what the peer does to either end's state, progress() tells the gate.
  if (engine.gate != 0) [[unlikely]] {
    engine.gate == SendEngine::kShared ? run_shared(engine) : attend(engine);
    return;
  }
  run(engine);
}

void prefetch_peer(const SendEngine& engine) noexcept {
  if ((engine.gate & SendEngine::kShared) != 0) return;  // all of the lane's look there
  __builtin_prefetch(engine.own_receives.record);
  if (engine.own_receives.wqes != nullptr) __builtin_prefetch(&engine.own_receives.own_next());
}

void prefetch_target(const SendEngine& engine, std::uint32_t ahead) noexcept {
  const bool shared = (engine.gate & SendEngine::kShared) != 0;
  const ReceiveQueue& receives = shared ? engine.outlet->shared : engine.own_receives;
  if (receives.region == nullptr) return;
  // In a shared queue the list most likely goes on in order.
  const mlx5_wqe_data_seg& receive = shared
                                         ? reinterpret_cast<const mlx5_wqe_data_seg*>(
                                               receives.wqes)[2 * ((receives.index + ahead) & (receives.count - 1)) + 1]
                                         : receives.own_next();
  prefetch_message(engine, *receives.region, receive, ahead);
}

void run(SendEngine& engine) noexcept {
  if ((engine.gate & SendEngine::kShared) != 0) [[unlikely]]
    return run_shared(engine);
  const std::uint16_t producer = send_producer(engine);
  if (run_lone_send(engine, producer)) return;
  prefetch_targets(engine, static_cast<std::uint16_t>(producer - engine.consumer) / kBbsPerMessage);
  while (engine.consumer != producer) {
    const std::uint16_t before = engine.consumer;
    run_inline_sends(engine, producer);
    if (engine.consumer == producer) return;
    // It may just have come to the end of a ring.
    if (engine.consumer != before) continue;
    if (execute_one(engine) != Outcome::kDone) return;
  }
}

}  // namespace rodeo::dv::soft
