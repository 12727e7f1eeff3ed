// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/hardware_rings.h"

#include <bit>
#include <string>

namespace rodeo::dv::mlx5 {

namespace {

constexpr const char* kWhere = "direct verbs";
constexpr std::uint32_t kMinSendBbs = 2 * Qp::kSendRoom;
constexpr std::uint32_t kMaxEntries = 32768;  // of a ring: its counters have 16 bits
constexpr const char* kReport = "use plain verbs (?verbs=plain), and report it with the name of the card";

}  // namespace

Result<QpRings> rings_of(const mlx5dv_qp& qp, std::uint32_t qpn, std::uint32_t max_inline) {
  if (qp.sq.stride != kBbBytes || qp.rq.stride != kReceiveStride) {
    return fail(kWhere,
                "the queues have strides of " + std::to_string(qp.sq.stride) + " and " + std::to_string(qp.rq.stride) +
                    " bytes",
                "unset MLX5_QP_SIGNATURE");
  }
  if (!std::has_single_bit(qp.sq.wqe_cnt) || qp.sq.wqe_cnt < kMinSendBbs || qp.sq.wqe_cnt > kMaxEntries ||
      !std::has_single_bit(qp.rq.wqe_cnt) || qp.rq.wqe_cnt > kMaxEntries) {
    return fail(kWhere,
                "rings of " + std::to_string(qp.sq.wqe_cnt) + " and " + std::to_string(qp.rq.wqe_cnt) +
                    " entries cannot be driven",
                kReport);
  }
  if (qp.sq.buf == nullptr || qp.rq.buf == nullptr || qp.dbrec == nullptr || qp.bf.reg == nullptr) {
    return fail(kWhere, "the library keeps a ring, a record or the register of the QP to itself", kReport);
  }
  QpRings rings;
  rings.sq = static_cast<std::byte*>(qp.sq.buf);
  rings.sq_bbs = qp.sq.wqe_cnt;
  rings.rq = static_cast<std::byte*>(qp.rq.buf);
  rings.rq_wqes = qp.rq.wqe_cnt;
  rings.dbrec = reinterpret_cast<Be32*>(qp.dbrec);
  rings.qpn = qpn;
  rings.max_inline = max_inline;
  return rings;
}

BlueFlame register_of(const mlx5dv_qp& qp, bool own) noexcept {
  return {.reg = static_cast<std::byte*>(qp.bf.reg), .bytes = own ? qp.bf.size : 0};
}

Result<CqRing> ring_of(const mlx5dv_cq& cq) {
  if (cq.cqe_size != sizeof(mlx5_cqe64)) {
    return fail(kWhere, "the CQ has CQEs of " + std::to_string(cq.cqe_size) + " bytes", "unset MLX5_CQE_SIZE");
  }
  if (!std::has_single_bit(cq.cqe_cnt) || cq.buf == nullptr || cq.dbrec == nullptr) {
    return fail(kWhere, "a CQ of " + std::to_string(cq.cqe_cnt) + " entries cannot be driven", kReport);
  }
  return CqRing{static_cast<std::byte*>(cq.buf), reinterpret_cast<Be32*>(cq.dbrec), cq.cqe_cnt};
}

}  // namespace rodeo::dv::mlx5
