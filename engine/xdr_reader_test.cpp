// SPDX-License-Identifier: Apache-2.0
#include "engine/xdr_reader.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

#include "engine/golden_messages.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::cut;
using golden::Octets;
using golden::wire;
using Piece = std::span<const std::byte>;

enum class Colour : std::uint32_t { kRed, kGreen, kBlue };

/// Splits a message in two pieces in exact-size memory.
struct Split {
  Split(const Octets& whole, std::size_t at)
      : first(cut(whole, at)), second(whole.begin() + static_cast<std::ptrdiff_t>(at), whole.end()) {
    pieces = {Piece{first}, Piece{second}};
  }
  Octets first;
  Octets second;
  std::array<Piece, 2> pieces;
};

TEST(XdrReader, ReadsIntegersBigEndian) {
  const Octets octets = wire({1, 0xfffffffe, 0x01020304, 0x05060708, 0xffffffff, 0xffffffff});
  XdrReader in{octets};
  EXPECT_EQ(in.u32(), 1U);
  EXPECT_EQ(in.i32(), -2);
  EXPECT_EQ(in.u64(), 0x0102030405060708U);
  EXPECT_EQ(in.position(), 16U);
  EXPECT_EQ(in.i64(), -1);
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.remaining(), 0U);
}

TEST(XdrReader, NeverReadsPastTheEndAndTheErrorSticks) {
  const Octets octets = wire({7, 8});
  XdrReader in{std::span{octets}.first(7)};
  EXPECT_EQ(in.u32(), 7U);
  EXPECT_EQ(in.u32(), 0U);
  EXPECT_FALSE(in.ok());
  EXPECT_EQ(in.remaining(), 0U);
  EXPECT_EQ(in.u64(), 0U);
  EXPECT_TRUE(in.opaque_fixed(4).empty());
  EXPECT_EQ(in.position(), 4U);
  std::array<std::byte, 4> out{};
  EXPECT_FALSE(in.read_into(out));
  EXPECT_FALSE(in.read_into({}));
}

TEST(XdrReader, EmptyMessagesHoldNothing) {
  XdrReader whole{Piece{}};
  EXPECT_EQ(whole.u32(), 0U);
  EXPECT_FALSE(whole.ok());
  XdrReader pieces{std::span<const Piece>{}};
  EXPECT_EQ(pieces.remaining(), 0U);
  EXPECT_TRUE(pieces.ok());
  EXPECT_EQ(pieces.u64(), 0U);
  EXPECT_FALSE(pieces.ok());
}

TEST(XdrReader, BooleansAreZeroOrOne) {
  const Octets octets = wire({0, 1, 2, 1});
  XdrReader in{octets};
  EXPECT_FALSE(in.boolean());
  EXPECT_TRUE(in.boolean());
  EXPECT_TRUE(in.ok());
  EXPECT_FALSE(in.boolean());
  EXPECT_FALSE(in.ok());
  EXPECT_FALSE(in.boolean());
}

TEST(XdrReader, EnumerationsAreBounded) {
  const Octets octets = wire({2, 3});
  XdrReader in{octets};
  EXPECT_EQ(in.enumeration(Colour::kBlue), Colour::kBlue);
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.enumeration(Colour::kBlue), Colour::kRed);
  EXPECT_FALSE(in.ok());
}

TEST(XdrReader, PadContentIsIgnored) {
  proves("R4506-3-1");
  const Octets octets = wire({5, 0x68656c6c, 0x6fdeadbe, 9});
  XdrReader in{octets};
  EXPECT_EQ(in.string(5), "hello");
  EXPECT_EQ(in.u32(), 9U);
  EXPECT_TRUE(in.ok());
}

TEST(XdrReader, AMissingPadIsAnError) {  // everything is a multiple of 4 octets
  proves("R4506-3-1");
  const Octets octets = wire({5, 0x68656c6c, 0x6f000000});
  XdrReader in{std::span{octets}.first(11)};
  EXPECT_TRUE(in.opaque(5).empty());
  EXPECT_FALSE(in.ok());
}

TEST(XdrReader, DeclaredMaximaAreEnforced) {
  proves("R4506-4-1");
  const Octets file_handle = golden::joined(wire({65}), Octets(68));
  XdrReader longer{file_handle};
  EXPECT_TRUE(longer.opaque(64).empty());
  EXPECT_FALSE(longer.ok());
  XdrReader exact{file_handle};
  EXPECT_EQ(exact.opaque(65).size(), 65U);
  EXPECT_TRUE(exact.ok());
  const Octets huge = wire({0xffffffff, 0});
  XdrReader unbounded{huge};
  EXPECT_TRUE(unbounded.string(SIZE_MAX).empty());
  EXPECT_FALSE(unbounded.ok());
  XdrReader wrapping{huge};
  EXPECT_TRUE(wrapping.opaque_fixed(SIZE_MAX).empty());
  EXPECT_FALSE(wrapping.ok());
}

