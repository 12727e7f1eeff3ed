// SPDX-License-Identifier: Apache-2.0
#include "dv/provider.h"

#include "dv/device.h"

namespace rodeo::dv {

std::string_view to_string(Status status) noexcept {
  switch (status) {
    case Status::kSuccess:
      return "success";
    case Status::kLocalLength:
      return "local length error";
    case Status::kLocalQpOperation:
      return "local QP operation error";
    case Status::kLocalProtection:
      return "local protection error";
    case Status::kFlushed:
      return "flushed";
    case Status::kWindowBind:
      return "memory window bind error";
    case Status::kBadResponse:
      return "bad response";
    case Status::kLocalAccess:
      return "local access error";
    case Status::kRemoteInvalidRequest:
      return "remote invalid request";
    case Status::kRemoteAccess:
      return "remote access error";
    case Status::kRemoteOperation:
      return "remote operation error";
    case Status::kRetryExceeded:
      return "transport retries exceeded";
    case Status::kRnrRetryExceeded:
      return "receiver-not-ready retries exceeded";
    case Status::kRemoteAborted:
      return "remote aborted";
    case Status::kUnknown:
      break;
  }
  return "unknown error";
}

std::string_view to_string(CmEventKind kind) noexcept {
  switch (kind) {
    case CmEventKind::kConnectRequest:
      return "connect request";
    case CmEventKind::kRouteResolved:
      return "route resolved";
    case CmEventKind::kEstablished:
      return "established";
    case CmEventKind::kRejected:
      return "rejected";
    case CmEventKind::kUnreachable:
      return "unreachable";
    case CmEventKind::kDisconnected:
      break;
  }
  return "disconnected";
}

}  // namespace rodeo::dv
