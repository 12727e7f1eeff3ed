// SPDX-License-Identifier: Apache-2.0
#include "engine/rpc_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/golden_messages.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::cut;
using golden::joined;
using golden::Octets;
using golden::wire;

Octets rpc_of(std::span<const std::uint32_t> words, std::size_t header_bytes) {
  const Octets whole = wire(words);
  return {whole.begin() + static_cast<std::ptrdiff_t>(header_bytes), whole.end()};
}

CallOutcome outcome_of(const Octets& octets) {
  CallHeader call;
  return decode_call(octets, call);
}

/// A Call with a credential and verifier of the given flavors and body lengths, zero-filled.
Octets call_with_auth(std::uint32_t cred_flavor, std::uint32_t cred, std::uint32_t verf_flavor, std::uint32_t verf) {
  const auto padded = [](std::uint32_t n) { return Octets((n + 3U) / 4 * 4); };
  Octets out = joined(wire({7, 0, 2, 100003, 3, 1, cred_flavor, cred}), padded(cred));
  return joined(joined(out, wire({verf_flavor, verf})), padded(verf));
}

TEST(RpcCall, WithoutAuthenticationDecodes) {  // E1
  proves("R5531-12-1");
  CallHeader call;
  ASSERT_EQ(decode_call(rpc_of(golden::kE1Call, 28), call), CallOutcome::kOk);
  EXPECT_EQ(call.xid, 0x11223344U);
  EXPECT_EQ(call.program, 100003U);
  EXPECT_EQ(call.version, 3U);
  EXPECT_EQ(call.procedure, 0U);
  EXPECT_EQ(call.cred.flavor, AuthFlavor::kNone);
  EXPECT_TRUE(call.cred.body.empty());
  EXPECT_EQ(call.args_offset, 40U);
}

TEST(RpcCall, WithAuthSysDecodes) {  // E2
  const Octets octets = rpc_of(golden::kE2Call, 68);
  CallHeader call;
  ASSERT_EQ(decode_call(octets, call), CallOutcome::kOk);
  EXPECT_EQ(call.procedure, 6U);
  EXPECT_EQ(call.cred.flavor, AuthFlavor::kSys);
  EXPECT_EQ(call.cred.body.size(), 24U);
  EXPECT_EQ(call.args_offset, 64U);
  AuthSys sys;
  ASSERT_TRUE(decode_auth_sys(call.cred.body, sys));
  EXPECT_EQ(sys.machine_name, "host");
  EXPECT_EQ(sys.uid, 0U);
  EXPECT_EQ(sys.gid_count, 0U);
}

TEST(RpcCall, EveryTruncationIsNoticed) {
  const Octets octets = rpc_of(golden::kE2Call, 68);
  for (std::size_t length = 0; length < 64; ++length) {
    EXPECT_EQ(outcome_of(cut(octets, length)), CallOutcome::kTruncated) << length;
  }
  EXPECT_EQ(outcome_of(cut(octets, 64)), CallOutcome::kOk);
}

TEST(RpcCall, OtherRpcVersionsAreToldFromEverythingElse) {
  proves("R5531-9-1");
  const Octets octets = wire({7, 0, 3, 100003, 3, 0, 0, 0, 0, 0});
  CallHeader call;
  ASSERT_EQ(decode_call(octets, call), CallOutcome::kRpcMismatch);
  EXPECT_EQ(call.xid, 7U);
  EXPECT_EQ(outcome_of(cut(octets, 12)), CallOutcome::kRpcMismatch);
  EXPECT_EQ(outcome_of(cut(octets, 8)), CallOutcome::kTruncated);
}

TEST(RpcCall, RepliesAreNotCalls) {
  CallHeader call;
  ASSERT_EQ(decode_call(rpc_of(golden::kE1Reply, 28), call), CallOutcome::kNotCall);
  EXPECT_EQ(call.xid, 0x11223344U);
  EXPECT_EQ(outcome_of(wire({7, 2, 2, 1, 1, 1, 0, 0, 0, 0})), CallOutcome::kNotCall);
}

TEST(RpcCall, AuthenticationBodiesAreAtMost400Octets) {
  proves("R5531-9-3");
  EXPECT_EQ(outcome_of(call_with_auth(6, 400, 6, 400)), CallOutcome::kOk);
  EXPECT_EQ(call_with_auth(6, 400, 6, 400).size(), kMaxCallHeaderBytes);
  EXPECT_EQ(outcome_of(call_with_auth(6, 401, 0, 0)), CallOutcome::kBadCredential);
  EXPECT_EQ(outcome_of(call_with_auth(0, 0, 6, 401)), CallOutcome::kBadCredential);
  EXPECT_EQ(outcome_of(wire({7, 0, 2, 1, 1, 1, 0, 0xffffffff, 0, 0})), CallOutcome::kBadCredential);
}