TEST(XdrReader, ReadsTheSameWhereverTheMessageIsSplit) {
  const Octets whole = wire({1, 0x01020304, 0x05060708, 6, 0x61626364, 0x65660000, 1, 0x31323300, 42});
  for (std::size_t at = 0; at <= whole.size(); ++at) {
    const Split split{whole, at};
    XdrReader in{std::span<const Piece>{split.pieces}};
    EXPECT_EQ(in.remaining(), whole.size());
    EXPECT_TRUE(in.boolean());
    EXPECT_EQ(in.u64(), 0x0102030405060708U);
    std::array<std::byte, 8> scratch;
    EXPECT_EQ(in.string(8, scratch), "abcdef") << at;
    EXPECT_TRUE(in.boolean());
    std::array<std::byte, 3> digits;
    ASSERT_TRUE(in.read_into(digits));
    EXPECT_EQ(digits[2], std::byte{'3'});
    EXPECT_EQ(in.position(), 32U);
    EXPECT_EQ(in.u32(), 42U) << at;
    EXPECT_TRUE(in.ok());
    EXPECT_EQ(in.remaining(), 0U);
  }
}

TEST(XdrReader, ReturnsAViewWhenAnItemFillsItsOwnPiece) {
  const Octets before = wire({5});
  const Octets data = wire({0x68656c6c, 0x6f000000});
  const std::array<std::byte, 3> pad{};
  const Octets after = wire({7});
  const std::array<Piece, 5> pieces = {Piece{before}, Piece{}, Piece{data}.first(5), Piece{pad}, Piece{after}};
  XdrReader in{std::span<const Piece>{pieces}};
  const auto view = in.opaque(5);
  EXPECT_EQ(view.data(), data.data());
  EXPECT_EQ(view.size(), 5U);
  EXPECT_EQ(in.u32(), 7U);
  EXPECT_TRUE(in.ok());
}

TEST(XdrReader, ASplitItemNeedsScratchMemory) {
  const Octets whole = wire({8, 1, 2});
  const Split split{whole, 8};
  XdrReader without{std::span<const Piece>{split.pieces}};
  EXPECT_TRUE(without.opaque(8).empty());
  EXPECT_FALSE(without.ok());
  XdrReader with{std::span<const Piece>{split.pieces}};
  std::array<std::byte, 8> scratch;
  const auto copy = with.opaque(8, scratch);
  EXPECT_EQ(copy.data(), scratch.data());
  EXPECT_TRUE(with.ok());
}

TEST(XdrReader, EveryTruncationOfASplitMessageIsNoticed) {
  const Octets whole = wire({3, 0x61626300, 0, 9});
  for (std::size_t length = 0; length < whole.size(); ++length) {
    for (std::size_t at = 0; at <= length; ++at) {
      const Split split{cut(whole, length), at};
      XdrReader in{std::span<const Piece>{split.pieces}};
      std::array<std::byte, 4> scratch;
      (void)in.opaque(4, scratch);
      (void)in.u64();
      EXPECT_FALSE(in.ok());
    }
  }
}

TEST(XdrReader, SkipPassesOverPiecesButNotTheEnd) {
  const Octets whole = wire({1, 2, 3});
  const Split split{whole, 6};
  XdrReader in{std::span<const Piece>{split.pieces}};
  in.skip(8);
  EXPECT_EQ(in.u32(), 3U);
  EXPECT_TRUE(in.ok());
  in.skip(0);
  EXPECT_TRUE(in.ok());
  in.skip(1);
  EXPECT_FALSE(in.ok());
}

TEST(XdrReader, EndsEarlyUntilItIsExtended) {
  const auto message = wire({1, 2, 3});
  XdrReader in{std::span(message).first(4)};
  EXPECT_EQ(in.u32(), 1U);
  EXPECT_EQ(in.remaining(), 0U);
  in.extend(8);
  EXPECT_EQ(in.position(), 4U);
  EXPECT_EQ(in.u64(), 0x0000000200000003ULL);
  EXPECT_TRUE(in.ok());
  EXPECT_EQ(in.u32(), 0U);
  in.extend(4);  // an error sticks
  EXPECT_FALSE(in.ok());
}

}  // namespace
}  // namespace rodeo
