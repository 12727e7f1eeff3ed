// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/cq.h"

namespace rodeo::dv::mlx5 {

Status status_of_syndrome(std::uint8_t syndrome) noexcept {
  switch (syndrome) {
    case MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR:
      return Status::kLocalLength;
    case MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR:
      return Status::kLocalQpOperation;
    case MLX5_CQE_SYNDROME_LOCAL_PROT_ERR:
      return Status::kLocalProtection;
    case MLX5_CQE_SYNDROME_WR_FLUSH_ERR:
      return Status::kFlushed;
    case MLX5_CQE_SYNDROME_MW_BIND_ERR:
      return Status::kWindowBind;
    case MLX5_CQE_SYNDROME_BAD_RESP_ERR:
      return Status::kBadResponse;
    case MLX5_CQE_SYNDROME_LOCAL_ACCESS_ERR:
      return Status::kLocalAccess;
    case MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR:
      return Status::kRemoteInvalidRequest;
    case MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR:
      return Status::kRemoteAccess;
    case MLX5_CQE_SYNDROME_REMOTE_OP_ERR:
      return Status::kRemoteOperation;
    case MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR:
      return Status::kRetryExceeded;
    case MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR:
      return Status::kRnrRetryExceeded;
    case MLX5_CQE_SYNDROME_REMOTE_ABORTED_ERR:
      return Status::kRemoteAborted;
    default:
      return Status::kUnknown;
  }
}

void Cq::take_rare(const mlx5_cqe64& cqe, std::uint64_t tail, Completion& c) noexcept {
  const auto opcode = static_cast<std::uint8_t>((tail & kOpOwnMask) >> 4);
  c = {};
  c.origin = (tail >> 16U) & 0xff'ffff'ffffU;  // without the opcode of a send's CQE
  c.byte_count = be32toh(cqe.byte_cnt);
  switch (opcode) {
    case MLX5_CQE_REQ:
      c.kind = CompletionKind::kSendQueue;
      return;
    case MLX5_CQE_RESP_SEND_INV:
      c.kind = CompletionKind::kReceiveInvalidate;
      c.invalidated_key = be32toh(cqe.imm_inval_pkey);
      return;
    case MLX5_CQE_RESP_SEND:      // of another CQE format, or solicited
    case MLX5_CQE_RESP_SEND_IMM:  // RFC 8166 uses no immediate data; the message itself is judged as usual
    case MLX5_CQE_RESP_WR_IMM:
      return;
    default:
      break;
  }
  const auto& error = reinterpret_cast<const mlx5_err_cqe&>(cqe);
  c.kind = opcode == MLX5_CQE_RESP_ERR ? CompletionKind::kReceive : CompletionKind::kSendQueue;
  c.status =
      opcode == MLX5_CQE_REQ_ERR || opcode == MLX5_CQE_RESP_ERR ? status_of_syndrome(error.syndrome) : Status::kUnknown;
  c.vendor_syndrome = error.vendor_err_synd;
  c.byte_count = 0;
}

}  // namespace rodeo::dv::mlx5