TEST(RpcCall, FastAndSlowPathAgree) {
  for (std::uint32_t cred = 0; cred < 30; ++cred) {
    for (const std::uint32_t extra : {0U, 4U, 20U}) {
      const Octets octets = joined(call_with_auth(1, cred, 0, 0), Octets(extra));
      CallHeader fast;
      CallHeader slow;
      ASSERT_EQ(decode_call(octets, fast), CallOutcome::kOk);
      ASSERT_EQ(decode_call_slow(octets, slow), CallOutcome::kOk);
      EXPECT_EQ(fast.xid, slow.xid);
      EXPECT_EQ(fast.program, slow.program);
      EXPECT_EQ(fast.version, slow.version);
      EXPECT_EQ(fast.procedure, slow.procedure);
      EXPECT_EQ(fast.args_offset, slow.args_offset);
      EXPECT_EQ(fast.cred.flavor, slow.cred.flavor);
      EXPECT_EQ(fast.cred.body.data(), slow.cred.body.data());
      EXPECT_EQ(fast.cred.body.size(), cred);
      EXPECT_TRUE(fast.verf.body.empty());
    }
  }
}

TEST(RpcCall, VerifiersOfOtherFlavorsAreKept) {
  CallHeader call;
  const Octets octets = call_with_auth(6, 20, 6, 37);
  ASSERT_EQ(decode_call(octets, call), CallOutcome::kOk);
  EXPECT_EQ(call.verf.flavor, AuthFlavor::kGss);
  EXPECT_EQ(call.verf.body.size(), 37U);
  EXPECT_EQ(call.args_offset, octets.size());
}

