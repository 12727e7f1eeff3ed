// SPDX-License-Identifier: Apache-2.0
#include "engine/xdr_writer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "engine/golden_messages.h"
#include "engine/xdr_reader.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::Octets;
using golden::wire;

Octets written(const XdrWriter& out) { return {out.written().begin(), out.written().end()}; }

TEST(XdrWriter, WritesIntegersBigEndian) {
  Octets memory(32, std::byte{0xee});
  XdrWriter out{memory};
  out.u32(1);
  out.i32(-2);
  out.u64(0x0102030405060708);
  out.i64(-1);
  out.boolean(true);
  out.boolean(false);
  EXPECT_TRUE(out.ok());
  EXPECT_EQ(written(out), wire({1, 0xfffffffe, 0x01020304, 0x05060708, 0xffffffff, 0xffffffff, 1, 0}));
  EXPECT_EQ(out.room(), 0U);
}

TEST(XdrWriter, PadsWithZeroes) {
  proves("R4506-3-1");
  Octets memory(64, std::byte{0xee});
  XdrWriter out{memory};
  out.string("hello");
  out.string("");
  out.string("four");
  out.opaque_fixed(std::as_bytes(std::span{"xyz", 3}));
  EXPECT_EQ(written(out), wire({5, 0x68656c6c, 0x6f000000, 0, 4, 0x666f7572, 0x78797a00}));
}

TEST(XdrWriter, WritesNothingOfWhatDoesNotFitAndTheOverflowSticks) {
  Octets memory(10, std::byte{0xee});
  XdrWriter out{memory};
  out.u32(1);
  out.u64(2);
  EXPECT_FALSE(out.ok());
  out.u32(3);
  EXPECT_FALSE(out.ok());
  EXPECT_EQ(out.size(), 4U);
  EXPECT_EQ(memory[4], std::byte{0xee});
}

TEST(XdrWriter, CountsThePadWhenAskingWhetherAnItemFits) {
  for (const std::size_t room : {4U, 8U, 11U}) {
    Octets memory(room, std::byte{0xee});
    XdrWriter out{memory};
    out.string("hello");
    EXPECT_FALSE(out.ok());
    EXPECT_EQ(out.size(), 0U);
    EXPECT_EQ(memory[0], std::byte{0xee});
  }
  Octets seven(7);
  XdrWriter out{seven};
  out.opaque_fixed(std::as_bytes(std::span{"hello", 5}));
  EXPECT_FALSE(out.ok());
}

TEST(XdrWriter, AWordCanBePatchedLater) {
  Octets memory(12);
  XdrWriter out{memory};
  const std::size_t count = out.reserve_u32();
  out.u32(7);
  out.patch_u32(count, 2);
  EXPECT_EQ(written(out), wire({2, 7}));
}

TEST(XdrWriter, PatchingAfterAnOverflowIsHarmless) {
  Octets memory(4, std::byte{0xee});
  XdrWriter out{memory};
  out.u32(9);
  const std::size_t at = out.reserve_u32();
  EXPECT_FALSE(out.ok());
  out.patch_u32(at, 5);
  EXPECT_EQ(memory, wire({9}));
  XdrWriter empty{std::span<std::byte>{}};
  empty.patch_u32(empty.reserve_u32(), 1);
  EXPECT_FALSE(empty.ok());
}

TEST(XdrWriter, ReserveLeavesRoomAndZeroesThePad) {
  Octets memory(12, std::byte{0xee});
  XdrWriter out{memory};
  std::byte* place = out.reserve(6);
  ASSERT_NE(place, nullptr);
  std::memcpy(place, "abcdef", 6);
  EXPECT_EQ(written(out), wire({0x61626364, 0x65660000}));
  EXPECT_EQ(out.reserve(5), nullptr);
  EXPECT_FALSE(out.ok());
}

TEST(XdrWriter, GoesOnInOtherMemory) {
  Octets memory(8);
  Octets larger(16);
  XdrWriter out{memory};
  out.u64(0x0102030405060708ULL);
  out.move_to(larger);
  EXPECT_EQ(out.room(), 8U);
  out.u32(9);
  EXPECT_EQ(written(out), wire({0x01020304, 0x05060708, 9}));
  out.move_to(memory);
  EXPECT_FALSE(out.ok());
}

TEST(XdrWriter, WhatItWritesTheReaderReads) {
  Octets memory(64);
  XdrWriter out{memory};
  out.u64(1ULL << 40);
  out.string("name");
  out.boolean(true);
  out.opaque(wire({1, 2}));
  XdrReader in{out.written()};
  EXPECT_EQ(in.u64(), 1ULL << 40);
  EXPECT_EQ(in.string(16), "name");
  EXPECT_TRUE(in.boolean());
  EXPECT_EQ(in.opaque(8).size(), 8U);
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.remaining(), 0U);
}

TEST(XdrWriter, WhatWasCutIsGoneAndSoIsTheOverflow) {
  std::array<std::byte, 8> out{};
  XdrWriter writer(out);
  writer.u32(1);
  const std::size_t mark = writer.size();
  writer.u64(2);
  EXPECT_FALSE(writer.ok());
  writer.cut(mark);
  EXPECT_TRUE(writer.ok());
  EXPECT_EQ(writer.size(), 4U);
  writer.u32(3);
  EXPECT_TRUE(writer.ok());
  writer.cut(9);  // more than there is
  EXPECT_EQ(writer.size(), 8U);
  EXPECT_EQ(load_be32(out.data() + 4), 3U);
}

}  // namespace
}  // namespace rodeo
