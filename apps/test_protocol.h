// SPDX-License-Identifier: Apache-2.0
#pragma once

// The test program that every rodeod serves, for measuring and for checking: program 0x20524f44, version 1. In XDR:
//
//   NULL        void                                        -> void
//   ECHO        opaque data<>                               -> opaque data<>
//   CHECKSUM    opaque data<> (DDP-eligible)                -> u32 length, u64 checksum
//   FILL        u64 start, u32 length                       -> opaque pattern<> (DDP-eligible)
//   DELAY       u32 microseconds                            -> void, no earlier than that
//   HASH_BEGIN  void                                        -> HashStatus; if kOk: u64 session, u32 largest block
//   HASH_UPDATE u64 session, u64 offset,
//               opaque data<> (DDP-eligible)                -> HashStatus
//   HASH_END    u64 session                                 -> HashStatus; if kOk: opaque sha256[32]
//   MIRROR      opaque data<> (DDP-eligible)                -> opaque data<> (DDP-eligible)
//   LONG_CALL   opaque data<>                               -> u32 length, u64 checksum
//   LONG_REPLY  u64 start, u32 length                       -> opaque pattern<>
//   CAPTURE     u32 results_bytes, u32 bulk_bytes,
//               opaque data<> (DDP-eligible), rest          -> opaque[results_bytes]; if bulk_bytes is not 0:
//                                                              opaque pattern<> of so many octets (DDP-eligible)
//   CALLBACK    u32 calls                                   -> void, after so many calls back (apps/callback.h)
//
// `pattern` and `checksum` are those of apps/pattern.h. ECHO, LONG_CALL and LONG_REPLY differ from the others in what
// may not leave the XDR stream: their data turns into Long Calls and Long Replies when it is large. HASH_UPDATEs of one
// session may be outstanding together and arrive in any order; their offsets say where the octets belong. CAPTURE has
// whatever shape recorded traffic had: `rest` is there for its size, and when it is four octets or more the first word
// is where the returned pattern starts; results of eight octets or more begin with the checksum of `data` instead.
// Lengths above what the engine's bulk buffers hold, and anything left over, are GARBAGE_ARGS.

#include <cstddef>
#include <cstdint>

namespace rodeo::apps {

inline constexpr std::uint32_t kTestProgram = 0x20524f44;
inline constexpr std::uint32_t kTestVersion = 1;

enum class TestProc : std::uint32_t {
  kNull = 0,
  kEcho = 1,
  kChecksum = 2,
  kFill = 3,
  kDelay = 4,
  kHashBegin = 5,
  kHashUpdate = 6,
  kHashEnd = 7,
  kMirror = 8,
  kLongCall = 9,
  kLongReply = 10,
  kCapture = 11,
  kCallback = 12,
  // Not of this program: what `rodeo bench` calls these two of NFS version 3 by.
  kNfsRead = 0x4e00,
  kNfsWrite = 0x4e01,
};
[[nodiscard]] constexpr bool is_nfs(TestProc proc) noexcept {
  return proc == TestProc::kNfsRead || proc == TestProc::kNfsWrite;
}

/// Longest DELAY: ten seconds.
inline constexpr std::uint32_t kMaxDelayUs = 10'000'000;
/// Most calls back of one CALLBACK.
inline constexpr std::uint32_t kMaxCallsBack = 1'000;

enum class HashStatus : std::uint32_t {
  kOk = 0,
  kUnknownSession = 1,  // never begun, ended, or expired
  kBadOffset = 2,       // these octets were hashed before
  kTooManySessions = 3,
  kTooFarAhead = 4,  // too many blocks wait for one that has not come
  kIncomplete = 5,   // HASH_END while blocks are still wanted or waiting
  kLast = kIncomplete,
};

inline constexpr std::size_t kSha256Bytes = 32;

}  // namespace rodeo::apps
