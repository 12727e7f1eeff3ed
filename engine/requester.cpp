// SPDX-License-Identifier: Apache-2.0
#include "engine/requester.h"

#include "engine/transport_header.h"

namespace rodeo {

CallTarget::CallTarget(std::uint32_t program, std::uint32_t version, std::uint32_t procedure,
                       const Credential& credential) {
  store_plain_header(bytes_.data(), 0, 0);
  const std::size_t rpc =
      encode_call_header(std::span(bytes_).subspan(kMinHeaderBytes), 0, program, version, procedure, credential);
  size_ = rpc == 0 ? 0 : kMinHeaderBytes + rpc;
}

std::string_view to_string(CallError error) noexcept {
  switch (error) {
    case CallError::kNone:
      return "none";
    case CallError::kDenied:
      return "denied";
    case CallError::kErrChunk:
      return "ERR_CHUNK";
    case CallError::kErrVers:
      return "ERR_VERS";
    case CallError::kBadReply:
      return "bad reply";
    case CallError::kConnectionLost:
      return "connection lost";
  }
  return "unknown";
}

std::string_view to_string(SubmitOutcome outcome) noexcept {
  switch (outcome) {
    case SubmitOutcome::kPosted:
      return "posted";
    case SubmitOutcome::kNoCredit:
      return "no credit";
    case SubmitOutcome::kSendQueueFull:
      return "send queue full";
    case SubmitOutcome::kNoBuffer:
      return "no buffer";
    case SubmitOutcome::kTooLarge:
      return "too large";
    case SubmitOutcome::kClosed:
      return "closed";
  }
  return "unknown";
}

}  // namespace rodeo
