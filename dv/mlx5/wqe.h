// SPDX-License-Identifier: Apache-2.0
#pragma once

// Layouts of the mlx5 queues, pinned against rdma-core's header. Sizes: a send WQE is a multiple of 16 bytes (DS) and
// starts on a 64-byte basic block (BB).

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

namespace rodeo::dv::mlx5 {

inline constexpr std::uint32_t kBbBytes = 64;
inline constexpr std::uint32_t kDsBytes = 16;
inline constexpr std::uint32_t kMaxDs = 60;  // of 63; drivers keep a margin
inline constexpr std::uint32_t kReceiveStride = 16;
inline constexpr std::uint32_t kSharedReceiveStride = 32;  // a next segment goes first
inline constexpr std::uint32_t kInlineHeaderBytes = 4;
inline constexpr std::uint32_t kInlineOffset = sizeof(mlx5_wqe_ctrl_seg) + kInlineHeaderBytes;  // of a SEND's data

inline constexpr std::uint32_t kLeastInline = 60;  // what every queue pair takes inline

/// Largest inline SEND of `bbs` basic blocks.
[[nodiscard]] constexpr std::uint32_t inline_capacity(std::uint32_t bbs) noexcept {
  return bbs * kBbBytes - kInlineOffset;
}
[[nodiscard]] constexpr std::uint32_t ds_of_inline_send(std::uint32_t length) noexcept {
  return 1 + (kInlineHeaderBytes + length + kDsBytes - 1) / kDsBytes;
}
[[nodiscard]] constexpr std::uint32_t bbs_of_ds(std::uint32_t ds) noexcept { return (ds + 3) / 4; }
static_assert(inline_capacity(1) == 44 && inline_capacity(2) == 108);
static_assert(ds_of_inline_send(44) == 4 && ds_of_inline_send(45) == 5);

inline constexpr std::uint32_t kInvalidateBbs = 2;  // UMR: ctrl + umr ctrl, mkey context
inline constexpr std::uint32_t kBindBbs = 3;        // the same and one padded KLM group

static_assert(sizeof(mlx5_wqe_ctrl_seg) == 16 && offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) == 11 &&
              offsetof(mlx5_wqe_ctrl_seg, imm) == 12);
static_assert(sizeof(mlx5_wqe_raddr_seg) == 16 && offsetof(mlx5_wqe_raddr_seg, rkey) == 8);
static_assert(sizeof(mlx5_wqe_data_seg) == 16 && offsetof(mlx5_wqe_data_seg, lkey) == 4 &&
              offsetof(mlx5_wqe_data_seg, addr) == 8);
static_assert(sizeof(mlx5_wqe_umr_ctrl_seg) == 48 && offsetof(mlx5_wqe_umr_ctrl_seg, mkey_mask) == 8);
static_assert(sizeof(mlx5_wqe_mkey_context_seg) == 64 && offsetof(mlx5_wqe_mkey_context_seg, qpn_mkey) == 4 &&
              offsetof(mlx5_wqe_mkey_context_seg, start_addr) == 16 && offsetof(mlx5_wqe_mkey_context_seg, len) == 24);
static_assert(sizeof(mlx5_wqe_srq_next_seg) == 16 && offsetof(mlx5_wqe_srq_next_seg, next_wqe_index) == 2);
static_assert(sizeof(mlx5_cqe64) == 64 && offsetof(mlx5_cqe64, imm_inval_pkey) == 36 &&
              offsetof(mlx5_cqe64, byte_cnt) == 44 && offsetof(mlx5_cqe64, sop_drop_qpn) == 56 &&
              offsetof(mlx5_cqe64, wqe_counter) == 60 && offsetof(mlx5_cqe64, op_own) == 63);
static_assert(sizeof(mlx5_err_cqe) == 64 && offsetof(mlx5_err_cqe, vendor_err_synd) == 54 &&
              offsetof(mlx5_err_cqe, syndrome) == 55 && offsetof(mlx5_err_cqe, s_wqe_opcode_qpn) == 56);

/// A KLM entry of a UMR: a piece of a registered region.
struct Klm {
  std::uint32_t byte_count_be;
  std::uint32_t mkey_be;
  std::uint64_t address_be;
};
static_assert(sizeof(Klm) == 16);

}  // namespace rodeo::dv::mlx5
