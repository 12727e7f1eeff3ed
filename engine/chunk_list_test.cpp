// SPDX-License-Identifier: Apache-2.0
#include "engine/chunk_list.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "engine/golden_messages.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::Octets;
using golden::wire;

constexpr Segment kA{0x1a01, 8192, 0x7f0012340000};
constexpr Segment kB{0x1b02, 4096, 0x7f0012378000};

HeaderOutcome decode(const Octets& octets, ChunkLists& lists) {
  std::size_t consumed = 0;
  const auto outcome = decode_chunk_lists(octets, lists, consumed);
  if (outcome == HeaderOutcome::kOk) {
    EXPECT_EQ(consumed, octets.size());
  }
  return outcome;
}

HeaderOutcome decode(std::initializer_list<std::uint32_t> words) {
  ChunkLists lists;
  return decode(wire(words), lists);
}

Octets encode(const ChunkLists& lists) {
  Octets out(header_size(lists) - 16);
  EXPECT_EQ(encode_chunk_lists(out.data(), lists), out.size());
  return out;
}

TEST(ChunkList, AbsentListsAreThreeZeroWords) {  // E9
  ChunkLists lists;
  ASSERT_EQ(decode(wire({0, 0, 0}), lists), HeaderOutcome::kOk);
  EXPECT_TRUE(lists.empty());
  EXPECT_EQ(header_size(lists), 28U);
  EXPECT_EQ(encode(lists), wire({0, 0, 0}));
}

TEST(ChunkList, SegmentsAreHandleLengthOffset) {
  proves("R8166-3.4-4");
  ChunkLists lists;
  const Octets octets = wire({0, 0, 1, 1, 0x01020304, 0x05060708, 0x090a0b0c, 0x0d0e0f10});
  ASSERT_EQ(decode(octets, lists), HeaderOutcome::kOk);
  ASSERT_EQ(lists.reply().size(), 1U);
  EXPECT_EQ(lists.reply()[0], (Segment{0x01020304, 0x05060708, 0x090a0b0c0d0e0f10}));
  EXPECT_EQ(encode(lists), octets);
}

TEST(ChunkList, HandlesOf32AndOffsetsOf64BitsComeThroughUnchanged) {
  proves("R8166-2.3-1", "ENG-SEG-1");
  ChunkLists lists;
  const Octets octets = wire({0, 0, 1, 2, 0xffffffff, 0, 0xffffffff, 0xffffffff, 0, 1, 0, 0});
  ASSERT_EQ(decode(octets, lists), HeaderOutcome::kOk);
  EXPECT_EQ(lists.reply()[0], (Segment{0xffffffff, 0, 0xffffffffffffffff}));
  EXPECT_EQ(lists.reply()[1], (Segment{0, 1, 0}));
  EXPECT_EQ(encode(lists), octets);
}

TEST(ChunkList, ReadListKeepsItsOrder) {  // E9
  proves("R8166-4.3.1-1");
  ChunkLists lists;
  const Octets octets = wire({1, 104, 1, 5, 0, 9, 1, 200, 2, 6, 0, 8, 1, 104, 3, 7, 0, 7, 0, 0, 0});
  ASSERT_EQ(decode(octets, lists), HeaderOutcome::kOk);
  ASSERT_EQ(lists.reads().size(), 3U);
  EXPECT_EQ(lists.reads()[0], (ReadSegment{104, {1, 5, 9}}));
  EXPECT_EQ(lists.reads()[1], (ReadSegment{200, {2, 6, 8}}));
  EXPECT_EQ(lists.reads()[2], (ReadSegment{104, {3, 7, 7}}));
  EXPECT_EQ(lists.read_total, 18U);
  EXPECT_EQ(header_size(lists), 28U + 24 * 3);
  EXPECT_EQ(encode(lists), octets);
}