TEST(AuthSysBody, EnforcesItsLimits) {
  proves("R5531-A-1");
  const auto body = [](std::uint32_t name, std::uint32_t gids) {
    Octets out = joined(wire({1, name}), Octets((name + 3U) / 4 * 4, std::byte{'x'}));
    out = joined(out, wire({1000, 100, gids}));
    return joined(out, Octets(gids * 4UL, std::byte{1}));
  };
  AuthSys sys;
  EXPECT_TRUE(decode_auth_sys(body(255, 16), sys));
  EXPECT_EQ(sys.machine_name.size(), 255U);
  EXPECT_EQ(sys.uid, 1000U);
  EXPECT_EQ(sys.gid, 100U);
  EXPECT_EQ(sys.gid_count, 16U);
  EXPECT_EQ(sys.gids[15], 0x01010101U);
  EXPECT_FALSE(decode_auth_sys(body(256, 0), sys));
  EXPECT_FALSE(decode_auth_sys(body(4, 17), sys));
  EXPECT_FALSE(decode_auth_sys(joined(body(4, 0), Octets(4)), sys));
  const Octets whole = body(5, 3);
  for (std::size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(decode_auth_sys(cut(whole, length), sys));
  EXPECT_FALSE(decode_auth_sys(wire({1, 0, 0, 0, 0xffffffff}), sys));
}

TEST(RpcCallEncoding, MatchesTheWorkedMessages) {  // E1, E2
  proves("R8166-4-2");
  Octets out(64);
  ASSERT_EQ(encode_call_header(out, 0x11223344, 100003, 3, 0, {}), 40U);
  EXPECT_EQ(cut(out, 40), rpc_of(golden::kE1Call, 28));
  Credential credential{AuthFlavor::kSys, {}};
  credential.sys.machine_name = "host";
  ASSERT_EQ(encode_call_header(out, 0x11223345, 100003, 3, 6, credential), 64U);
  EXPECT_EQ(out, cut(rpc_of(golden::kE2Call, 68), 64));
  EXPECT_EQ(encode_call_header(std::span{out}.first(63), 1, 100003, 3, 6, credential), 0U);
  EXPECT_EQ(encode_call_header(std::span{out}.first(39), 1, 100003, 3, 6, {}), 0U);
}

TEST(RpcCallEncoding, CarriesAllOfAuthSys) {
  const std::string name(255, 'n');
  Credential credential{AuthFlavor::kSys, {5, name, 1000, 100, 16, {}}};
  for (std::uint32_t i = 0; i < 16; ++i) credential.sys.gids[i] = i * 3;
  Octets out(kMaxCallHeaderBytes);
  const std::size_t size = encode_call_header(out, 9, 1, 2, 3, credential);
  CallHeader call;
  ASSERT_EQ(decode_call(cut(out, size), call), CallOutcome::kOk);
  EXPECT_EQ(call.args_offset, size);
  AuthSys sys;
  const Octets body(call.cred.body.size());
  ASSERT_EQ(decode_call(std::span<const std::byte>{out}.first(size), call), CallOutcome::kOk);
  ASSERT_TRUE(decode_auth_sys(call.cred.body, sys));
  EXPECT_EQ(sys.stamp, 5U);
  EXPECT_EQ(sys.machine_name, name);
  EXPECT_EQ(sys.uid, 1000U);
  EXPECT_EQ(sys.gid, 100U);
  EXPECT_EQ(sys.gids, credential.sys.gids);
}

TEST(RpcCallEncoding, RefusesWhatAPeerWouldRefuse) {
  proves("R5531-9-3", "R5531-A-1");
  Octets out(kMaxCallHeaderBytes);
  const std::string name(256, 'n');
  EXPECT_EQ(encode_call_header(out, 9, 1, 2, 3, {AuthFlavor::kSys, {0, name, 0, 0, 0, {}}}), 0U);
  EXPECT_EQ(encode_call_header(out, 9, 1, 2, 3, {AuthFlavor::kSys, {0, "host", 0, 0, 17, {}}}), 0U);
  EXPECT_EQ(encode_call_header(out, 9, 1, 2, 3, {AuthFlavor::kGss, {}}), 0U);
}

TEST(RpcReplyEncoding, HasExactlyTheOctetsOfTheStandard) {
  proves("R5531-9-1", "R5531-9-2");
  Octets out(24);
  EXPECT_EQ(encode_accepted(out.data(), 0x11223344, AcceptStat::kSuccess), 24U);
  EXPECT_EQ(out, rpc_of(golden::kE1Reply, 28));
  EXPECT_EQ(encode_accepted(out.data(), 7, AcceptStat::kGarbageArgs), 24U);
  EXPECT_EQ(out, wire({7, 1, 0, 0, 0, 4}));
  EXPECT_EQ(encode_rpc_mismatch(out.data(), 7), 24U);
  EXPECT_EQ(out, wire({7, 1, 1, 0, 2, 2}));
  out.resize(32);
  EXPECT_EQ(encode_prog_mismatch(out.data(), 7, 3, 4), 32U);
  EXPECT_EQ(out, wire({7, 1, 0, 0, 0, 2, 3, 4}));
  out.resize(20);
  EXPECT_EQ(encode_auth_error(out.data(), 7, AuthStat::kTooWeak), 20U);
  EXPECT_EQ(out, wire({7, 1, 1, 1, 5}));
}

TEST(RpcReply, EachFormDecodes) {
  proves("R5531-9-2", "R5531-9-3");
  ReplyHeader reply;
  ASSERT_EQ(decode_reply(rpc_of(golden::kE2Reply, 68), reply), ReplyOutcome::kOk);
  EXPECT_TRUE(reply.success());
  EXPECT_EQ(reply.xid, 0x11223345U);
  EXPECT_EQ(reply.results_offset, 24U);
  for (const std::uint32_t stat : {1U, 3U, 4U, 5U}) {
    ASSERT_EQ(decode_reply(wire({7, 1, 0, 0, 0, stat}), reply), ReplyOutcome::kOk);
    EXPECT_EQ(reply.accept_stat, static_cast<AcceptStat>(stat));
    EXPECT_FALSE(reply.success());
  }
  ASSERT_EQ(decode_reply(wire({7, 1, 0, 0, 0, 2, 3, 4}), reply), ReplyOutcome::kOk);
  EXPECT_EQ(reply.mismatch_low, 3U);
  EXPECT_EQ(reply.mismatch_high, 4U);
  EXPECT_EQ(reply.results_offset, 32U);
  ASSERT_EQ(decode_reply(wire({7, 1, 1, 0, 2, 2}), reply), ReplyOutcome::kOk);
  EXPECT_EQ(reply.reply_stat, ReplyStat::kDenied);
  EXPECT_EQ(reply.reject_stat, RejectStat::kRpcMismatch);
  EXPECT_FALSE(reply.success());
  ASSERT_EQ(decode_reply(wire({7, 1, 1, 1, 5}), reply), ReplyOutcome::kOk);
  EXPECT_EQ(reply.auth_stat, AuthStat::kTooWeak);
  EXPECT_EQ(reply.results_offset, 20U);
}

TEST(RpcReply, AVerifierIsPassedOver) {
  ReplyHeader reply;
  ASSERT_EQ(decode_reply(wire({7, 1, 0, 6, 5, 1, 2, 0, 9}), reply), ReplyOutcome::kOk);
  EXPECT_EQ(reply.verf.flavor, AuthFlavor::kGss);
  EXPECT_EQ(reply.verf.body.size(), 5U);
  EXPECT_EQ(reply.results_offset, 32U);
}

TEST(RpcReply, MalformedOnesAreRefused) {
  ReplyHeader reply;
  EXPECT_EQ(decode_reply(rpc_of(golden::kE1Call, 28), reply), ReplyOutcome::kNotReply);
  EXPECT_EQ(decode_reply(wire({7, 1, 2, 0, 0, 0}), reply), ReplyOutcome::kBadStat);
  EXPECT_EQ(decode_reply(wire({7, 1, 0, 0, 0, 6}), reply), ReplyOutcome::kBadStat);
  EXPECT_EQ(decode_reply(wire({7, 1, 1, 2, 0, 0}), reply), ReplyOutcome::kBadStat);
  EXPECT_EQ(decode_reply(joined(wire({7, 1, 0, 6, 401}), Octets(408)), reply), ReplyOutcome::kBadVerifier);
  for (const Octets& whole : {wire({7, 1, 0, 0, 0, 2, 3, 4}), wire({7, 1, 1, 0, 2, 2}), wire({7, 1, 1, 1, 5}),
                              wire({7, 1, 0, 6, 5, 1, 2, 0})}) {
    for (std::size_t length = 0; length < whole.size(); ++length) {
      EXPECT_EQ(decode_reply(cut(whole, length), reply), ReplyOutcome::kTruncated);
    }
  }
}

}  // namespace
}  // namespace rodeo
