// SPDX-License-Identifier: Apache-2.0
#pragma once

// Worked messages of RPC-over-RDMA version 1, word by word, for tests: each decodes to known values and encodes back to
// the same octets. A few helpers turn them into octets in exact-size heap memory, where a sanitizer sees every octet
// read past the end.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "pools/byte_order.h"

namespace rodeo::golden {

// clang-format off

// E1: minimal inline Call, NFSv3 NULL.
inline constexpr std::uint32_t kE1Call[] = {
    0x11223344, 0x00000001, 0x00000080, 0x00000000,  // xid; vers 1; credit 128 requested; proc 0 RDMA_MSG
    0x00000000, 0x00000000, 0x00000000,  // Read list, Write list, Reply chunk: absent
    0x11223344, 0x00000000, 0x00000002,  // RPC xid (= rdma_xid); msg_type CALL; rpcvers 2
    0x000186a3, 0x00000003, 0x00000000,  // prog 100003, vers 3, proc 0 NULL
    0x00000000, 0x00000000,  // cred AUTH_NONE, length 0
    0x00000000, 0x00000000,  // verf AUTH_NONE, length 0
};
static_assert(sizeof kE1Call == 68);

// E1: its Reply.
inline constexpr std::uint32_t kE1Reply[] = {
    0x11223344, 0x00000001, 0x00000040, 0x00000000,  // xid; vers 1; credit 64 granted; proc 0 RDMA_MSG
    0x00000000, 0x00000000, 0x00000000,  // Read list, Write list, Reply chunk: absent
    0x11223344, 0x00000001, 0x00000000,  // RPC xid; msg_type REPLY; MSG_ACCEPTED
    0x00000000, 0x00000000, 0x00000000,  // verf AUTH_NONE, length 0; accept_stat SUCCESS
};
static_assert(sizeof kE1Reply == 52);

// E2: NFSv3 READ, one Write chunk of two segments.
inline constexpr std::uint32_t kE2Call[] = {
    0x11223345, 0x00000001, 0x00000080, 0x00000000,  // xid; vers 1; credit 128 requested; proc 0 RDMA_MSG
    0x00000000, 0x00000001, 0x00000002,  // Read list absent; Write list item; 2 segments
    0x00001a01, 0x00002000, 0x00007f00, 0x12340000,  // H=0x1a01 L=8192 O=0x7f0012340000
    0x00001b02, 0x00001000, 0x00007f00, 0x12378000,  // H=0x1b02 L=4096 O=0x7f0012378000
    0x00000000, 0x00000000,  // Write list end; Reply chunk absent
    0x11223345, 0x00000000, 0x00000002,  // RPC xid (= rdma_xid); msg_type CALL; rpcvers 2
    0x000186a3, 0x00000003, 0x00000006,  // prog 100003, vers 3, proc 6 READ
    0x00000001, 0x00000018,  // cred AUTH_SYS, body length 24
    0x00000000, 0x00000004, 0x686f7374,  // stamp 0, machinename "host"
    0x00000000, 0x00000000, 0x00000000,  // uid 0, gid 0, gids<> empty
    0x00000000, 0x00000000,  // verf AUTH_NONE, length 0
    0x00000010,  // fh length 16
    0xa0a1a2a3, 0xa4a5a6a7, 0xa8a9aaab, 0xacadaeaf,  // fh bytes
    0x00000000, 0x00000000,  // offset 0
    0x00003000,  // count 12288
};
static_assert(sizeof kE2Call == 164);

// E2: its Reply, 9001 octets in the Write chunk.
inline constexpr std::uint32_t kE2Reply[] = {
    0x11223345, 0x00000001, 0x00000040, 0x00000000,  // xid; vers 1; credit 64 granted; proc 0 RDMA_MSG
    0x00000000, 0x00000001, 0x00000002,  // Read list absent (always); Write list item; 2 segments (copied)
    0x00001a01, 0x00002000, 0x00007f00, 0x12340000,  // segment 0: L=8192, full
    0x00001b02, 0x00000329, 0x00007f00, 0x12378000,  // segment 1: L=809, partial
    0x00000000, 0x00000000,  // Write list end; Reply chunk absent
    0x11223345, 0x00000001, 0x00000000,  // RPC xid; msg_type REPLY; MSG_ACCEPTED
    0x00000000, 0x00000000, 0x00000000,  // verf AUTH_NONE, length 0; accept_stat SUCCESS
    0x00000000,  // NFS3_OK
    0x00000000,  // attributes_follow FALSE
    0x00002329, 0x00000001,  // count 9001, eof TRUE
    0x00002329,  // data<> length word 9001; no data, no pad
};
static_assert(sizeof kE2Reply == 112);

// E2: the same Call failing, Write chunk unused.
inline constexpr std::uint32_t kE2Unused[] = {
    0x11223345, 0x00000001, 0x00000040, 0x00000000,  // xid; vers 1; credit 64 granted; proc 0 RDMA_MSG
    0x00000000, 0x00000001, 0x00000002,  // Read list absent; Write list item; 2 segments (copied)
    0x00001a01, 0x00000000, 0x00007f00, 0x12340000,  // segment 0: L=0 (empty)
    0x00001b02, 0x00000000, 0x00007f00, 0x12378000,  // segment 1: L=0 (empty)
    0x00000000, 0x00000000,  // Write list end; Reply chunk absent
    0x11223345, 0x00000001, 0x00000000,  // RPC xid; msg_type REPLY; MSG_ACCEPTED
    0x00000000, 0x00000000, 0x00000000,  // verf AUTH_NONE, length 0; accept_stat SUCCESS
    0x00000046,  // NFS3ERR_STALE (70)
    0x00000000,  // attributes_follow FALSE
};
static_assert(sizeof kE2Unused == 100);

// E3: NFSv3 WRITE, one Read chunk at Position 104.
inline constexpr std::uint32_t kE3Call[] = {
    0x11223346, 0x00000001, 0x00000080, 0x00000000,  // xid; vers 1; credit 128 requested; proc 0 RDMA_MSG
    0x00000001, 0x00000068,  // Read list item; Position 104 (0x68)
    0x00002c03, 0x00002003, 0x00007f00, 0xaa000000,  // H=0x2c03 L=8195 O=0x7f00aa000000
    0x00000000, 0x00000000, 0x00000000,  // Read list end; Write list, Reply chunk absent
    0x11223346, 0x00000000, 0x00000002,  // RPC xid (= rdma_xid); msg_type CALL; rpcvers 2
    0x000186a3, 0x00000003, 0x00000007,  // prog 100003, vers 3, proc 7 WRITE
    0x00000001, 0x00000018,  // cred AUTH_SYS, body length 24
    0x00000000, 0x00000004, 0x686f7374,  // stamp 0, machinename "host"
    0x00000000, 0x00000000, 0x00000000,  // uid 0, gid 0, gids<> empty
    0x00000000, 0x00000000,  // verf AUTH_NONE, length 0
    0x00000010,  // fh length 16
    0xa0a1a2a3, 0xa4a5a6a7, 0xa8a9aaab, 0xacadaeaf,  // fh bytes
    0x00000000, 0x00000000,  // offset 0
    0x00002003,  // count 8195
    0x00000002,  // stable FILE_SYNC (2)
    0x00002003,  // data<> length word 8195
};
static_assert(sizeof kE3Call == 156);

// E3: its Reply, Read chunks are not echoed.
inline constexpr std::uint32_t kE3Reply[] = {
    0x11223346, 0x00000001, 0x00000040, 0x00000000,  // xid; vers 1; credit 64 granted; proc 0 RDMA_MSG
    0x00000000, 0x00000000, 0x00000000,  // all three absent (Read list is not echoed)
    0x11223346, 0x00000001, 0x00000000,  // RPC xid; msg_type REPLY; MSG_ACCEPTED
    0x00000000, 0x00000000, 0x00000000,  // verf AUTH_NONE, length 0; accept_stat SUCCESS
    0x00000000,  // NFS3_OK
    0x00000000, 0x00000000,  // wcc_data: before FALSE, after FALSE
    0x00002003,  // count 8195
    0x00000002,  // committed FILE_SYNC (2)
    0x01020304, 0x05060708,  // writeverf3
};
static_assert(sizeof kE3Reply == 80);

// E3 variant: two segments of one chunk, pad included; header only.
inline constexpr std::uint32_t kE3PaddedHeader[] = {
    0x11223346, 0x00000001, 0x00000080, 0x00000000,  // xid; vers 1; credit 128 requested; proc 0 RDMA_MSG
    0x00000001, 0x00000068,  // Read list item; Position 104 (0x68)
    0x00002c03, 0x00002000, 0x00007f00, 0xaa000000,  // H=0x2c03 L=8192 O=0x7f00aa000000
    0x00000001, 0x00000068,  // Read list item; Position 104 (0x68)
    0x00002c04, 0x00000004, 0x00007f00, 0xab000000,  // H=0x2c04 L=4 O=0x7f00ab000000
    0x00000000, 0x00000000, 0x00000000,  // Read list end; Write list, Reply chunk absent
};
static_assert(sizeof kE3PaddedHeader == 76);

// E4: Long Call, Position-zero Read chunk of two segments.
inline constexpr std::uint32_t kE4Call[] = {
    0x11223347, 0x00000001, 0x00000080, 0x00000001,  // xid; vers 1; credit 128 requested; proc 1 RDMA_NOMSG
    0x00000001, 0x00000000,  // Read list item; Position 0 (PZRC)
    0x00003d05, 0x00001000, 0x00007f00, 0x55550000,  // H=0x3d05 L=4096 O=0x7f0055550000
    0x00000001, 0x00000000,  // Read list item; Position 0 (PZRC)
    0x00003d06, 0x000004b4, 0x00007f00, 0x55560000,  // H=0x3d06 L=1204 O=0x7f0055560000
    0x00000000, 0x00000000, 0x00000000,  // Read list end; Write list, Reply chunk absent
};
static_assert(sizeof kE4Call == 76);

// E4: Position-zero Read chunk and a data chunk.
inline constexpr std::uint32_t kE4Combined[] = {
    0x11223348, 0x00000001, 0x00000080, 0x00000001,  // xid; vers 1; credit 128 requested; proc 1 RDMA_NOMSG
    0x00000001, 0x00000000,  // Read list item; Position 0
    0x00003d07, 0x00001388, 0x00007f00, 0x55570000,  // H=0x3d07 L=5000 O=0x7f0055570000
    0x00000001, 0x00001374,  // Read list item; Position 4980
    0x00003d08, 0x00010000, 0x00007f00, 0x56000000,  // H=0x3d08 L=65536 O=0x7f0056000000
    0x00000000, 0x00000000, 0x00000000,  // Read list end; Write list, Reply chunk absent
};
static_assert(sizeof kE4Combined == 76);

// E5: READDIRPLUS with a Reply chunk.
inline constexpr std::uint32_t kE5Call[] = {
    0x11223349, 0x00000001, 0x00000080, 0x00000000,  // xid; vers 1; credit 128 requested; proc 0 RDMA_MSG
    0x00000000, 0x00000000, 0x00000001, 0x00000002,  // Read, Write list absent; Reply chunk present; 2 segments
    0x00004e07, 0x00008000, 0x00007f00, 0x66660000,  // H=0x4e07 L=32768
    0x00004e08, 0x00001000, 0x00007f00, 0x66770000,  // H=0x4e08 L=4096
    0x11223349, 0x00000000, 0x00000002,  // RPC xid (= rdma_xid); msg_type CALL; rpcvers 2
    0x000186a3, 0x00000003, 0x00000011,  // prog 100003, vers 3, proc 17 READDIRPLUS
    0x00000001, 0x00000018,  // cred AUTH_SYS, body length 24
    0x00000000, 0x00000004, 0x686f7374,  // stamp 0, machinename "host"
    0x00000000, 0x00000000, 0x00000000,  // uid 0, gid 0, gids<> empty
    0x00000000, 0x00000000,  // verf AUTH_NONE, length 0
    0x00000010,  // dir fh length 16
    0xa0a1a2a3, 0xa4a5a6a7, 0xa8a9aaab, 0xacadaeaf,  // fh bytes
    0x00000000, 0x00000000,  // cookie 0
    0x00000000, 0x00000000,  // cookieverf 0
    0x00001000, 0x00008000,  // dircount 4096, maxcount 32768
};
static_assert(sizeof kE5Call == 172);

// E5: its Long Reply of 5000 octets.
inline constexpr std::uint32_t kE5LongReply[] = {
    0x11223349, 0x00000001, 0x00000040, 0x00000001,  // xid; vers 1; credit 64 granted; proc 1 RDMA_NOMSG
    0x00000000, 0x00000000, 0x00000001, 0x00000002,  // Read, Write list absent; Reply chunk; 2 segments (copied)
    0x00004e07, 0x00001388, 0x00007f00, 0x66660000,  // segment 0: L=5000 used
    0x00004e08, 0x00000000, 0x00007f00, 0x66770000,  // segment 1: L=0 unused
};
static_assert(sizeof kE5LongReply == 64);

// E5: its small Reply, inline although a Reply chunk was offered.
inline constexpr std::uint32_t kE5ShortReply[] = {
    0x11223349, 0x00000001, 0x00000040, 0x00000000,  // xid; vers 1; credit 64 granted; proc 0 RDMA_MSG
    0x00000000, 0x00000000, 0x00000001, 0x00000002,  // Read, Write list absent; Reply chunk; 2 segments (copied)
    0x00004e07, 0x00000000, 0x00007f00, 0x66660000,  // segment 0: L=0
    0x00004e08, 0x00000000, 0x00007f00, 0x66770000,  // segment 1: L=0
    0x11223349, 0x00000001, 0x00000000,  // RPC xid; msg_type REPLY; MSG_ACCEPTED
    0x00000000, 0x00000000, 0x00000000,  // verf AUTH_NONE, length 0; accept_stat SUCCESS
    0x00000014,  // NFS3ERR_NOTDIR (20)
    0x00000000,  // attributes_follow FALSE
};
static_assert(sizeof kE5ShortReply == 96);

// E6: ERR_VERS to a Call of version 2.
inline constexpr std::uint32_t kE6ErrVers[] = {
    0x1122334a, 0x00000002, 0x00000040, 0x00000004,  // xid; vers 2; credit 64 granted; proc 4 RDMA_ERROR
    0x00000001,  // rdma_err = 1 ERR_VERS
    0x00000001, 0x00000001,  // rdma_vers_low = 1, rdma_vers_high = 1
};
static_assert(sizeof kE6ErrVers == 28);

// E7: ERR_CHUNK.
inline constexpr std::uint32_t kE7ErrChunk[] = {
    0x1122334b, 0x00000001, 0x00000040, 0x00000004,  // xid; vers 1; credit 64 granted; proc 4 RDMA_ERROR
    0x00000002,  // rdma_err = 2 ERR_CHUNK
};
static_assert(sizeof kE7ErrChunk == 20);

// E8: Call in reverse direction.
inline constexpr std::uint32_t kE8ReverseCall[] = {
    0x77000001, 0x00000001, 0x00000010, 0x00000000,  // xid; vers 1; credit 16 reverse-direction credits requested; proc 0 RDMA_MSG
    0x00000000, 0x00000000, 0x00000000,  // Read list, Write list, Reply chunk: absent
    0x77000001, 0x00000000, 0x00000002,  // RPC xid (= rdma_xid); msg_type CALL; rpcvers 2
    0x40000000, 0x00000001, 0x00000000,  // prog 1073741824, vers 1, proc 0 CB_NULL
    0x00000000, 0x00000000,  // cred AUTH_NONE, length 0
    0x00000000, 0x00000000,  // verf AUTH_NONE, length 0
};
static_assert(sizeof kE8ReverseCall == 68);

// clang-format on

enum class Kind { kCall, kReply, kError };

struct Message {
  std::string_view name;
  std::span<const std::uint32_t> words;
  Kind kind;
  std::size_t header_bytes;
};

/// Every whole message above.
inline constexpr std::array kMessages = {
    Message{"E1 Call", kE1Call, Kind::kCall, 28},
    Message{"E1 Reply", kE1Reply, Kind::kReply, 28},
    Message{"E2 Call", kE2Call, Kind::kCall, 68},
    Message{"E2 Reply", kE2Reply, Kind::kReply, 68},
    Message{"E2 unused", kE2Unused, Kind::kReply, 68},
    Message{"E3 Call", kE3Call, Kind::kCall, 52},
    Message{"E3 Reply", kE3Reply, Kind::kReply, 28},
    Message{"E4 Call", kE4Call, Kind::kCall, 76},
    Message{"E4 combined", kE4Combined, Kind::kCall, 76},
    Message{"E5 Call", kE5Call, Kind::kCall, 64},
    Message{"E5 Long Reply", kE5LongReply, Kind::kReply, 64},
    Message{"E5 short Reply", kE5ShortReply, Kind::kReply, 64},
    Message{"E6 ERR_VERS", kE6ErrVers, Kind::kError, 28},
    Message{"E7 ERR_CHUNK", kE7ErrChunk, Kind::kError, 20},
    Message{"E8 reverse Call", kE8ReverseCall, Kind::kCall, 28},
};

using Octets = std::vector<std::byte>;

/// The words as they travel.
inline Octets wire(std::span<const std::uint32_t> words) {
  Octets octets(words.size() * 4);
  for (std::size_t i = 0; i < words.size(); ++i) store_be32(octets.data() + i * 4, words[i]);
  return octets;
}
inline Octets wire(std::initializer_list<std::uint32_t> words) {
  return wire(std::span<const std::uint32_t>{words.begin(), words.size()});
}

/// A golden message with some words replaced: pairs of octet offset and new value.
inline Octets patched(std::span<const std::uint32_t> words,
                      std::initializer_list<std::pair<std::size_t, std::uint32_t>> changes) {
  Octets octets = wire(words);
  for (const auto& [offset, value] : changes) store_be32(octets.data() + offset, value);
  return octets;
}

inline Octets joined(Octets first, const Octets& second) {
  first.insert(first.end(), second.begin(), second.end());
  return {first.begin(), first.end()};
}

/// The first `length` octets in memory of exactly that size.
inline Octets cut(const Octets& octets, std::size_t length) {
  return {octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(length)};
}

}  // namespace rodeo::golden