TEST(ChunkList, WriteListHoldsSeveralChunks) {  // E9: a 3-segment and a 2-segment chunk
  proves("R8166-3.4.6-1");
  ChunkLists lists;
  const Octets octets = wire({0, 1, 3, 1, 10, 0, 1, 2, 20, 0, 2, 3, 30, 0, 3, 1, 2, 4, 40, 0, 4, 5, 50, 0, 5, 0, 0});
  ASSERT_EQ(decode(octets, lists), HeaderOutcome::kOk);
  ASSERT_EQ(lists.write_chunks().size(), 2U);
  EXPECT_EQ(lists.write_chunks()[0].capacity, 60U);
  EXPECT_EQ(lists.write_chunks()[1].capacity, 90U);
  ASSERT_EQ(lists.write_chunk(1).size(), 2U);
  EXPECT_EQ(lists.write_chunk(1)[1], (Segment{5, 50, 5}));
  EXPECT_EQ(header_size(lists), 28U + (8 + 16 * 3) + (8 + 16 * 2));
  EXPECT_EQ(encode(lists), octets);
}

TEST(ChunkList, EmptyAndUnusedChunksAreToldApart) {  // E9
  proves("R8166-3.4.6-11", "R8166-4.3.2-12");
  ChunkLists lists;
  const Octets octets = wire({0, 1, 1, 7, 64, 0, 0, 1, 0, 1, 1, 8, 0, 0, 0, 0, 0});
  ASSERT_EQ(decode(octets, lists), HeaderOutcome::kOk);
  ASSERT_EQ(lists.write_chunk_count, 3U);
  EXPECT_TRUE(lists.write_chunk(1).empty());
  EXPECT_EQ(lists.write_chunk(2).size(), 1U);
  EXPECT_EQ(lists.write_chunks()[2].capacity, 0U);
  EXPECT_EQ(encode(lists), octets);
}

TEST(ChunkList, ReplyChunkOfNoSegmentsIsPresentWithoutCapacity) {
  proves("ENG-RC-4");
  ChunkLists lists;
  const Octets octets = wire({0, 0, 1, 0});
  ASSERT_EQ(decode(octets, lists), HeaderOutcome::kOk);
  EXPECT_TRUE(lists.reply_present);
  EXPECT_EQ(lists.reply_capacity, 0U);
  EXPECT_EQ(header_size(lists), 28U + 4);
  EXPECT_EQ(encode(lists), octets);
}

TEST(ChunkList, EmptySegmentsInACallAreLegal) {
  proves("ENG-SEG-3");
  ChunkLists lists;
  ASSERT_EQ(decode(wire({0, 1, 3, 1, 0, 0, 1, 2, 4096, 0, 2, 3, 0, 0, 3, 0, 0}), lists), HeaderOutcome::kOk);
  ReturnedLengths returned;
  returned.clear(lists);
  ASSERT_TRUE(returned.fill_write(lists, 0, 100));
  EXPECT_EQ(returned.write[0], 0U);
  EXPECT_EQ(returned.write[1], 100U);
  EXPECT_EQ(returned.write[2], 0U);
}

TEST(ChunkList, DiscriminatorsOtherThanZeroAndOneAreRefused) {
  proves("R8166-4.5.2-1");
  EXPECT_EQ(decode({2, 0, 0}), HeaderOutcome::kBadDiscriminator);
  EXPECT_EQ(decode({0, 0xffffffff, 0}), HeaderOutcome::kBadDiscriminator);
  EXPECT_EQ(decode({0, 0, 0x01000000}), HeaderOutcome::kBadDiscriminator);
  EXPECT_EQ(decode({1, 4, 1, 1, 0, 0, 3, 0, 0}), HeaderOutcome::kBadDiscriminator);
}

TEST(ChunkList, CountsAreCheckedAgainstWhatRemainsBeforeLooping) {
  proves("R8166-4.5.2-1");
  EXPECT_EQ(decode({0, 1, 0xffffffff, 0}), HeaderOutcome::kTruncated);
  EXPECT_EQ(decode({0, 1, 0x10000000, 0, 0, 0, 0}), HeaderOutcome::kTruncated);  // 16 * count wraps in 32 bits
  EXPECT_EQ(decode({0, 0, 1, 2, 1, 1, 0, 0}), HeaderOutcome::kTruncated);
}

