// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "dv/soft/send_engine.h"

// Hot path. Runs on: the core that rings the doorbell, or the simulator.
//
// One WQE a call, every check in full. A WQE that cannot go on leaves no trace, so that it can be executed again.

namespace rodeo::dv::soft {

namespace {

constexpr std::uint32_t kMaxPieces = 64;  // 62 data segments at most, and one inline segment that wraps

struct Piece {
  std::byte* at;
  std::uint32_t length;
};

/// The memory of a WQE's data segments, checked.
struct Pieces {
  std::uint32_t count = 0;
  std::uint64_t total = 0;
  std::array<Piece, kMaxPieces> pieces;

  void add(const std::byte* at, std::uint32_t length) noexcept {
    if (length == 0) return;
    pieces[count++] = {const_cast<std::byte*>(at), length};  // a Read writes there, a Send or Write only reads
    total += length;
  }
};

struct Fault {
  std::uint8_t syndrome = 0;  // 0: none
  Reason reason = Reason::kNone;
};

/// Walks the data segments from byte `offset` of the WQE on.
Fault gather(const SendEngine& engine, const Wqe& wqe, std::uint32_t offset, bool inline_allowed,
             Pieces& out) noexcept {
  const std::uint32_t end = wqe.ds * mlx5::kDsBytes;
  const std::uint32_t ring_bytes = engine.sq_bbs * mlx5::kBbBytes;
  while (offset < end) {
    const std::byte* segment = wqe_at(engine, wqe, offset);
    const std::uint32_t word = load_be32(segment);
    if ((word & MLX5_INLINE_SEG) != 0) {
      const std::uint32_t length = word & ~std::uint32_t{MLX5_INLINE_SEG};
      if (!inline_allowed || length > end - offset - mlx5::kInlineHeaderBytes) {
        return {MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, Reason::kInlineSize};
      }
      const std::uint32_t start = (wqe.slot_offset + offset + mlx5::kInlineHeaderBytes) & (ring_bytes - 1);
      const std::uint32_t first = std::min(length, ring_bytes - start);
      out.add(engine.sq + start, first);
      out.add(engine.sq, length - first);
      offset += (mlx5::kInlineHeaderBytes + length + mlx5::kDsBytes - 1) / mlx5::kDsBytes * mlx5::kDsBytes;
      continue;
    }
    const std::uint32_t key = load_be32(segment + offsetof(mlx5_wqe_data_seg, lkey));
    const std::uint64_t address = load_be64(segment + offsetof(mlx5_wqe_data_seg, addr));
    const std::uint32_t length = word == 0 ? 1U << 31 : word;  // as the hardware reads it
    const Region* region = engine.own_regions->find(key);
    if (region == nullptr || !region->holds(address, length)) {
      return {MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, Reason::kLocalKey};
    }
    out.add(region->translate(address), length);
    offset += mlx5::kDsBytes;
  }
  return {};
}

void copy_to(std::byte* to, const Pieces& from) noexcept {
  for (std::uint32_t i = 0; i < from.count; ++i) {
    std::memcpy(to, from.pieces[i].at, from.pieces[i].length);
    to += from.pieces[i].length;
  }
}

void copy_from(const std::byte* from, const Pieces& to) noexcept {
  for (std::uint32_t i = 0; i < to.count; ++i) {
    std::memcpy(to.pieces[i].at, from, to.pieces[i].length);
    from += to.pieces[i].length;
  }
}

Outcome finish(SendEngine& engine, const Wqe& wqe, std::uint32_t byte_count) noexcept {
  engine.consumer = static_cast<std::uint16_t>(engine.consumer + wqe.bbs);
  if (wqe.signalled) {
    complete_send(engine, {.qpn = engine.qpn,
                           .wqe_counter = wqe.index,
                           .opcode = MLX5_CQE_REQ,
                           .send_opcode = wqe.opcode,
                           .byte_count = byte_count});
  }
  return Outcome::kDone;
}

/// Takes the next receive, and says by which number its completion names it.
[[nodiscard]] std::uint16_t use_receive(SendEngine& engine) noexcept {
  if ((engine.gate & SendEngine::kShared) != 0) {
    ReceiveQueue& shared = engine.outlet->shared;
    const std::uint16_t index = shared.index;
    shared.use_shared();
    return index;
  }
  const std::uint16_t counter = engine.own_receives.consumer;
  engine.own_receives.use_own();
  return counter;
}

/// Both ends fail: the receive completes with `receive_syndrome`, the send with `syndrome`.
Outcome fail_receive(SendEngine& engine, const Wqe& wqe, std::uint8_t receive_syndrome, std::uint8_t syndrome,
                     Reason reason) noexcept {
  complete_receive(engine, {.qpn = engine.peer_qpn,
                            .wqe_counter = use_receive(engine),
                            .opcode = MLX5_CQE_RESP_ERR,
                            .syndrome = receive_syndrome,
                            .vendor_syndrome = static_cast<std::uint8_t>(reason)});
  return fail_wqe(engine, wqe, syndrome, reason, true);
}

Outcome execute_send(SendEngine& engine, const Wqe& wqe) noexcept {
  Pieces pieces;
  if (const Fault fault = gather(engine, wqe, sizeof(mlx5_wqe_ctrl_seg), true, pieces); fault.syndrome != 0) {
    return fail_wqe(engine, wqe, fault.syndrome, fault.reason, false);
  }
  ReceiveQueue& receives = receives_of(engine);
  if (!receive_ready(engine, receives)) return wait(engine, WaitReason::kReceiverNotReady);
  if (!engine.outlet->cq.has_room()) return wait(engine, WaitReason::kPeerQueueFull);

  // The peer may scribble on its receive ring, so each word is read once.
  const mlx5_wqe_data_seg& receive =
      (engine.gate & SendEngine::kShared) != 0 ? receives.shared_next() : receives.own_next();
  const std::uint32_t room = byte_swap(__atomic_load_n(&receive.byte_count, __ATOMIC_RELAXED));
  const std::uint32_t key = byte_swap(__atomic_load_n(&receive.lkey, __ATOMIC_RELAXED));
  const std::uint64_t address = byte_swap(std::uint64_t{__atomic_load_n(&receive.addr, __ATOMIC_RELAXED)});
  const Region* region = engine.outlet->regions->find(key);
  if (region == nullptr || !region->holds(address, room)) {
    return fail_receive(engine, wqe, MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, MLX5_CQE_SYNDROME_REMOTE_OP_ERR,
                        Reason::kReceiveKey);
  }
  if (pieces.total > room) {
    return fail_receive(engine, wqe, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR,
                        Reason::kReceiveTooShort);
  }
  receives.region = region;
  // As read and checked above, not as it stands there now.
  receives.usual = byte_swap((std::uint64_t{room} << 32) | key);
  copy_to(region->translate(address), pieces);

  CqeImage cqe{.qpn = engine.peer_qpn,
               .wqe_counter = use_receive(engine),
               .opcode = MLX5_CQE_RESP_SEND,
               .byte_count = static_cast<std::uint32_t>(pieces.total)};
  if (wqe.opcode == MLX5_OPCODE_SEND_INVAL) {
    cqe.opcode = MLX5_CQE_RESP_SEND_INV;
    cqe.invalidated_key = wqe.immediate;
    if (!invalidate_remote(engine, wqe.immediate)) {
      // The message was delivered, so the sender succeeds; the receiver's QP fails, and our next WQE finds it gone.
      cqe.opcode = MLX5_CQE_RESP_ERR;
      cqe.invalidated_key = 0;
      cqe.byte_count = 0;
      cqe.syndrome = MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
      cqe.vendor_syndrome = static_cast<std::uint8_t>(Reason::kInvalidateKey);
      complete_receive(engine, cqe);
      store_shared<std::uint32_t>(engine.peer->state, kError);
      __atomic_fetch_add(&engine.outlet->peer.header().attention, 1, __ATOMIC_RELEASE);
      engine.gate |= SendEngine::kPeerLost;
      return finish(engine, wqe, 0);
    }
  }
  complete_receive(engine, cqe);
  return finish(engine, wqe, 0);
}

/// In a simulation, the data of a Read comes when the scheduler says so.
Outcome defer_read(SendEngine& engine, const Wqe& wqe, const std::byte* from, const Pieces& to) noexcept {
  std::array<DeferredRead::Piece, kMaxPieces> parts;
  for (std::uint32_t i = 0; i < to.count; ++i) {
    parts[i] = {to.pieces[i].at, from, to.pieces[i].length};
    from += to.pieces[i].length;
  }
  engine.consumer = static_cast<std::uint16_t>(engine.consumer + wqe.bbs);
  engine.observer->defer_read(engine, {.pieces = std::span(parts).first(to.count),
                                       .signalled = wqe.signalled,
                                       .cqe = {.qpn = engine.qpn,
                                               .wqe_counter = wqe.index,
                                               .opcode = MLX5_CQE_REQ,
                                               .send_opcode = wqe.opcode,
                                               .byte_count = static_cast<std::uint32_t>(to.total)}});
  return Outcome::kDone;
}

/// RDMA Write and RDMA Read: copies between our pieces and the peer's memory; the peer's core is not involved.
Outcome execute_rdma(SendEngine& engine, const Wqe& wqe, bool write) noexcept {
  constexpr std::uint32_t kDataOffset = sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_raddr_seg);
  if (wqe.ds * mlx5::kDsBytes < kDataOffset) {
    return fail_wqe(engine, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, Reason::kWqeSize, false);
  }
  Pieces pieces;
  if (const Fault fault = gather(engine, wqe, kDataOffset, write, pieces); fault.syndrome != 0) {
    return fail_wqe(engine, wqe, fault.syndrome, fault.reason, false);
  }
  if (pieces.total == 0) return finish(engine, wqe, 0);  // no key is looked at

