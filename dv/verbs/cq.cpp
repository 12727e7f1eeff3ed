// SPDX-License-Identifier: Apache-2.0
#include "dv/verbs/cq.h"

namespace rodeo::dv::verbs {

Status status_of(ibv_wc_status status) noexcept {
  switch (status) {
    case IBV_WC_SUCCESS:
      return Status::kSuccess;
    case IBV_WC_LOC_LEN_ERR:
      return Status::kLocalLength;
    case IBV_WC_LOC_QP_OP_ERR:
      return Status::kLocalQpOperation;
    case IBV_WC_LOC_PROT_ERR:
      return Status::kLocalProtection;
    case IBV_WC_WR_FLUSH_ERR:
      return Status::kFlushed;
    case IBV_WC_MW_BIND_ERR:
      return Status::kWindowBind;
    case IBV_WC_BAD_RESP_ERR:
      return Status::kBadResponse;
    case IBV_WC_LOC_ACCESS_ERR:
      return Status::kLocalAccess;
    case IBV_WC_REM_INV_REQ_ERR:
      return Status::kRemoteInvalidRequest;
    case IBV_WC_REM_ACCESS_ERR:
      return Status::kRemoteAccess;
    case IBV_WC_REM_OP_ERR:
      return Status::kRemoteOperation;
    case IBV_WC_RETRY_EXC_ERR:
      return Status::kRetryExceeded;
    case IBV_WC_RNR_RETRY_EXC_ERR:
      return Status::kRnrRetryExceeded;
    case IBV_WC_REM_ABORT_ERR:
      return Status::kRemoteAborted;
    default:
      return Status::kUnknown;
  }
}

}  // namespace rodeo::dv::verbs
