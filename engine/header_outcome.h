// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// Every way a received header can turn out, and what a Responder owes the sender for each. One table ties an outcome
// to its name (counters, traces) and to its answer: an outcome without a row does not compile.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rodeo {

enum class HeaderOutcome : std::uint8_t {
  kOk,
  kTooShort,              // fewer octets than the smallest header
  kErrorMessage,          // an RDMA_ERROR that came to a Responder
  kBadVersion,            // rdma_vers is not 1
  kDone,                  // RDMA_DONE, reserved
  kMsgp,                  // RDMA_MSGP, reserved
  kUnknownProc,           // rdma_proc above RDMA_ERROR
  kTruncated,             // a list runs past the octets received
  kBadDiscriminator,      // an optional-data word is neither 0 nor 1
  kChunkListTooComplex,   // more chunks or segments than we hold
  kReadsTooLong,          // all Read chunks together are longer than the engine's limit
  kSegmentOverflow,       // offset + length over 64 bits, or a total over 32 bits
  kXidMismatch,           // the inline RPC message has another XID, or none
  kNomsgWithoutPayload,   // RDMA_NOMSG Call and no Position-zero Read chunk
  kPositionUnaligned,     // a Position that is not a multiple of 4
  kPositionZeroInMsg,     // a Position-zero Read chunk beside an inline Payload
  kPositionInRpcHeader,   // a data chunk placed inside the RPC header
  kPositionOverlap,       // a data chunk placed inside another one
  kPositionBeyondEnd,     // a data chunk placed after the end of the stream
  kReadListInReply,       // Read list present in a Reply
  kReplyChunkInMsg,       // RDMA_MSG Reply whose Reply chunk claims octets
  kReplyChunkLength,      // RDMA_NOMSG Reply whose Reply chunk cannot hold an RPC Reply
  kReturnedListMismatch,  // a returned chunk differs from the one we offered
  kBadErrorBody,          // RDMA_ERROR that cannot be decoded
  kCount,
};
inline constexpr std::size_t kHeaderOutcomeCount = static_cast<std::size_t>(HeaderOutcome::kCount);

/// What a Responder does with a Call whose header has a given outcome.
enum class Answer : std::uint8_t { kServe, kDiscard, kErrVers, kErrChunk };

struct HeaderOutcomeInfo {
  HeaderOutcome outcome;
  std::string_view name;
  Answer answer;
};

inline constexpr std::array<HeaderOutcomeInfo, kHeaderOutcomeCount> kHeaderOutcomes = {{
    {HeaderOutcome::kOk, "ok", Answer::kServe},
    {HeaderOutcome::kTooShort, "too_short", Answer::kDiscard},
    {HeaderOutcome::kErrorMessage, "error_message", Answer::kDiscard},
    {HeaderOutcome::kBadVersion, "bad_version", Answer::kErrVers},
    {HeaderOutcome::kDone, "done", Answer::kDiscard},
    {HeaderOutcome::kMsgp, "msgp", Answer::kErrChunk},
    {HeaderOutcome::kUnknownProc, "unknown_proc", Answer::kErrChunk},
    {HeaderOutcome::kTruncated, "truncated", Answer::kErrChunk},
    {HeaderOutcome::kBadDiscriminator, "bad_discriminator", Answer::kErrChunk},
    {HeaderOutcome::kChunkListTooComplex, "chunk_list_too_complex", Answer::kErrChunk},
    {HeaderOutcome::kReadsTooLong, "reads_too_long", Answer::kErrChunk},
    {HeaderOutcome::kSegmentOverflow, "segment_overflow", Answer::kErrChunk},
    {HeaderOutcome::kXidMismatch, "xid_mismatch", Answer::kErrChunk},
    {HeaderOutcome::kNomsgWithoutPayload, "nomsg_without_payload", Answer::kErrChunk},
    {HeaderOutcome::kPositionUnaligned, "position_unaligned", Answer::kErrChunk},
    {HeaderOutcome::kPositionZeroInMsg, "position_zero_in_msg", Answer::kErrChunk},
    {HeaderOutcome::kPositionInRpcHeader, "position_in_rpc_header", Answer::kErrChunk},
    {HeaderOutcome::kPositionOverlap, "position_overlap", Answer::kErrChunk},
    {HeaderOutcome::kPositionBeyondEnd, "position_beyond_end", Answer::kErrChunk},
    {HeaderOutcome::kReadListInReply, "read_list_in_reply", Answer::kDiscard},
    {HeaderOutcome::kReplyChunkInMsg, "reply_chunk_in_msg", Answer::kDiscard},
    {HeaderOutcome::kReplyChunkLength, "reply_chunk_length", Answer::kDiscard},
    {HeaderOutcome::kReturnedListMismatch, "returned_list_mismatch", Answer::kDiscard},
    {HeaderOutcome::kBadErrorBody, "bad_error_body", Answer::kDiscard},
}};

static_assert(
    [] {
      for (std::size_t i = 0; i < kHeaderOutcomes.size(); ++i) {
        if (static_cast<std::size_t>(kHeaderOutcomes[i].outcome) != i || kHeaderOutcomes[i].name.empty()) return false;
      }
      return true;
    }(),
    "kHeaderOutcomes has one named row per outcome, in the order of the enum");

/// The outcome's name, as counters and traces show it.
[[nodiscard]] constexpr std::string_view name_of(HeaderOutcome outcome) noexcept {
  return kHeaderOutcomes[static_cast<std::size_t>(outcome)].name;
}

/// What a Responder sends back. A Requester never answers: it discards whatever is not kOk.
[[nodiscard]] constexpr Answer answer_for(HeaderOutcome outcome) noexcept {
  return kHeaderOutcomes[static_cast<std::size_t>(outcome)].answer;
}

}  // namespace rodeo