  const std::byte* remote = wqe_at(engine, wqe, sizeof(mlx5_wqe_ctrl_seg));
  const std::uint32_t key = load_be32(remote + offsetof(mlx5_wqe_raddr_seg, rkey));
  std::byte* there = acquire_remote(engine, key, load_be64(remote + offsetof(mlx5_wqe_raddr_seg, raddr)), pieces.total,
                                    write ? Access::kRemoteWrite : Access::kRemoteRead);
  if (there == nullptr) {
    return fail_wqe(engine, wqe, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, Reason::kRemoteKey, true);
  }
  if (!write && engine.observer != nullptr && key_index(key) < kFirstWindowIndex) {
    return defer_read(engine, wqe, there, pieces);
  }
  if (write) {
    copy_to(there, pieces);
  } else {
    copy_from(there, pieces);
  }
  release_remote(engine);
  return finish(engine, wqe, write ? 0 : static_cast<std::uint32_t>(pieces.total));
}

}  // namespace

Wqe decode_control(const SendEngine& engine) noexcept {
  Wqe wqe;
  wqe.slot_offset = (engine.consumer & (engine.sq_bbs - 1)) * mlx5::kBbBytes;
  wqe.index = engine.consumer;
  const std::byte* ctrl = engine.sq + wqe.slot_offset;
  wqe.opcode = std::to_integer<std::uint8_t>(ctrl[3]);
  wqe.ds = load_be32(ctrl + offsetof(mlx5_wqe_ctrl_seg, qpn_ds)) & 0x3fU;
  wqe.bbs = std::max(1U, mlx5::bbs_of_ds(wqe.ds));
  wqe.immediate = load_be32(ctrl + offsetof(mlx5_wqe_ctrl_seg, imm));
  wqe.signalled =
      (std::to_integer<std::uint32_t>(ctrl[offsetof(mlx5_wqe_ctrl_seg, fm_ce_se)]) & MLX5_WQE_CTRL_CQ_UPDATE) != 0;
  return wqe;
}

