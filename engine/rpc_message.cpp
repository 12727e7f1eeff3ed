// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.

#include "engine/rpc_message.h"

#include "engine/xdr_pad.h"
#include "engine/xdr_reader.h"
#include "engine/xdr_writer.h"

namespace rodeo {
namespace {

/// False when the body is above the RFC's limit. Truncation shows in the reader.
bool read_auth(XdrReader& in, OpaqueAuth& auth) noexcept {
  auth.flavor = static_cast<AuthFlavor>(in.u32());
  const std::uint32_t length = in.u32();
  if (length > kMaxAuthBytes) return false;
  auth.body = in.opaque_fixed(length);
  return true;
}

ReplyOutcome read_accepted(XdrReader& in, ReplyHeader& reply) noexcept {
  if (!read_auth(in, reply.verf)) return ReplyOutcome::kBadVerifier;
  const std::uint32_t stat = in.u32();
  if (!in.ok()) return ReplyOutcome::kTruncated;
  if (stat > static_cast<std::uint32_t>(AcceptStat::kSystemErr)) return ReplyOutcome::kBadStat;
  reply.accept_stat = static_cast<AcceptStat>(stat);
  if (reply.accept_stat == AcceptStat::kProgMismatch) {
    reply.mismatch_low = in.u32();
    reply.mismatch_high = in.u32();
  }
  return ReplyOutcome::kOk;
}

ReplyOutcome read_denied(XdrReader& in, ReplyHeader& reply) noexcept {
  const std::uint32_t stat = in.u32();
  if (!in.ok()) return ReplyOutcome::kTruncated;
  if (stat > static_cast<std::uint32_t>(RejectStat::kAuthError)) return ReplyOutcome::kBadStat;
  reply.reject_stat = static_cast<RejectStat>(stat);
  if (reply.reject_stat == RejectStat::kAuthError) {
    reply.auth_stat = static_cast<AuthStat>(in.u32());
  } else {
    reply.mismatch_low = in.u32();
    reply.mismatch_high = in.u32();
  }
  return ReplyOutcome::kOk;
}

/// Octets of the AUTH_SYS body, or 0 when it is above the limits.
std::size_t auth_sys_bytes(const AuthSys& sys) noexcept {
  if (sys.machine_name.size() > kMaxMachineName || sys.gid_count > kMaxAuthSysGids) return 0;
  return 20 + xdr_padded(sys.machine_name.size()) + std::size_t{sys.gid_count} * 4;
}

}  // namespace

CallOutcome decode_call_slow(std::span<const std::byte> message, CallHeader& call) noexcept {
  call = {};
  XdrReader in{message};
  call.xid = in.u32();
  const std::uint32_t msg_type = in.u32();
  if (!in.ok()) return CallOutcome::kTruncated;
  if (msg_type != static_cast<std::uint32_t>(MsgType::kCall)) return CallOutcome::kNotCall;
  const std::uint32_t rpcvers = in.u32();
  if (!in.ok()) return CallOutcome::kTruncated;
  // RFC 5531 §9: of another version nothing after this word can be relied on.
  if (rpcvers != kRpcVersion) return CallOutcome::kRpcMismatch;
  call.program = in.u32();
  call.version = in.u32();
  call.procedure = in.u32();
  if (!read_auth(in, call.cred) || !read_auth(in, call.verf)) return CallOutcome::kBadCredential;
  if (!in.ok()) return CallOutcome::kTruncated;
  call.args_offset = static_cast<std::uint32_t>(in.position());
  return CallOutcome::kOk;
}

bool decode_auth_sys(std::span<const std::byte> body, AuthSys& out) noexcept {
  XdrReader in{body};
  out.stamp = in.u32();
  out.machine_name = in.string(kMaxMachineName);
  out.uid = in.u32();
  out.gid = in.u32();
  out.gid_count = in.u32();
  if (!in.ok() || out.gid_count > kMaxAuthSysGids) return false;
  for (std::size_t i = 0; i < out.gid_count; ++i) out.gids[i] = in.u32();
  return in.ok() && in.remaining() == 0;
}

std::size_t encode_call_header(std::span<std::byte> out, std::uint32_t xid, std::uint32_t program,
                               std::uint32_t version, std::uint32_t procedure, const Credential& credential) noexcept {
  XdrWriter writer{out};
  writer.u32(xid);
  writer.enumeration(MsgType::kCall);
  writer.u32(kRpcVersion);
  writer.u32(program);
  writer.u32(version);
  writer.u32(procedure);
  writer.enumeration(credential.flavor);
  if (credential.flavor == AuthFlavor::kSys) {
    const AuthSys& sys = credential.sys;
    const std::size_t body = auth_sys_bytes(sys);
    if (body == 0) return 0;
    writer.u32(static_cast<std::uint32_t>(body));
    writer.u32(sys.stamp);
    writer.string(sys.machine_name);
    writer.u32(sys.uid);
    writer.u32(sys.gid);
    writer.u32(sys.gid_count);
    for (std::size_t i = 0; i < sys.gid_count; ++i) writer.u32(sys.gids[i]);
  } else if (credential.flavor == AuthFlavor::kNone) {
    writer.u32(0);
  } else {
    return 0;
  }
  writer.u64(0);  // verifier AUTH_NONE, length 0
  return writer.ok() ? writer.size() : 0;
}

ReplyOutcome decode_reply(std::span<const std::byte> message, ReplyHeader& reply) noexcept {
  reply = {};
  XdrReader in{message};
  reply.xid = in.u32();
  const std::uint32_t msg_type = in.u32();
  const std::uint32_t reply_stat = in.u32();
  if (!in.ok()) return ReplyOutcome::kTruncated;
  if (msg_type != static_cast<std::uint32_t>(MsgType::kReply)) return ReplyOutcome::kNotReply;
  if (reply_stat > static_cast<std::uint32_t>(ReplyStat::kDenied)) return ReplyOutcome::kBadStat;
  reply.reply_stat = static_cast<ReplyStat>(reply_stat);
  const bool accepted = reply.reply_stat == ReplyStat::kAccepted;
  const auto outcome = accepted ? read_accepted(in, reply) : read_denied(in, reply);
  if (outcome != ReplyOutcome::kOk) return outcome;
  if (!in.ok()) return ReplyOutcome::kTruncated;
  reply.results_offset = static_cast<std::uint32_t>(in.position());
  return ReplyOutcome::kOk;
}

}  // namespace rodeo