TEST(ChunkList, EveryTruncationIsNoticed) {
  proves("R8166-4.5.2-1");
  const Octets whole = wire({1, 104, 1, 5, 0, 9, 0, 1, 1, 7, 64, 0, 0, 0, 1, 1, 8, 64, 0, 0});
  ChunkLists lists;
  ASSERT_EQ(decode(whole, lists), HeaderOutcome::kOk);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_EQ(decode(golden::cut(whole, length), lists), HeaderOutcome::kTruncated) << length;
  }
}

TEST(ChunkList, OffsetPlusLengthMustNotOverflow) {
  proves("ENG-SEG-2");
  EXPECT_EQ(decode({0, 0, 1, 1, 7, 0x1000, 0xffffffff, 0xffffff00}), HeaderOutcome::kSegmentOverflow);
  EXPECT_EQ(decode({0, 1, 1, 7, 0x1000, 0xffffffff, 0xffffff00, 0, 0}), HeaderOutcome::kSegmentOverflow);
  EXPECT_EQ(decode({1, 4, 7, 0x1000, 0xffffffff, 0xffffff00, 0, 0, 0}), HeaderOutcome::kSegmentOverflow);
}

TEST(ChunkList, TotalsMustFit32Bits) {
  proves("ENG-SEG-2");
  EXPECT_EQ(decode({0, 0, 1, 2, 7, 0xffffffff, 0, 0, 7, 1, 0, 0}), HeaderOutcome::kSegmentOverflow);
  EXPECT_EQ(decode({0, 0, 1, 2, 7, 0xffffffff, 0, 0, 7, 0, 0, 0}), HeaderOutcome::kOk);
  EXPECT_EQ(decode({0, 1, 2, 7, 0x80000000, 0, 0, 7, 0x80000000, 0, 0, 0, 0}), HeaderOutcome::kSegmentOverflow);
  EXPECT_EQ(decode({1, 4, 7, 0x80000000, 0, 0, 1, 8, 7, 0x80000000, 0, 0, 0, 0, 0}), HeaderOutcome::kSegmentOverflow);
}

TEST(ChunkList, ListsBeyondOurCapacityAreTooComplex) {
  proves("R8267-6.4-9");
  const auto repeated = [](std::size_t count, std::vector<std::uint32_t> item, std::vector<std::uint32_t> before,
                           std::vector<std::uint32_t> after) {
    std::vector<std::uint32_t> words = std::move(before);
    for (std::size_t i = 0; i < count; ++i) words.insert(words.end(), item.begin(), item.end());
    words.insert(words.end(), after.begin(), after.end());
    return wire(words);
  };
  ChunkLists lists;
  EXPECT_EQ(decode(repeated(kMaxReadSegments, {1, 4, 7, 8, 0, 0}, {}, {0, 0, 0}), lists), HeaderOutcome::kOk);
  EXPECT_EQ(decode(repeated(kMaxReadSegments + 1, {1, 4, 7, 8, 0, 0}, {}, {0, 0, 0}), lists),
            HeaderOutcome::kChunkListTooComplex);
  EXPECT_EQ(decode(repeated(kMaxWriteChunks, {1, 0}, {0}, {0, 0}), lists), HeaderOutcome::kOk);
  EXPECT_EQ(decode(repeated(kMaxWriteChunks + 1, {1, 0}, {0}, {0, 0}), lists), HeaderOutcome::kChunkListTooComplex);
  EXPECT_EQ(decode(repeated(64, {7, 8, 0, 0}, {0, 1, 64}, {0, 0}), lists), HeaderOutcome::kOk);
  EXPECT_EQ(decode(repeated(65, {7, 8, 0, 0}, {0, 1, 65}, {0, 0}), lists), HeaderOutcome::kChunkListTooComplex);
  EXPECT_EQ(decode(repeated(33, {7, 8, 0, 0}, {0, 1, 32, 7, 8, 0, 0, 7, 8, 0, 0}, {0, 0}), lists),
            HeaderOutcome::kBadDiscriminator);
  EXPECT_EQ(decode(repeated(64, {7, 8, 0, 0}, {0, 0, 1, 64}, {}), lists), HeaderOutcome::kOk);
  EXPECT_EQ(decode(repeated(65, {7, 8, 0, 0}, {0, 0, 1, 65}, {}), lists), HeaderOutcome::kChunkListTooComplex);
  EXPECT_EQ(decode(repeated(1000, {1, 4, 7, 8, 0, 0}, {}, {0, 0, 0}), lists), HeaderOutcome::kChunkListTooComplex);
}

