// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// ONC RPC message headers (RFC 5531 §9) and AUTH_SYS credentials (appendix A). Decoding keeps views into the message;
// it never copies a body and never looks at the arguments or results.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/xdr_pad.h"
#include "pools/byte_order.h"

namespace rodeo {

inline constexpr std::uint32_t kRpcVersion = 2;
inline constexpr std::uint32_t kMaxAuthBytes = 400;
inline constexpr std::size_t kMaxMachineName = 255;
inline constexpr std::size_t kMaxAuthSysGids = 16;
inline constexpr std::size_t kMinCallHeaderBytes = 40;  // credential and verifier AUTH_NONE
inline constexpr std::size_t kMaxCallHeaderBytes = 840;
inline constexpr std::size_t kAcceptedReplyBytes = 24;
inline constexpr std::size_t kProgMismatchBytes = 32;
inline constexpr std::size_t kRpcMismatchBytes = 24;
inline constexpr std::size_t kAuthErrorBytes = 20;

enum class MsgType : std::uint32_t { kCall = 0, kReply = 1 };
enum class ReplyStat : std::uint32_t { kAccepted = 0, kDenied = 1 };
enum class AcceptStat : std::uint32_t {
  kSuccess = 0,
  kProgUnavail = 1,
  kProgMismatch = 2,
  kProcUnavail = 3,
  kGarbageArgs = 4,
  kSystemErr = 5,
};
enum class RejectStat : std::uint32_t { kRpcMismatch = 0, kAuthError = 1 };
enum class AuthStat : std::uint32_t {
  kOk = 0,
  kBadCred = 1,
  kRejectedCred = 2,
  kBadVerf = 3,
  kRejectedVerf = 4,
  kTooWeak = 5,
  kInvalidResp = 6,
  kFailed = 7,
  kGssCredProblem = 13,
  kGssCtxProblem = 14,
};
enum class AuthFlavor : std::uint32_t { kNone = 0, kSys = 1, kShort = 2, kDh = 3, kGss = 6, kTls = 7 };

/// A credential or verifier as it came; the flavor may be one we do not know.
struct OpaqueAuth {
  AuthFlavor flavor = AuthFlavor::kNone;
  std::span<const std::byte> body;
};

struct CallHeader {
  std::uint32_t xid = 0;
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::uint32_t procedure = 0;
  std::uint32_t args_offset = 0;  // octets from the XID to the arguments
  OpaqueAuth cred;
  OpaqueAuth verf;
};

enum class CallOutcome : std::uint8_t {
  kOk,
  kTruncated,      // there is no whole Call header
  kNotCall,        // msg_type is not CALL
  kRpcMismatch,    // rpcvers is not 2: deny with RPC_MISMATCH 2..2
  kBadCredential,  // a credential or verifier body above 400 octets: deny with AUTH_BADCRED
};

/// Everything decode_call() leaves to it: truncation, refusals and verifiers that are not AUTH_NONE.
[[nodiscard]] CallOutcome decode_call_slow(std::span<const std::byte> message, CallHeader& call) noexcept;

/// The header of an RPC Call that starts at the first octet of `message`. call.xid is valid from kNotCall on.
[[nodiscard]] inline CallOutcome decode_call(std::span<const std::byte> message, CallHeader& call) noexcept {
  // A Call with an empty AUTH_NONE verifier in a few loads; anything else goes out of line and starts afresh.
  const std::byte* p = message.data();
  if (message.size() < kMinCallHeaderBytes) return decode_call_slow(message, call);
  const std::uint64_t type_and_rpcvers = load_be64(p + 4);
  const std::uint32_t cred_bytes = load_be32(p + 28);
  const std::size_t padded = xdr_padded(std::size_t{cred_bytes});
  if (type_and_rpcvers != kRpcVersion || cred_bytes > kMaxAuthBytes || padded > message.size() - kMinCallHeaderBytes) {
    return decode_call_slow(message, call);
  }
  if (load_be64(p + 32 + padded) != 0) return decode_call_slow(message, call);
  call.xid = load_be32(p);
  call.program = load_be32(p + 12);
  call.version = load_be32(p + 16);
  call.procedure = load_be32(p + 20);
  call.args_offset = static_cast<std::uint32_t>(kMinCallHeaderBytes + padded);
  call.cred = {static_cast<AuthFlavor>(load_be32(p + 24)), {p + 32, cred_bytes}};
  call.verf = {};
  return CallOutcome::kOk;
}

/// AUTH_SYS credential body. The name is a view, into the message once decoded.
struct AuthSys {
  std::uint32_t stamp = 0;
  std::string_view machine_name;
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::uint32_t gid_count = 0;
  std::array<std::uint32_t, kMaxAuthSysGids> gids{};
};

/// False when the body is malformed or above the limits: deny with AUTH_BADCRED.
[[nodiscard]] bool decode_auth_sys(std::span<const std::byte> body, AuthSys& out) noexcept;

/// What a Requester puts in its Calls: AUTH_NONE, or AUTH_SYS from `sys`.
struct Credential {
  AuthFlavor flavor = AuthFlavor::kNone;
  AuthSys sys;
};

/// Call header with an AUTH_NONE verifier. Returns the octets written; 0 when `out` is too small, or the credential is
/// above its limits or of a flavor we cannot encode.
[[nodiscard]] std::size_t encode_call_header(std::span<std::byte> out, std::uint32_t xid, std::uint32_t program,
                                             std::uint32_t version, std::uint32_t procedure,
                                             const Credential& credential) noexcept;

/// MSG_ACCEPTED with an AUTH_NONE verifier; results or nothing follow. Returns kAcceptedReplyBytes. For PROG_MISMATCH
/// use encode_prog_mismatch(), which has a body.
[[gnu::always_inline]] inline std::size_t encode_accepted(std::byte* out, std::uint32_t xid, AcceptStat stat) noexcept {
  store_be32(out, xid);
  store_be32(out + 4, static_cast<std::uint32_t>(MsgType::kReply));
  std::memset(out + 8, 0, 16);  // MSG_ACCEPTED; verifier AUTH_NONE, length 0; SUCCESS
  if (stat != AcceptStat::kSuccess) store_be32(out + 20, static_cast<std::uint32_t>(stat));
  return kAcceptedReplyBytes;
}

/// PROG_MISMATCH with the lowest and highest version served. Returns kProgMismatchBytes.
inline std::size_t encode_prog_mismatch(std::byte* out, std::uint32_t xid, std::uint32_t low,
                                        std::uint32_t high) noexcept {
  encode_accepted(out, xid, AcceptStat::kProgMismatch);
  store_be32(out + 24, low);
  store_be32(out + 28, high);
  return kProgMismatchBytes;
}

/// MSG_DENIED, RPC_MISMATCH 2..2. Returns kRpcMismatchBytes.
inline std::size_t encode_rpc_mismatch(std::byte* out, std::uint32_t xid) noexcept {
  store_be32(out, xid);
  store_be32(out + 4, static_cast<std::uint32_t>(MsgType::kReply));
  store_be32(out + 8, static_cast<std::uint32_t>(ReplyStat::kDenied));
  store_be32(out + 12, static_cast<std::uint32_t>(RejectStat::kRpcMismatch));
  store_be32(out + 16, kRpcVersion);
  store_be32(out + 20, kRpcVersion);
  return kRpcMismatchBytes;
}

/// MSG_DENIED, AUTH_ERROR. Returns kAuthErrorBytes.
inline std::size_t encode_auth_error(std::byte* out, std::uint32_t xid, AuthStat stat) noexcept {
  store_be32(out, xid);
  store_be32(out + 4, static_cast<std::uint32_t>(MsgType::kReply));
  store_be32(out + 8, static_cast<std::uint32_t>(ReplyStat::kDenied));
  store_be32(out + 12, static_cast<std::uint32_t>(RejectStat::kAuthError));
  store_be32(out + 16, static_cast<std::uint32_t>(stat));
  return kAuthErrorBytes;
}

struct ReplyHeader {
  std::uint32_t xid = 0;
  ReplyStat reply_stat = ReplyStat::kAccepted;
  AcceptStat accept_stat = AcceptStat::kSuccess;      // kAccepted only
  RejectStat reject_stat = RejectStat::kRpcMismatch;  // kDenied only
  AuthStat auth_stat = AuthStat::kOk;                 // kDenied, kAuthError
  std::uint32_t mismatch_low = 0;                     // kProgMismatch, kRpcMismatch
  std::uint32_t mismatch_high = 0;
  std::uint32_t results_offset = 0;  // octets from the XID to what follows the header
  OpaqueAuth verf;                   // kAccepted only

  [[nodiscard]] bool success() const noexcept {
    return reply_stat == ReplyStat::kAccepted && accept_stat == AcceptStat::kSuccess;
  }
};

enum class ReplyOutcome : std::uint8_t {
  kOk,
  kTruncated,    // there is no whole Reply header
  kNotReply,     // msg_type is not REPLY
  kBadStat,      // reply_stat, accept_stat or reject_stat outside RFC 5531
  kBadVerifier,  // verifier body above 400 octets
};

/// The header of an RPC Reply that starts at the first octet of `message`.
[[nodiscard]] ReplyOutcome decode_reply(std::span<const std::byte> message, ReplyHeader& reply) noexcept;

}  // namespace rodeo
