// SPDX-License-Identifier: Apache-2.0
#include "engine/requester.h"

#include "dv/mlx5/provider.h"
#include "dv/verbs/provider.h"
#include "engine/requester_calls.h"
#include "engine/requester_ends.h"
#include "engine/requester_replies.h"
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
    case CallError::kTimedOut:
      return "timed out";
    case CallError::kCancelled:
      return "cancelled";
    case CallError::kNotSent:
      return "not sent";
  }
  return "unknown";
}

Ran Reply::ran() const noexcept {
  switch (error) {
    case CallError::kDenied:
    case CallError::kErrVers:
    case CallError::kNotSent:
      return Ran::kNo;
    case CallError::kBadReply:
      return Ran::kYes;
    case CallError::kErrChunk:  // before the handler, or when what it returned did not fit
    case CallError::kConnectionLost:
    case CallError::kTimedOut:
    case CallError::kCancelled:
      return Ran::kPerhaps;
    case CallError::kNone:
      break;
  }
  if (accept_stat == AcceptStat::kSuccess) return Ran::kYes;
  return accept_stat == AcceptStat::kSystemErr ? Ran::kPerhaps : Ran::kNo;
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

template class Requester<dv::mlx5::Provider>;
template class Requester<dv::verbs::Provider>;

}  // namespace rodeo