TEST(ChunkList, WriteSegmentsOfAllChunksShareOneCapacity) {
  proves("R8267-6.4-9");
  std::vector<std::uint32_t> words = {0};
  for (std::uint32_t chunk = 0; chunk < 2; ++chunk) {
    words.insert(words.end(), {1, 40});
    for (std::uint32_t i = 0; i < 40; ++i) words.insert(words.end(), {7, 8, 0, 0});
  }
  words.insert(words.end(), {0, 0});
  ChunkLists lists;
  EXPECT_EQ(decode(wire(words), lists), HeaderOutcome::kChunkListTooComplex);
}

TEST(ChunkList, FortyReadSegmentsFitTheSmallestInlineHeader) {
  proves("ENG-SEG-4");
  ChunkLists lists;
  for (std::uint32_t i = 0; i < 40; ++i) ASSERT_TRUE(lists.add_read(104, {i + 1, 4096, i * 4096ULL}));
  const Octets octets = encode(lists);
  EXPECT_LE(octets.size() + 16, 1024U);
  ChunkLists decoded;
  ASSERT_EQ(decode(octets, decoded), HeaderOutcome::kOk);
  EXPECT_EQ(decoded.read_count, 40U);
}

TEST(ChunkList, AllPresenceCombinationsRoundTrip) {
  proves("R8166-4.2.4-2");
  for (unsigned mask = 0; mask < 8; ++mask) {
    ChunkLists lists;
    if (mask & 1U) {
      ASSERT_TRUE(lists.add_read(104, kA));
    }
    if (mask & 2U) {
      ASSERT_TRUE(lists.add_write_chunk(std::array{kA, kB}));
    }
    if (mask & 4U) {
      ASSERT_TRUE(lists.set_reply(std::array{kB}));
    }
    const Octets octets = encode(lists);
    ChunkLists decoded;
    ASSERT_EQ(decode(octets, decoded), HeaderOutcome::kOk) << mask;
    EXPECT_EQ(encode(decoded), octets) << mask;
    ChunkListShape shape;
    ASSERT_TRUE(scan_chunk_lists(octets, shape));
    EXPECT_EQ(shape.reads_present, (mask & 1U) != 0);
    EXPECT_EQ(shape.writes_present, (mask & 2U) != 0);
    EXPECT_EQ(shape.reply_present, (mask & 4U) != 0);
    EXPECT_EQ(shape.consumed, octets.size());
  }
}

TEST(ChunkList, ClearForgetsWhatWasDecodedBefore) {
  ChunkLists lists;
  ASSERT_TRUE(lists.add_read(104, kA));
  ASSERT_TRUE(lists.add_write_chunk(std::array{kA}));
  ASSERT_TRUE(lists.set_reply(std::array{kB}));
  ASSERT_EQ(decode(wire({0, 0, 0}), lists), HeaderOutcome::kOk);
  EXPECT_TRUE(lists.empty());
  EXPECT_EQ(lists.read_total, 0U);
  EXPECT_EQ(lists.reply_capacity, 0U);
  EXPECT_EQ(lists.write_segment_count, 0U);
}

