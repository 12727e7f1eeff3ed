// SPDX-License-Identifier: Apache-2.0
#include "engine/read_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "engine/golden_messages.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

ReadChunks grouped(std::initializer_list<std::pair<std::uint32_t, std::uint32_t>> position_and_length) {
  ChunkLists lists;
  std::uint32_t handle = 0;
  for (const auto& [position, length] : position_and_length) {
    EXPECT_TRUE(lists.add_read(position, {++handle, length, 0}));
  }
  ReadChunks chunks;
  group_read_chunks(lists, chunks);
  return chunks;
}

std::vector<unsigned> segments(const ReadChunks& chunks, std::size_t index) {
  const auto order = chunks.segments_of(chunks.all()[index]);
  return {order.begin(), order.end()};
}

void expect_piece(const StreamPiece& piece, PieceKind kind, std::uint32_t position, std::uint32_t length,
                  std::uint32_t source) {
  EXPECT_EQ(piece.kind, kind);
  EXPECT_EQ(piece.position, position);
  EXPECT_EQ(piece.length, length);
  EXPECT_EQ(piece.source, source);
}

TEST(ReadChunks, GroupInterleavedPositionsKeepingListOrder) {
  proves("ENG-RD-1", "R8166-3.4.5-4");
  const ReadChunks chunks = grouped({{200, 8}, {104, 4}, {200, 16}, {104, 12}});
  ASSERT_EQ(chunks.count, 2U);
  EXPECT_EQ(chunks.all()[0].position, 104U);
  EXPECT_EQ(chunks.all()[0].length, 16U);
  EXPECT_EQ(segments(chunks, 0), (std::vector<unsigned>{1, 3}));
  EXPECT_EQ(chunks.all()[1].position, 200U);
  EXPECT_EQ(chunks.all()[1].length, 24U);
  EXPECT_EQ(segments(chunks, 1), (std::vector<unsigned>{0, 2}));
}

TEST(ReadChunks, SegmentsOfOneChunkNeedNotBeAligned) {
  proves("R8166-3.4.5-3", "R8166-3.4-5");
  const ReadChunks chunks = grouped({{104, 5}, {104, 3}, {104, 8187}});
  ASSERT_EQ(chunks.count, 1U);
  EXPECT_EQ(chunks.all()[0].length, 8195U);
  EXPECT_EQ(segments(chunks, 0), (std::vector<unsigned>{0, 1, 2}));
}

TEST(ReadChunks, TellThePositionZeroChunkFromDataChunks) {
  proves("R8166-3.5-4");
  const ReadChunks chunks = grouped({{4980, 65536}, {0, 4000}, {0, 1000}});
  EXPECT_TRUE(chunks.has_position_zero());
  EXPECT_EQ(chunks.position_zero_bytes(), 5000U);
  ASSERT_EQ(chunks.data().size(), 1U);
  EXPECT_EQ(chunks.data()[0].position, 4980U);
  EXPECT_FALSE(grouped({{104, 4}}).has_position_zero());
  EXPECT_FALSE(grouped({}).has_position_zero());
  EXPECT_EQ(grouped({{104, 4}}).position_zero_bytes(), 0U);
}

TEST(ReadChunks, HoldAsManySegmentsAsTheListAndSortThem) {
  proves("ENG-RD-1");
  ChunkLists lists;
  for (std::uint32_t i = 0; i < kMaxReadSegments; ++i) {
    ASSERT_TRUE(lists.add_read((static_cast<std::uint32_t>(kMaxReadSegments) - i) * 8, {i, 4, 0}));
  }
  ReadChunks chunks;
  group_read_chunks(lists, chunks);
  ASSERT_EQ(chunks.count, kMaxReadSegments);
  EXPECT_TRUE(std::ranges::is_sorted(chunks.all(), {}, &ReadChunk::position));
  EXPECT_EQ(segments(chunks, 0), (std::vector<unsigned>{kMaxReadSegments - 1}));
}

