// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
//
// Two receivers, two sets of rules. A Responder answers a bad Call (RFC 8166 §4.5), so the order of its checks decides
// which answer goes out: length, RDMA_ERROR, version, procedure, lists, XID, chunk sanity. A Requester never answers,
// so it only has to be right about what it accepts. Both read each octet of the message once, into private memory.

#include "engine/transport_header.h"

namespace rodeo {
namespace {

void load_fixed_words(const std::byte* message, TransportHeader& header) noexcept {
  header.xid = load_be32(message + kXidOffset);
  header.vers = load_be32(message + kVersOffset);
  header.credit = load_be32(message + kCreditOffset);
  header.proc = static_cast<Proc>(load_be32(message + kProcOffset));
}

/// The lists, and for RDMA_MSG the XID that the inline RPC message must repeat (RFC 8166 §4.2.1).
HeaderOutcome decode_body(std::span<const std::byte> message, TransportHeader& header, ChunkLists& lists) noexcept {
  std::size_t list_bytes = 0;
  const auto outcome = decode_chunk_lists(message.subspan(kFixedHeaderBytes), lists, list_bytes);
  if (outcome != HeaderOutcome::kOk) return outcome;
  const std::size_t header_bytes = kFixedHeaderBytes + list_bytes;
  header.header_bytes = static_cast<std::uint32_t>(header_bytes);
  if (header.proc != Proc::kMsg) return HeaderOutcome::kOk;
  if (message.size() - header_bytes < 4) return HeaderOutcome::kXidMismatch;
  return load_be32(message.data() + header_bytes) == header.xid ? HeaderOutcome::kOk : HeaderOutcome::kXidMismatch;
}

HeaderOutcome check_call_chunks(Proc proc, const ChunkLists& lists) noexcept {
  std::uint64_t position_zero_total = 0;
  bool position_zero = false;
  for (const ReadSegment& read : lists.reads()) {
    if (read.position % 4 != 0) return HeaderOutcome::kPositionUnaligned;
    if (read.position != 0) continue;
    position_zero = true;
    position_zero_total += read.target.length;
  }
  if (proc == Proc::kMsg) return position_zero ? HeaderOutcome::kPositionZeroInMsg : HeaderOutcome::kOk;
  return position_zero_total == 0 ? HeaderOutcome::kNomsgWithoutPayload : HeaderOutcome::kOk;
}

HeaderOutcome decode_error(std::span<const std::byte> message, TransportHeader& header) noexcept {
  if (message.size() < kErrChunkBytes) return HeaderOutcome::kBadErrorBody;
  header.rdma_err = static_cast<RdmaErr>(load_be32(message.data() + kFixedHeaderBytes));
  if (header.rdma_err == RdmaErr::kChunk) {
    header.header_bytes = kErrChunkBytes;
    return header.vers == kRdmaVersion ? HeaderOutcome::kOk : HeaderOutcome::kBadVersion;
  }
  if (header.rdma_err != RdmaErr::kVers || message.size() < kErrVersBytes) return HeaderOutcome::kBadErrorBody;
  header.vers_low = load_be32(message.data() + 20);
  header.vers_high = load_be32(message.data() + 24);
  header.header_bytes = kErrVersBytes;
  return HeaderOutcome::kOk;
}

HeaderOutcome check_reply_chunks(Proc proc, const ChunkLists& lists) noexcept {
  if (lists.read_count != 0) return HeaderOutcome::kReadListInReply;
  if (proc == Proc::kMsg) {
    return lists.reply_capacity != 0 ? HeaderOutcome::kReplyChunkInMsg : HeaderOutcome::kOk;
  }
  const bool holds_a_reply = lists.reply_capacity >= kMinLongReplyBytes && lists.reply_capacity % 4 == 0;
  return holds_a_reply ? HeaderOutcome::kOk : HeaderOutcome::kReplyChunkLength;
}

}  // namespace

HeaderOutcome decode_call_header(std::span<const std::byte> message, TransportHeader& header,
                                 ChunkLists& lists) noexcept {
  lists.clear();
  if (message.size() < kMinHeaderBytes) return HeaderOutcome::kTooShort;
  load_fixed_words(message.data(), header);
  // RDMA_ERROR is discarded whatever its version: two Responders must never answer each other's errors.
  if (header.proc == Proc::kError) return HeaderOutcome::kErrorMessage;
  if (header.vers != kRdmaVersion) return HeaderOutcome::kBadVersion;
  if (header.proc == Proc::kDone) return HeaderOutcome::kDone;
  if (header.proc == Proc::kMsgp) return HeaderOutcome::kMsgp;
  if (header.proc != Proc::kMsg && header.proc != Proc::kNomsg) return HeaderOutcome::kUnknownProc;
  if (const auto outcome = decode_body(message, header, lists); outcome != HeaderOutcome::kOk) return outcome;
  return check_call_chunks(header.proc, lists);
}

HeaderOutcome decode_reply_header(std::span<const std::byte> message, TransportHeader& header,
                                  ChunkLists& lists) noexcept {
  lists.clear();
  if (message.size() < kFixedHeaderBytes) return HeaderOutcome::kTooShort;
  load_fixed_words(message.data(), header);
  // ERR_CHUNK has 20 octets, so the 28-octet minimum cannot apply to RDMA_ERROR.
  if (header.proc == Proc::kError) return decode_error(message, header);
  if (message.size() < kMinHeaderBytes) return HeaderOutcome::kTooShort;
  if (header.vers != kRdmaVersion) return HeaderOutcome::kBadVersion;
  if (header.proc == Proc::kDone) return HeaderOutcome::kDone;
  if (header.proc == Proc::kMsgp) return HeaderOutcome::kMsgp;
  if (header.proc != Proc::kMsg && header.proc != Proc::kNomsg) return HeaderOutcome::kUnknownProc;
  if (const auto outcome = decode_body(message, header, lists); outcome != HeaderOutcome::kOk) return outcome;
  return check_reply_chunks(header.proc, lists);
}

Direction classify(std::span<const std::byte> message) noexcept {
  if (message.size() < kFixedHeaderBytes) return Direction::kUnknown;
  TransportHeader header;
  load_fixed_words(message.data(), header);
  if (header.proc == Proc::kError) return Direction::kError;
  if (header.vers != kRdmaVersion || message.size() < kMinHeaderBytes) return Direction::kUnknown;
  if (header.proc != Proc::kMsg && header.proc != Proc::kNomsg) return Direction::kUnknown;
  const auto body = message.subspan(kFixedHeaderBytes);
  ChunkListShape shape;
  if (!scan_chunk_lists(body, shape)) return Direction::kUnknown;
  if (header.proc == Proc::kNomsg) {
    if (shape.reads_present) return Direction::kCall;
    return shape.reply_present ? Direction::kReply : Direction::kUnknown;
  }
  if (body.size() - shape.consumed < 8) return Direction::kUnknown;
  const std::uint32_t msg_type = load_be32(body.data() + shape.consumed + 4);
  if (msg_type > 1) return Direction::kUnknown;
  return msg_type == 0 ? Direction::kCall : Direction::kReply;
}

std::size_t encode_header(std::span<std::byte> out, std::uint32_t xid, std::uint32_t credit, Proc proc,
                          const ChunkLists& lists) noexcept {
  if (header_size(lists) > out.size()) return 0;
  store_fixed_words(out.data(), xid, kRdmaVersion, credit, proc);
  return kFixedHeaderBytes + encode_chunk_lists(out.data() + kFixedHeaderBytes, lists);
}

std::size_t encode_reply_header(std::span<std::byte> out, std::uint32_t xid, std::uint32_t credit, Proc proc,
                                const ChunkLists& call_lists, const ReturnedLengths& returned) noexcept {
  if (reply_header_size(call_lists) > out.size()) return 0;
  store_fixed_words(out.data(), xid, kRdmaVersion, credit, proc);
  return kFixedHeaderBytes + encode_returned_lists(out.data() + kFixedHeaderBytes, call_lists, returned);
}

}  // namespace rodeo