TEST(ChunkList, BuildersRefuseWhatTheDecoderWouldRefuse) {
  ChunkLists lists;
  EXPECT_FALSE(lists.add_read(4, {1, 0x1000, 0xffffffffffffff00}));
  EXPECT_FALSE(lists.add_write_chunk(std::array{Segment{1, 0xffffffff, 0}, Segment{1, 1, 0}}));
  EXPECT_FALSE(lists.set_reply(std::vector<Segment>(kMaxReplySegments + 1, kA)));
  EXPECT_TRUE(lists.empty());
  for (std::size_t i = 0; i < kMaxReadSegments; ++i) ASSERT_TRUE(lists.add_read(4, {1, 1, 0}));
  EXPECT_FALSE(lists.add_read(4, {1, 1, 0}));
  for (std::size_t i = 0; i < kMaxWriteChunks; ++i) ASSERT_TRUE(lists.add_write_chunk({}));
  EXPECT_FALSE(lists.add_write_chunk({}));
}

TEST(ReturnedLengths, FillSegmentsInOrder) {
  proves("R8166-3.4.6-3", "R8166-3.4.6-5", "R8166-4.3.3-6");
  ChunkLists call;
  ASSERT_TRUE(call.add_write_chunk(std::array{kA, kB}));
  ASSERT_TRUE(call.set_reply(std::array{Segment{1, 100, 0}, Segment{2, 4900, 0}, Segment{3, 50, 0}}));
  ReturnedLengths returned;
  returned.clear(call);
  ASSERT_TRUE(returned.fill_write(call, 0, 9001));
  EXPECT_EQ(returned.write[0], 8192U);
  EXPECT_EQ(returned.write[1], 809U);
  ASSERT_TRUE(returned.fill_reply(call, 5000));
  EXPECT_EQ(returned.reply[0], 100U);
  EXPECT_EQ(returned.reply[1], 4900U);
  EXPECT_EQ(returned.reply[2], 0U);
}

TEST(ReturnedLengths, AChunkTooSmallIsRefusedBeforeAnythingChanges) {
  proves("ENG-WR-4", "ENG-RC-1");
  ChunkLists call;
  ASSERT_TRUE(call.add_write_chunk(std::array{Segment{1, 100, 0}}));
  ASSERT_TRUE(call.set_reply(std::array{Segment{1, 1000, 0}}));
  ReturnedLengths returned;
  returned.clear(call);
  EXPECT_FALSE(returned.fill_write(call, 0, 200));
  EXPECT_FALSE(returned.fill_write(call, 1, 0));
  EXPECT_FALSE(returned.fill_reply(call, 5000));
  EXPECT_EQ(returned.write[0], 0U);
  EXPECT_EQ(returned.reply[0], 0U);
}

TEST(ReturnedLengths, EncodeAsACopyOfTheCallWithoutItsReadList) {
  proves("R8166-3.4.6-4", "R8166-4.3.1-3", "R8166-4.3.3-4");
  ChunkLists call;
  ASSERT_TRUE(call.add_read(104, kA));
  ASSERT_TRUE(call.add_write_chunk(std::array{kA, kB}));
  ASSERT_TRUE(call.add_write_chunk({}));
  ASSERT_TRUE(call.set_reply(std::array{kB}));
  ReturnedLengths returned;
  returned.clear(call);
  ASSERT_TRUE(returned.fill_write(call, 0, 8193));
  Octets out(reply_header_size(call) - 16);
  ASSERT_EQ(encode_returned_lists(out.data(), call, returned), out.size());
  EXPECT_EQ(out, wire({0,          1, 2, 0x1a01, 8192, 0x7f00, 0x12340000, 0x1b02, 1,      0x7f00,
                       0x12378000, 1, 0, 0,      1,    1,      0x1b02,     0,      0x7f00, 0x12378000}));
}

