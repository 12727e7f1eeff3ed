// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/qp.h"

#include <algorithm>

// Hot path. Runs on: the one core that polls the QP's group.

namespace rodeo::dv::mlx5 {

namespace {

/// Data segments for `sges`, empty ones skipped: a byte count of 0 means 2 GiB to the hardware. Returns how many.
std::uint32_t write_data_segments(std::byte* at, std::span<const Sge> sges) noexcept {
  auto* data = reinterpret_cast<mlx5_wqe_data_seg*>(at);
  std::uint32_t written = 0;
  for (const Sge& sge : sges) {
    if (sge.length == 0) continue;
    data[written].byte_count = htobe32(sge.length);
    data[written].lkey = htobe32(sge.lkey);
    data[written].addr = htobe64(reinterpret_cast<std::uintptr_t>(sge.address));
    ++written;
  }
  return written;
}

std::uint32_t count_data_segments(std::span<const Sge> sges) noexcept {
  return static_cast<std::uint32_t>(
      std::count_if(sges.begin(), sges.end(), [](const Sge& s) { return s.length != 0; }));
}

constexpr std::uint8_t access_flags_of(WindowAccess access) noexcept {
  return access == WindowAccess::kRemoteRead
             ? MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ
             : MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE | MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE;
}

}  // namespace

std::byte* Qp::no_shadow_ = nullptr;

Qp::Qp(const QpRings& rings)
    : next_wqe_(rings.sq),
      plain_send_(control_word(MLX5_OPCODE_SEND, rings.qpn)),
      soft_(rings.soft),
      send_dbrec_(rings.send_dbrec != nullptr ? rings.send_dbrec : rings.dbrec + MLX5_SND_DBR),
      srq_(rings.srq),
      rq_mask_(std::max(1U, rings.rq_wqes) - 1),
      dbrec_(rings.dbrec),
      rq_wqes_(rings.rq_wqes),
      rq_(rings.rq),
      until_signal_(std::max(1U, rings.sq_bbs / 4)),
      max_inline_(std::min(rings.max_inline, (kMaxDs - 1) * kDsBytes - kInlineHeaderBytes)),
      qpn_(rings.qpn),
      shadow_memory_(rings.rq_wqes),
      signal_every_(until_signal_),
      sq_bbs_(rings.sq_bbs),
      sq_(rings.sq),
      signalled_(rings.sq_bbs),
      bf_(rings.bf) {
  rq_shadow_ = rings.rq_wqes != 0 ? shadow_memory_.get() : &no_shadow_;
  if (srq_ != nullptr) rq_tail_ = static_cast<std::uint16_t>(rq_head_ - 1);  // a number that no WQE of the SRQ has
}

void Qp::plan() noexcept { planned_ = plain_ = next_fence_ == std::byte{0} ? std::min(room_, until_signal_ - 1) : 0; }

bool Qp::reserve(std::uint32_t bbs) noexcept {
  const std::uint32_t taken = planned_ - plain_;
  room_ -= taken;
  until_signal_ -= taken;
  planned_ = plain_ = 0;
  return bbs <= room_ || make_room(bbs);
}

void Qp::finish(std::uint8_t opcode, std::uint32_t ds, std::uint32_t immediate, Token token) noexcept {
  const std::uint32_t bbs = bbs_of_ds(ds);
  const std::uint16_t first = producer_;
  std::byte* wqe = begin(bbs, control_word(opcode, qpn_) | ds, immediate);
  room_ -= bbs;
  std::byte flags = std::exchange(next_fence_, std::byte{0});
  if (token != kNoToken || bbs >= until_signal_) {
    flags |= std::byte{MLX5_WQE_CTRL_CQ_UPDATE};
    until_signal_ = signal_every_;
    signalled_[signalled_head_++ & (sq_bbs_ - 1)] = {first, producer_, token};
  } else {
    until_signal_ -= bbs;
  }
  wqe[offsetof(mlx5_wqe_ctrl_seg, fm_ce_se)] = flags;
  plan();
}

std::byte* Qp::post_signalled_send(std::uint32_t length) noexcept {
  const std::uint32_t ds = ds_of_inline_send(length);
  if (!reserve(bbs_of_ds(ds))) return nullptr;
  std::byte* wqe = next_wqe_;
  finish(MLX5_OPCODE_SEND, ds, 0, kNoToken);
  return begin_inline(wqe, length);
}

bool Qp::post_drain(Token token) noexcept {
  if (!reserve(1)) return false;
  finish(MLX5_OPCODE_NOP, 1, 0, token);
  return true;
}

/// Looks how many blocks are free, up to the end of the ring; passes its end.
bool Qp::make_room(std::uint32_t bbs) noexcept {
  const std::uint32_t to_end = sq_bbs_ - (producer_ & (sq_bbs_ - 1));
  if (bbs > to_end) {
    if (send_room() < to_end + bbs) return false;
    room_ = to_end;
    // A NOP of at most 15 BBs per WQE (60 DS); a longer gap takes several.
    for (std::uint32_t left = to_end; left != 0;) {
      const std::uint32_t chunk = std::min(left, kMaxDs / 4);
      finish(MLX5_OPCODE_NOP, chunk * 4, 0, kNoToken);
      left -= chunk;
    }
  }
  const std::uint32_t slot = producer_ & (sq_bbs_ - 1);
  next_wqe_ = sq_ + slot * std::size_t{kBbBytes};
  room_ = std::min(sq_bbs_ - slot, send_room());
  return bbs <= room_;
}

bool Qp::post_message(std::uint8_t opcode, std::uint32_t rkey, std::span<const Sge> sges, Token token) noexcept {
  const std::uint32_t ds = 1 + count_data_segments(sges);
  if (!reserve(bbs_of_ds(ds))) return false;
  std::byte* wqe = next_wqe_;
  write_data_segments(wqe + sizeof(mlx5_wqe_ctrl_seg), sges);
  finish(opcode, ds, rkey, token);
  return true;
}

bool Qp::post_rdma(std::uint8_t opcode, std::span<const Sge> sges, RemoteAddress remote, Token token) noexcept {
  const std::uint32_t ds = 2 + count_data_segments(sges);
  if (!reserve(bbs_of_ds(ds))) return false;
  std::byte* wqe = next_wqe_;
  auto* raddr = reinterpret_cast<mlx5_wqe_raddr_seg*>(wqe + sizeof(mlx5_wqe_ctrl_seg));
  raddr->raddr = htobe64(remote.offset);
  raddr->rkey = htobe32(remote.rkey);
  raddr->reserved = 0;
  write_data_segments(wqe + sizeof(mlx5_wqe_ctrl_seg) + sizeof(mlx5_wqe_raddr_seg), sges);
  finish(opcode, ds, 0, token);
  return true;
}

bool Qp::post_invalidate(std::uint32_t rkey, Token token) noexcept {
  if (!reserve(kInvalidateBbs)) return false;
  std::byte* wqe = next_wqe_;
  std::memset(wqe + sizeof(mlx5_wqe_ctrl_seg), 0, kInvalidateBbs * kBbBytes - sizeof(mlx5_wqe_ctrl_seg));
  auto* umr = reinterpret_cast<mlx5_wqe_umr_ctrl_seg*>(wqe + sizeof(mlx5_wqe_ctrl_seg));
  umr->flags =
      MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN;
  umr->mkey_mask =
      htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN);
  auto* mkey = reinterpret_cast<mlx5_wqe_mkey_context_seg*>(wqe + kBbBytes);
  mkey->free = MLX5_WQE_MKEY_CONTEXT_FREE;
  mkey->qpn_mkey = htobe32(0xffffff00U);
  finish(MLX5_OPCODE_UMR, kInvalidateBbs * 4, rkey, token);
  fence_next();
  return true;
}