Outcome execute_one(SendEngine& engine) noexcept {
  // Any WQE may fail, and then needs a CQE.
  if (!engine.group->send_cq.has_room()) return wait(engine, WaitReason::kOwnQueueFull);
  const Wqe wqe = decode_control(engine);
  const std::byte* ctrl = engine.sq + wqe.slot_offset;
  const auto malformed = [&](Reason reason) {
    return fail_wqe(engine, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, reason, false);
  };
  if (load_be32(ctrl) >> 8 != wqe.index) return malformed(Reason::kWqeIndex);
  if (load_be32(ctrl + offsetof(mlx5_wqe_ctrl_seg, qpn_ds)) >> 8 != engine.qpn) return malformed(Reason::kWqeQpn);
  if (wqe.ds == 0 || wqe.bbs > static_cast<std::uint16_t>(send_producer(engine) - engine.consumer)) {
    return malformed(Reason::kWqeSize);
  }
  switch (wqe.opcode) {
    case MLX5_OPCODE_SEND:
    case MLX5_OPCODE_SEND_INVAL:
      return execute_send(engine, wqe);
    case MLX5_OPCODE_RDMA_WRITE:
      return execute_rdma(engine, wqe, true);
    case MLX5_OPCODE_RDMA_READ:
      return execute_rdma(engine, wqe, false);
    case MLX5_OPCODE_UMR: {
      const Outcome outcome = execute_umr(engine, wqe);
      return outcome == Outcome::kDone ? finish(engine, wqe, 0) : outcome;
    }
    case MLX5_OPCODE_NOP:
      return finish(engine, wqe, 0);
    default:
      return malformed(Reason::kWqeOpcode);
  }
}

}  // namespace rodeo::dv::soft