TEST(ReturnedLists, MustBeTheOnesOffered) {
  proves("ENG-WR-1");
  ChunkLists call;
  ASSERT_TRUE(call.add_write_chunk(std::array{kA, kB}));
  ASSERT_TRUE(call.set_reply(std::array{kB}));
  const auto verdict = [&call](std::span<const Segment> write, std::span<const Segment> reply) {
    ChunkLists returned;
    EXPECT_TRUE(returned.add_write_chunk(write));
    EXPECT_TRUE(returned.set_reply(reply));
    return check_returned_lists(call, returned);
  };
  constexpr Segment kShorter{kB.handle, 809, kB.offset};
  constexpr Segment kLonger{kB.handle, kB.length + 1, kB.offset};
  constexpr Segment kMoved{kB.handle, 1, kB.offset + 8};
  constexpr Segment kForeign{kB.handle + 1, 1, kB.offset};
  EXPECT_EQ(verdict(std::array{kA, kShorter}, std::array{kB}), HeaderOutcome::kOk);
  EXPECT_EQ(verdict(std::array{kA, kLonger}, std::array{kB}), HeaderOutcome::kReturnedListMismatch);
  EXPECT_EQ(verdict(std::array{kA, kMoved}, std::array{kB}), HeaderOutcome::kReturnedListMismatch);
  EXPECT_EQ(verdict(std::array{kA}, std::array{kB}), HeaderOutcome::kReturnedListMismatch);
  EXPECT_EQ(verdict(std::array{kA, kB}, std::array{kForeign}), HeaderOutcome::kReturnedListMismatch);
  EXPECT_EQ(verdict(std::array{kA, kB}, std::array{kLonger}), HeaderOutcome::kReturnedListMismatch);
}

TEST(ReturnedLists, MayBeMissingButNotAppear) {
  proves("ENG-WR-1", "ENG-RC-3");
  ChunkLists offered;
  ASSERT_TRUE(offered.add_write_chunk(std::array{kA}));
  ASSERT_TRUE(offered.set_reply(std::array{kB}));
  const ChunkLists none;
  EXPECT_EQ(check_returned_lists(offered, none), HeaderOutcome::kOk);
  EXPECT_EQ(check_returned_lists(none, offered), HeaderOutcome::kReturnedListMismatch);
  ChunkLists reply_only;
  ASSERT_TRUE(reply_only.set_reply(std::array{kB}));
  EXPECT_EQ(check_returned_lists(none, reply_only), HeaderOutcome::kReturnedListMismatch);
  ASSERT_TRUE(offered.add_write_chunk(std::array{kB}));
  ChunkLists one_of_two;
  ASSERT_TRUE(one_of_two.add_write_chunk(std::array{kA}));
  EXPECT_EQ(check_returned_lists(offered, one_of_two), HeaderOutcome::kReturnedListMismatch);
}

TEST(OnlyHandle, ExistsWhenAllSegmentsOfAllListsCarryOne) {
  proves("ENG-8797-3");
  ChunkLists call;
  EXPECT_EQ(only_handle(call), std::nullopt);
  ASSERT_TRUE(call.add_read(104, {7, 1, 0}));
  EXPECT_EQ(only_handle(call), 7U);
  ASSERT_TRUE(call.add_write_chunk(std::array{Segment{7, 1, 0}}));
  ASSERT_TRUE(call.set_reply(std::array{Segment{7, 1, 0}}));
  EXPECT_EQ(only_handle(call), 7U);
  ASSERT_TRUE(call.set_reply(std::array{Segment{7, 1, 0}, Segment{8, 0, 0}}));
  EXPECT_EQ(only_handle(call), std::nullopt);
  ChunkLists padded;  // PEER-LNX-C2: the shared handle of a pad segment must not be invalidated
  ASSERT_TRUE(padded.add_write_chunk(std::array{Segment{7, 9001, 0}, Segment{9, 3, 0}}));
  EXPECT_EQ(only_handle(padded), std::nullopt);
}

TEST(HeaderOutcome, EachHasItsOwnName) {
  proves("ENG-RX-5");
  for (std::size_t i = 0; i < kHeaderOutcomeCount; ++i) {
    for (std::size_t j = 0; j < i; ++j) EXPECT_NE(kHeaderOutcomes[i].name, kHeaderOutcomes[j].name);
  }
  EXPECT_EQ(name_of(HeaderOutcome::kBadErrorBody), "bad_error_body");
}

}  // namespace
}  // namespace rodeo