bool Qp::post_bind(std::uint32_t old_rkey, std::uint32_t new_rkey, const Sge& range, WindowAccess access,
                   Token token) noexcept {
  if (!reserve(kBindBbs)) return false;
  std::byte* wqe = next_wqe_;
  std::memset(wqe + sizeof(mlx5_wqe_ctrl_seg), 0, kBindBbs * kBbBytes - sizeof(mlx5_wqe_ctrl_seg));
  auto* umr = reinterpret_cast<mlx5_wqe_umr_ctrl_seg*>(wqe + sizeof(mlx5_wqe_ctrl_seg));
  umr->flags =
      MLX5_WQE_UMR_CTRL_FLAG_INLINE | MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET | MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE;
  umr->klm_octowords = htobe16(4);
  umr->mkey_mask =
      htobe64(MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE | MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY | MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN |
              MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN | MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR |
              MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ |
              MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE | MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC);
  auto* mkey = reinterpret_cast<mlx5_wqe_mkey_context_seg*>(wqe + kBbBytes);
  mkey->access_flags = access_flags_of(access);
  mkey->qpn_mkey = htobe32((qpn_ << 8) | (new_rkey & 0xffU));
  mkey->start_addr = htobe64(reinterpret_cast<std::uintptr_t>(range.address));
  mkey->len = htobe64(range.length);
  auto* klm = reinterpret_cast<Klm*>(wqe + std::size_t{2} * kBbBytes);
  klm->byte_count_be = htobe32(range.length);
  klm->mkey_be = htobe32(range.lkey);
  klm->address_be = htobe64(reinterpret_cast<std::uintptr_t>(range.address));
  finish(MLX5_OPCODE_UMR, kBindBbs * 4, old_rkey, token);
  fence_next();
  return true;
}