TEST(StreamLayout, OfAMessageWithoutChunksIsThePayloadItself) {
  StreamLayout layout;
  ASSERT_EQ(plan_stream(grouped({}), 40, 40, layout), HeaderOutcome::kOk);
  EXPECT_EQ(layout.total, 40U);
  ASSERT_EQ(layout.count, 1U);
  expect_piece(layout.pieces[0], PieceKind::kReduced, 0, 40, 0);
}

TEST(StreamLayout, SuppliesThePadThatAChunkLeftOut) {  // E3, 104 + 8195 + 1 = 8300
  proves("R8166-3.4.5-1", "ENG-RD-3");
  StreamLayout layout;
  ASSERT_EQ(plan_stream(grouped({{104, 8195}}), 104, 64, layout), HeaderOutcome::kOk);
  EXPECT_EQ(layout.total, 8300U);
  ASSERT_EQ(layout.count, 3U);
  expect_piece(layout.pieces[0], PieceKind::kReduced, 0, 104, 0);
  expect_piece(layout.pieces[1], PieceKind::kChunk, 104, 8195, 0);
  expect_piece(layout.pieces[2], PieceKind::kPad, 8299, 1, 0);
}

TEST(StreamLayout, SuppliesNoPadWhenTheChunkHasIt) {  // E3 variant
  proves("R8166-3.4.5-11");
  StreamLayout layout;
  ASSERT_EQ(plan_stream(grouped({{104, 8192}, {104, 4}}), 104, 64, layout), HeaderOutcome::kOk);
  EXPECT_EQ(layout.total, 8300U);
  ASSERT_EQ(layout.count, 2U);
}

TEST(StreamLayout, CountsThePadOfEarlierChunksInLaterPositions) {  // first chunk of length 5
  proves("ENG-RD-3");
  StreamLayout layout;
  ASSERT_EQ(plan_stream(grouped({{104, 5}, {116, 8}}), 120, 64, layout), HeaderOutcome::kOk);
  EXPECT_EQ(layout.total, 120U + 8 + 8);
  ASSERT_EQ(layout.count, 6U);
  expect_piece(layout.pieces[1], PieceKind::kChunk, 104, 5, 0);
  expect_piece(layout.pieces[2], PieceKind::kPad, 109, 3, 0);
  expect_piece(layout.pieces[3], PieceKind::kReduced, 112, 4, 104);
  expect_piece(layout.pieces[4], PieceKind::kChunk, 116, 8, 1);
  expect_piece(layout.pieces[5], PieceKind::kReduced, 124, 12, 108);
}

TEST(StreamLayout, SplicesDataIntoAPositionZeroChunk) {  // E4, total 70536
  proves("ENG-MX-2");
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_call_header(golden::wire(golden::kE4Combined), header, lists), HeaderOutcome::kOk);
  ReadChunks chunks;
  group_read_chunks(lists, chunks);
  StreamLayout layout;
  ASSERT_EQ(plan_stream(chunks, chunks.position_zero_bytes(), 40, layout), HeaderOutcome::kOk);
  EXPECT_EQ(layout.total, 70536U);
  ASSERT_EQ(layout.count, 3U);
  expect_piece(layout.pieces[0], PieceKind::kReduced, 0, 4980, 0);
  expect_piece(layout.pieces[1], PieceKind::kChunk, 4980, 65536, 1);
  expect_piece(layout.pieces[2], PieceKind::kReduced, 70516, 20, 4980);
}

