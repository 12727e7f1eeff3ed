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

void Cq::decode_rare(const mlx5_cqe64& cqe, std::uint8_t opcode, Completion& c) noexcept {
  switch (opcode) {
    case MLX5_CQE_RESP_SEND_INV:
      c.kind = CompletionKind::kReceiveInvalidate;
      c.invalidated_key = be32toh(cqe.imm_inval_pkey);
      return;
    case MLX5_CQE_RESP_SEND_IMM:
    case MLX5_CQE_RESP_WR_IMM:
      c.kind = CompletionKind::kReceive;  // RFC 8166 uses no immediate data; the message itself is judged as usual
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