const std::byte* Qp::wqe_at(std::uint16_t index) const noexcept {
  return sq_ + (index & (sq_bbs_ - 1)) * std::size_t{kBbBytes};
}
std::uint16_t Qp::next_of(std::uint16_t index) const noexcept {
  const auto* ctrl = reinterpret_cast<const mlx5_wqe_ctrl_seg*>(wqe_at(index));
  return static_cast<std::uint16_t>(index + bbs_of_ds(be32toh(ctrl->qpn_ds) & 0x3fU));
}

void Qp::ring_mmio() noexcept {
  const std::uint16_t first = std::exchange(mmio_rung_, producer_);
  // The last WQE: begin() does not note it down, so that a Send touches one line of this object.
  std::uint16_t last = first;
  for (std::uint16_t next = next_of(last); next != producer_; next = next_of(last)) last = next;
  const std::uint32_t bytes = static_cast<std::uint16_t>(producer_ - first) * kBbBytes;
  before_mmio_doorbell();
  volatile auto* out = reinterpret_cast<volatile std::uint64_t*>(bf_->reg + bf_->offset);
  const auto* wqe = reinterpret_cast<const std::uint64_t*>(wqe_at(last));
  if (last == first && bytes <= bf_->bytes) {
    // BlueFlame: the one WQE itself, in ascending 8-byte stores; it never wraps.
    for (std::uint32_t i = 0; i < bytes / sizeof(std::uint64_t); ++i) out[i] = wqe[i];
  } else {
    *out = *wqe;
  }
  after_mmio_doorbell();
  bf_->offset ^= bf_->bytes;
}

void Qp::retire_unsignalled(const Completion& completion) noexcept {
  // The failed or flushed WQE itself, signalled or not: the device reports every WQE from the failing one on, in order.
  const std::uint16_t next = next_of(completion.wqe_counter());
  const auto outstanding = static_cast<std::uint16_t>(producer_ - consumer_);
  if (static_cast<std::uint16_t>(next - consumer_) <= outstanding) consumer_ = next;
}

}  // namespace rodeo::dv::mlx5