TEST(StreamLayout, RefusesPositionsThatMakeNoSense) {
  proves("ENG-RD-2");
  StreamLayout layout;
  EXPECT_EQ(plan_stream(grouped({{60, 8}}), 104, 64, layout), HeaderOutcome::kPositionInRpcHeader);
  EXPECT_EQ(plan_stream(grouped({{64, 8}}), 104, 64, layout), HeaderOutcome::kOk);
  EXPECT_EQ(plan_stream(grouped({{108, 8}}), 104, 64, layout), HeaderOutcome::kPositionBeyondEnd);
  EXPECT_EQ(plan_stream(grouped({{104, 8}}), 104, 64, layout), HeaderOutcome::kOk);
  EXPECT_EQ(plan_stream(grouped({{80, 16}, {92, 4}}), 104, 64, layout), HeaderOutcome::kPositionOverlap);
  EXPECT_EQ(plan_stream(grouped({{80, 16}, {96, 4}}), 104, 64, layout), HeaderOutcome::kOk);
  EXPECT_EQ(plan_stream(grouped({{80, 13}, {92, 4}}), 104, 64, layout), HeaderOutcome::kPositionOverlap);
  EXPECT_EQ(plan_stream(grouped({{80, 16}, {124, 4}}), 104, 64, layout), HeaderOutcome::kPositionBeyondEnd);
  EXPECT_EQ(plan_stream(grouped({{0xfffffffc, 4}}), 104, 64, layout), HeaderOutcome::kPositionBeyondEnd);
  for (const auto outcome : {HeaderOutcome::kPositionInRpcHeader, HeaderOutcome::kPositionBeyondEnd,
                             HeaderOutcome::kPositionOverlap, HeaderOutcome::kSegmentOverflow}) {
    EXPECT_EQ(answer_for(outcome), Answer::kErrChunk);
  }
}

TEST(StreamLayout, RefusesStreamsThatPositionsCannotAddress) {
  proves("ENG-SEG-2");
  StreamLayout layout;
  EXPECT_EQ(plan_stream(grouped({{104, 0xffffff00}}), 4096, 64, layout), HeaderOutcome::kSegmentOverflow);
  EXPECT_EQ(plan_stream(grouped({{104, 0xfffffffd}}), 104, 64, layout), HeaderOutcome::kSegmentOverflow);
}

TEST(StreamLayout, ChecksTheRpcHeaderAgainOnceItIsKnown) {
  proves("ENG-RD-2");
  const ReadChunks chunks = grouped({{0, 5000}, {60, 8}});
  StreamLayout layout;
  EXPECT_EQ(plan_stream(chunks, 5000, 40, layout), HeaderOutcome::kOk);
  EXPECT_FALSE(data_after_header(chunks, 64));
  EXPECT_TRUE(data_after_header(chunks, 60));
  EXPECT_TRUE(data_after_header(grouped({{0, 5000}}), 64));
}

TEST(StreamLayout, CoversAnyAcceptedStreamWithoutGapsOrOverlap) {
  proves("ENG-RD-2", "R8166-6.1-6");
  std::mt19937 random{8166};
  const auto below = [&random](unsigned limit) { return static_cast<std::uint32_t>(random() % limit); };
  unsigned accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    ChunkLists lists;
    const std::uint32_t count = below(6);
    for (std::uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(lists.add_read(below(40) * 4, {i, below(20), 0}));
    }
    ReadChunks chunks;
    group_read_chunks(lists, chunks);
    StreamLayout layout;
    const std::uint32_t reduced = chunks.has_position_zero() ? chunks.position_zero_bytes() : below(160);
    if (plan_stream(chunks, reduced, 0, layout) != HeaderOutcome::kOk) continue;
    ++accepted;
    std::uint64_t position = 0;
    std::uint64_t taken = 0;
    std::uint64_t data = 0;
    for (const StreamPiece& piece : layout.all()) {
      ASSERT_EQ(piece.position, position);
      ASSERT_NE(piece.length, 0U);
      if (piece.kind == PieceKind::kReduced) {
        ASSERT_EQ(piece.source, taken);
        taken += piece.length;
      } else if (piece.kind == PieceKind::kChunk) {
        ASSERT_EQ(chunks.all()[piece.source].position, position);
        ASSERT_EQ(chunks.all()[piece.source].length, piece.length);
        data += piece.length;
      } else {
        ASSERT_LT(piece.length, 4U);
      }
      position += piece.length;
    }
    ASSERT_EQ(position, layout.total);
    ASSERT_EQ(taken, reduced);
    ASSERT_EQ(data, lists.read_total - chunks.position_zero_bytes());
  }
  EXPECT_GT(accepted, 1000U);
}

}  // namespace
}  // namespace rodeo
