// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// The transport header of RPC-over-RDMA version 1 (RFC 8166 §4): rdma_xid, rdma_vers, rdma_credit, rdma_proc, then
// chunk lists or an error body. Pure functions over octets; they keep no state and own no memory.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "engine/chunk_list.h"
#include "engine/header_outcome.h"
#include "pools/byte_order.h"

namespace rodeo {

inline constexpr std::uint32_t kRdmaVersion = 1;
inline constexpr std::size_t kFixedHeaderBytes = 16;
inline constexpr std::size_t kMinHeaderBytes = 28;  // fixed words and three absent lists
inline constexpr std::size_t kErrVersBytes = 28;
inline constexpr std::size_t kErrChunkBytes = 20;
inline constexpr std::uint32_t kMinLongReplyBytes = 20;  // the smallest RPC Reply: denied, AUTH_ERROR

/// Octet offsets of the four fixed words, the same in every version of the protocol.
inline constexpr std::size_t kXidOffset = 0;
inline constexpr std::size_t kVersOffset = 4;
inline constexpr std::size_t kCreditOffset = 8;
inline constexpr std::size_t kProcOffset = 12;

/// rdma_proc.
enum class Proc : std::uint32_t { kMsg = 0, kNomsg = 1, kMsgp = 2, kDone = 3, kError = 4 };

/// rdma_err.
enum class RdmaErr : std::uint32_t { kVers = 1, kChunk = 2 };

/// A decoded header, in host order. `proc` may hold a value outside the enumeration when the outcome says so.
struct TransportHeader {
  std::uint32_t xid = 0;
  std::uint32_t vers = 0;
  std::uint32_t credit = 0;
  Proc proc = Proc::kMsg;
  std::uint32_t header_bytes = 0;     // the Payload stream starts here
  RdmaErr rdma_err = RdmaErr::kVers;  // this and the versions: only for Proc::kError
  std::uint32_t vers_low = 0;
  std::uint32_t vers_high = 0;
};

/// The common case in a few instructions: version 1, RDMA_MSG, no chunk at all. Fills `header` when true. The caller
/// still compares header.xid with the RPC message's own XID.
[[nodiscard, gnu::always_inline]] inline bool is_plain_msg(const std::byte* message, std::size_t length,
                                                           TransportHeader& header) noexcept {
  if (length < kMinHeaderBytes) return false;
  std::uint32_t vers;
  std::uint64_t proc_and_reads;
  std::uint64_t writes_and_reply;
  std::memcpy(&vers, message + kVersOffset, sizeof vers);
  std::memcpy(&proc_and_reads, message + kProcOffset, sizeof proc_and_reads);
  std::memcpy(&writes_and_reply, message + 20, sizeof writes_and_reply);
  if (((vers ^ byte_swap(kRdmaVersion)) | proc_and_reads | writes_and_reply) != 0) return false;
  header.xid = load_be32(message + kXidOffset);
  header.vers = kRdmaVersion;
  header.credit = load_be32(message + kCreditOffset);
  header.proc = Proc::kMsg;
  header.header_bytes = kMinHeaderBytes;
  return true;
}

/// A Call as a Responder receives it: fixed words, lists, the XID of an inline Payload, then whatever can be said of
/// the chunks without the Payload. The first check that fails names the outcome; see answer_for(). From kBadVersion
/// on, header.xid, vers and credit are valid, as an error reply needs them.
[[nodiscard]] HeaderOutcome decode_call_header(std::span<const std::byte> message, TransportHeader& header,
                                               ChunkLists& lists) noexcept;

/// A Reply as a Requester receives it. kOk with Proc::kError is a well-formed RDMA_ERROR: a permanent error for that
/// XID. Everything but kOk is discarded in silence.
[[nodiscard]] HeaderOutcome decode_reply_header(std::span<const std::byte> message, TransportHeader& header,
                                                ChunkLists& lists) noexcept;

/// Which role a message is for, on a connection where both ends may call (RFC 8167).
enum class Direction : std::uint8_t { kCall, kReply, kError, kUnknown };

/// Tells Calls from Replies. kUnknown means the message is malformed: its credit value counts for neither direction.
[[nodiscard]] Direction classify(std::span<const std::byte> message) noexcept;
/// The same for a message that is_plain_msg().
[[nodiscard]] inline Direction classify_plain(const std::byte* message, std::size_t length) noexcept {
  if (length < kMinHeaderBytes + 8) return Direction::kUnknown;
  const std::uint32_t msg_type = load_be32(message + kMinHeaderBytes + 4);
  if (msg_type > 1) return Direction::kUnknown;
  return msg_type == 0 ? Direction::kCall : Direction::kReply;
}

/// The four fixed words.
[[gnu::always_inline]] inline void store_fixed_words(std::byte* out, std::uint32_t xid, std::uint32_t vers,
                                                     std::uint32_t credit, Proc proc) noexcept {
  store_be32(out + kXidOffset, xid);
  store_be32(out + kVersOffset, vers);
  store_be32(out + kCreditOffset, credit);
  store_be32(out + kProcOffset, static_cast<std::uint32_t>(proc));
}

/// RDMA_MSG without chunks, kMinHeaderBytes octets.
[[gnu::always_inline]] inline void store_plain_header(std::byte* out, std::uint32_t xid,
                                                      std::uint32_t credit) noexcept {
  store_be32(out + kXidOffset, xid);
  store_be32(out + kVersOffset, kRdmaVersion);
  store_be32(out + kCreditOffset, credit);
  static_assert(static_cast<std::uint32_t>(Proc::kMsg) == 0);
  std::memset(out + kProcOffset, 0, kMinHeaderBytes - kProcOffset);  // with the three absent lists
}

/// RDMA_ERROR, ERR_VERS: we speak version 1 to 1. `vers` repeats that of the failing Call. Returns kErrVersBytes.
inline std::size_t encode_err_vers(std::byte* out, std::uint32_t xid, std::uint32_t vers,
                                   std::uint32_t credit) noexcept {
  store_fixed_words(out, xid, vers, credit, Proc::kError);
  store_be32(out + 16, static_cast<std::uint32_t>(RdmaErr::kVers));
  store_be32(out + 20, kRdmaVersion);
  store_be32(out + 24, kRdmaVersion);
  return kErrVersBytes;
}

/// RDMA_ERROR, ERR_CHUNK. Returns kErrChunkBytes.
inline std::size_t encode_err_chunk(std::byte* out, std::uint32_t xid, std::uint32_t vers,
                                    std::uint32_t credit) noexcept {
  store_fixed_words(out, xid, vers, credit, Proc::kError);
  store_be32(out + 16, static_cast<std::uint32_t>(RdmaErr::kChunk));
  return kErrChunkBytes;
}

/// RDMA_MSG or RDMA_NOMSG with these lists. Returns the octets written, 0 when `out` is too small.
[[nodiscard]] std::size_t encode_header(std::span<std::byte> out, std::uint32_t xid, std::uint32_t credit, Proc proc,
                                        const ChunkLists& lists) noexcept;

/// The header of a Reply to a Call with these lists: no Read list, the others copied with the lengths returned.
/// Returns the octets written, 0 when `out` is too small.
[[nodiscard]] std::size_t encode_reply_header(std::span<std::byte> out, std::uint32_t xid, std::uint32_t credit,
                                              Proc proc, const ChunkLists& call_lists,
                                              const ReturnedLengths& returned) noexcept;

}  // namespace rodeo
