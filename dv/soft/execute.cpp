// SPDX-License-Identifier: Apache-2.0
#include <cstring>

#include "dv/soft/prefetch.h"
#include "dv/soft/send_engine.h"

// Hot path. Runs on: the core that rings the doorbell.
//
// The loop handles a Send of one inline segment itself: that is what small RPCs are made of. Whatever deviates in any
// way (another operation, no receive left that we know of, a full CQ, a buffer of another region) goes to execute_one,
// which checks everything again and reports what is wrong.
//
// Line transfers dominate the cost: a message moves the lines of its receive buffer and its CQE from the peer's cache
// to ours and back. They are asked for ahead, for all WQEs of a doorbell together.

namespace rodeo::dv::soft {

namespace {

/// Messages whose target lines are fetched ahead.
constexpr std::uint32_t kPrefetchMessages = 16;

struct Block {
  std::byte bytes[64];
};

/// Copies in whole blocks where the buffer has room: the bytes behind the message are undefined anyway. The send ring
/// has slack behind its end for the surplus reads.
[[gnu::always_inline]] inline void copy_inline(std::byte* to, const std::byte* from, std::uint32_t length,
                                               std::uint32_t room) noexcept {
  if (length <= sizeof(Block) && room >= sizeof(Block)) {
    std::memcpy(to, from, sizeof(Block));
  } else if (length <= 2 * sizeof(Block) && room >= 2 * sizeof(Block)) {
    std::memcpy(to, from, 2 * sizeof(Block));
  } else {
    std::memcpy(to, from, length);
  }
}

[[gnu::always_inline]] inline void prefetch_targets(const SendEngine& engine, std::uint32_t messages) noexcept {
  const Region* region = engine.receive_region;
  if (region == nullptr) return;
  const Outlet& outlet = *engine.outlet;
  const std::uint64_t to_local = reinterpret_cast<std::uintptr_t>(region->local) - region->address;
  for (std::uint32_t i = 0; i < messages; ++i) {
    prefetch_for_write(outlet.cq.slot(i));
    const auto slot = static_cast<std::uint16_t>(engine.receive_consumer + i) & (engine.receive_wqes - 1);
    // As integers: slots that were never posted hold nonsense.
    const std::uint64_t buffer = byte_swap(std::uint64_t{engine.receives[slot].addr}) + to_local;
    prefetch_for_write(reinterpret_cast<const void*>(buffer));
    prefetch_for_write(reinterpret_cast<const void*>(buffer + 64));
  }
}

}  // namespace

void execute(SendEngine& engine) noexcept {
  if (engine.gate != 0 || load_shared(engine.own->state) != kReady || load_shared(engine.peer->state) != kReady)
      [[unlikely]] {
    attend(engine);
    return;
  }
  run(engine);
}

void run(SendEngine& engine) noexcept {
  const std::uint16_t producer = send_producer(engine);
  std::uint16_t consumer = engine.consumer;
  const std::uint32_t bb_mask = engine.sq_bbs - 1;
  Outlet& outlet = *engine.outlet;
  const auto bbs_rung = static_cast<std::uint16_t>(producer - consumer);
  if (bbs_rung > 2) prefetch_targets(engine, bbs_rung / 2U < kPrefetchMessages ? bbs_rung / 2U : kPrefetchMessages);

  while (consumer != producer) {
    const std::uint32_t slot = consumer & bb_mask;
    const std::byte* wqe = engine.sq + slot * std::size_t{mlx5::kBbBytes};
    // One comparison checks opmod, index, opcode and QPN; what is left of the word is DS.
    const std::uint64_t expected =
        (((std::uint64_t{consumer} << 8) | MLX5_OPCODE_SEND) << 32) | (std::uint64_t{engine.qpn} << 8);
    const std::uint64_t ds = load_be64(wqe) ^ expected;
    const std::uint32_t header = load_be32(wqe + sizeof(mlx5_wqe_ctrl_seg));
    const std::uint32_t length = header & ~std::uint32_t{MLX5_INLINE_SEG};
    const std::uint32_t bbs = mlx5::bbs_of_ds(static_cast<std::uint32_t>(ds));
    const Region* region = engine.receive_region;
    const bool signalled = (std::to_integer<std::uint32_t>(wqe[11]) & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
    if (ds < 64 && (header & MLX5_INLINE_SEG) != 0 && length + mlx5::kInlineOffset <= ds * mlx5::kDsBytes &&
        slot + bbs <= engine.sq_bbs && bbs <= static_cast<std::uint16_t>(producer - consumer) &&
        engine.receive_consumer != engine.receive_seen && outlet.cq.producer != outlet.cq.limit && region != nullptr &&
        (!signalled || engine.group->send_cq.has_room())) [[likely]] {
      // The peer may scribble on its receive ring, so each word is read once.
      const mlx5_wqe_data_seg& receive = engine.receives[engine.receive_consumer & (engine.receive_wqes - 1)];
      const std::uint32_t room = byte_swap(__atomic_load_n(&receive.byte_count, __ATOMIC_RELAXED));
      const std::uint32_t key = byte_swap(__atomic_load_n(&receive.lkey, __ATOMIC_RELAXED));
      const std::uint64_t address = byte_swap(std::uint64_t{__atomic_load_n(&receive.addr, __ATOMIC_RELAXED)});
      if (key == region->key && length <= room && region->holds(address, room)) [[likely]] {
        copy_inline(region->translate(address), wqe + mlx5::kInlineOffset, length, room);
        outlet.cq.put(MLX5_CQE_RESP_SEND, engine.peer_qpn, engine.receive_consumer, length, 0, 0);
        ++engine.receive_consumer;
        if (signalled) {
          engine.group->send_cq.put(MLX5_CQE_REQ, (std::uint32_t{MLX5_OPCODE_SEND} << 24) | engine.qpn, consumer, 0, 0,
                                    0);
        }
        consumer = static_cast<std::uint16_t>(consumer + bbs);
        continue;
      }
    }
    engine.consumer = consumer;
    if (execute_one(engine) != Outcome::kDone) return;
    consumer = engine.consumer;
  }
  engine.consumer = consumer;
}

}  // namespace rodeo::dv::soft
