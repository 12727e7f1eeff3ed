// SPDX-License-Identifier: Apache-2.0
#include "engine/transport_header.h"

#include <gtest/gtest.h>

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "engine/golden_messages.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::cut;
using golden::joined;
using golden::Octets;
using golden::patched;
using golden::wire;

constexpr std::initializer_list<std::uint32_t> kCallPayload = {0x11223344, 0, 2, 100003, 3, 0, 0, 0, 0, 0};

HeaderOutcome as_call(const Octets& octets) {
  TransportHeader header;
  ChunkLists lists;
  return decode_call_header(octets, header, lists);
}
HeaderOutcome as_reply(const Octets& octets) {
  TransportHeader header;
  ChunkLists lists;
  return decode_reply_header(octets, header, lists);
}
/// A Call of XID 0x11223344 with the given procedure and lists, followed by a NULL Call.
HeaderOutcome call_with(std::uint32_t proc, std::initializer_list<std::uint32_t> lists) {
  const Octets head = joined(wire({0x11223344, 1, 32, proc}), wire(lists));
  return as_call(proc == 1 ? head : joined(head, wire(kCallPayload)));
}

TEST(TransportHeader, FixedWordsAreAtOffsets0To12) {
  proves("R8166-4.2-1", "R8166-4-1");
  std::array<std::byte, 16> out;
  store_fixed_words(out.data(), 0x01020304, 0x05060708, 0x090a0b0c, Proc::kError);
  EXPECT_EQ(Octets(out.begin(), out.end()), wire({0x01020304, 0x05060708, 0x090a0b0c, 4}));
  EXPECT_EQ(load_be32(out.data() + kXidOffset), 0x01020304U);
  EXPECT_EQ(load_be32(out.data() + kVersOffset), 0x05060708U);
  EXPECT_EQ(load_be32(out.data() + kCreditOffset), 0x090a0b0cU);
  EXPECT_EQ(load_be32(out.data() + kProcOffset), 4U);
}

TEST(TransportHeader, EveryGoldenMessageDecodesAndEncodesBack) {  // E1..E8 byte for byte
  proves("R8166-4-1", "R8166-3.2-1");
  for (const auto& message : golden::kMessages) {
    SCOPED_TRACE(message.name);
    const Octets octets = wire(message.words);
    TransportHeader header;
    ChunkLists lists;
    const auto outcome = message.kind == golden::Kind::kCall ? decode_call_header(octets, header, lists)
                                                             : decode_reply_header(octets, header, lists);
    ASSERT_EQ(outcome, HeaderOutcome::kOk) << name_of(outcome);
    EXPECT_EQ(header.xid, message.words[0]);
    EXPECT_EQ(header.vers, message.words[1]);
    EXPECT_EQ(header.credit, message.words[2]);
    EXPECT_EQ(static_cast<std::uint32_t>(header.proc), message.words[3]);
    EXPECT_EQ(header.header_bytes, message.header_bytes);
    Octets out(message.header_bytes);
    std::size_t written = 0;
    if (message.kind != golden::Kind::kError) {
      EXPECT_EQ(header_size(lists), message.header_bytes);
      written = encode_header(out, header.xid, header.credit, header.proc, lists);
    } else if (header.rdma_err == RdmaErr::kVers) {
      written = encode_err_vers(out.data(), header.xid, header.vers, header.credit);
    } else {
      written = encode_err_chunk(out.data(), header.xid, header.vers, header.credit);
    }
    EXPECT_EQ(written, out.size());
    EXPECT_EQ(out, cut(octets, message.header_bytes));
  }
}

TEST(TransportHeader, WriteListOfE2DecodesToItsSegments) {
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_call_header(wire(golden::kE2Call), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(header.credit, 128U);
  ASSERT_EQ(lists.write_chunk_count, 1U);
  EXPECT_EQ(lists.write_chunks()[0].capacity, 12288U);
  EXPECT_EQ(lists.write_chunk(0)[0], (Segment{0x1a01, 8192, 0x7f0012340000}));
  EXPECT_EQ(lists.write_chunk(0)[1], (Segment{0x1b02, 4096, 0x7f0012378000}));
}

TEST(TransportHeader, ReadListsOfE3AndE4DecodeToTheirSegments) {
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_call_header(wire(golden::kE3Call), header, lists), HeaderOutcome::kOk);
  ASSERT_EQ(lists.read_count, 1U);
  EXPECT_EQ(lists.reads()[0], (ReadSegment{104, {0x2c03, 8195, 0x7f00aa000000}}));
  ASSERT_EQ(decode_call_header(wire(golden::kE4Combined), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(header.proc, Proc::kNomsg);
  EXPECT_EQ(lists.reads()[0], (ReadSegment{0, {0x3d07, 5000, 0x7f0055570000}}));
  EXPECT_EQ(lists.reads()[1], (ReadSegment{4980, {0x3d08, 65536, 0x7f0056000000}}));
}

TEST(TransportHeader, ReplyChunksOfE5DecodeInBothForms) {
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_call_header(wire(golden::kE5Call), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(lists.reply_capacity, 36864U);
  ASSERT_EQ(decode_reply_header(wire(golden::kE5LongReply), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(header.proc, Proc::kNomsg);
  EXPECT_EQ(lists.reply_capacity, 5000U);
  ASSERT_EQ(decode_reply_header(wire(golden::kE5ShortReply), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(lists.reply_capacity, 0U);
  EXPECT_EQ(lists.reply_count, 2U);
}

TEST(TransportHeader, RepliesAreMadeFromTheCallsListsAndReturnedLengths) {
  proves("R8166-3.4.6-4", "R8166-4.3.2-8");
  struct Case {
    std::span<const std::uint32_t> call;
    std::span<const std::uint32_t> reply;
    std::size_t write_bytes;
    std::size_t reply_bytes;
    Proc proc;
  };
  for (const Case& c : {Case{golden::kE1Call, golden::kE1Reply, 0, 0, Proc::kMsg},
                        Case{golden::kE2Call, golden::kE2Reply, 9001, 0, Proc::kMsg},
                        Case{golden::kE2Call, golden::kE2Unused, 0, 0, Proc::kMsg},
                        Case{golden::kE3Call, golden::kE3Reply, 0, 0, Proc::kMsg},
                        Case{golden::kE5Call, golden::kE5LongReply, 0, 5000, Proc::kNomsg},
                        Case{golden::kE5Call, golden::kE5ShortReply, 0, 0, Proc::kMsg}}) {
    TransportHeader header;
    ChunkLists lists;
    ASSERT_EQ(decode_call_header(wire(c.call), header, lists), HeaderOutcome::kOk);
    ReturnedLengths returned;
    returned.clear(lists);
    if (lists.write_chunk_count != 0) {
      ASSERT_TRUE(returned.fill_write(lists, 0, c.write_bytes));
    }
    ASSERT_TRUE(returned.fill_reply(lists, c.reply_bytes));
    Octets out(reply_header_size(lists));
    ASSERT_EQ(encode_reply_header(out, header.xid, 64, c.proc, lists, returned), out.size());
    EXPECT_EQ(out, cut(wire(c.reply), out.size()));
    EXPECT_EQ(encode_reply_header(std::span{out}.first(out.size() - 1), header.xid, 64, c.proc, lists, returned), 0U);
  }
}

TEST(TransportHeader, EncodersRefuseABufferThatIsTooSmall) {
  ChunkLists lists;
  Octets out(27);
  EXPECT_EQ(encode_header(out, 1, 1, Proc::kMsg, lists), 0U);
}

TEST(PlainHeader, IsRecognisedAndStoredInOneStep) {  // E1
  proves("R8166-4.2.2-1", "R8166-4.2.3-1");
  const Octets call = wire(golden::kE1Call);
  TransportHeader header;
  ASSERT_TRUE(is_plain_msg(call.data(), call.size(), header));
  EXPECT_EQ(header.xid, 0x11223344U);
  EXPECT_EQ(header.vers, 1U);
  EXPECT_EQ(header.credit, 128U);
  EXPECT_EQ(header.proc, Proc::kMsg);
  EXPECT_EQ(header.header_bytes, 28U);
  Octets out(28);
  store_plain_header(out.data(), 0x11223344, 128);
  EXPECT_EQ(out, cut(call, 28));
}

TEST(PlainHeader, IsNotClaimedForAnythingElse) {
  TransportHeader header;
  const auto plain = [&header](const Octets& o) { return is_plain_msg(o.data(), o.size(), header); };
  const Octets call = wire(golden::kE1Call);
  for (std::size_t length = 0; length < 28; ++length) EXPECT_FALSE(plain(cut(call, length)));
  EXPECT_TRUE(plain(cut(call, 28)));
  for (const std::size_t word : {4U, 12U, 16U, 20U, 24U}) {
    for (unsigned bit = 0; bit < 32; ++bit) {
      EXPECT_FALSE(plain(patched(golden::kE1Call, {{word, golden::kE1Call[word / 4] ^ (1U << bit)}}))) << word;
    }
  }
}

TEST(CallHeader, ShorterThanTheMinimumIsDiscarded) {
  proves("R8166-4.5-1");
  const Octets call = wire(golden::kE1Call);
  for (std::size_t length = 0; length < 28; ++length) EXPECT_EQ(as_call(cut(call, length)), HeaderOutcome::kTooShort);
  // ENG-RX-1: length wins over everything else, also over RDMA_ERROR and a foreign version.
  EXPECT_EQ(as_call(wire(golden::kE7ErrChunk)), HeaderOutcome::kTooShort);
  EXPECT_EQ(as_call(cut(patched(golden::kE1Call, {{4, 2}}), 27)), HeaderOutcome::kTooShort);
  EXPECT_EQ(answer_for(HeaderOutcome::kTooShort), Answer::kDiscard);
}

TEST(CallHeader, RdmaErrorIsDiscardedWhateverItsVersion) {
  proves("R8166-4.2.4-6", "ENG-RX-1", "ENG-RX-7");
  EXPECT_EQ(as_call(wire(golden::kE6ErrVers)), HeaderOutcome::kErrorMessage);
  EXPECT_EQ(as_call(patched(golden::kE6ErrVers, {{4, 1}})), HeaderOutcome::kErrorMessage);
  EXPECT_EQ(answer_for(HeaderOutcome::kErrorMessage), Answer::kDiscard);
}

TEST(CallHeader, OtherVersionsGetErrVers) {
  proves("R8166-4.5.1-1", "R8166-7-1");
  for (const std::uint32_t vers : {0U, 2U, 99U, 0xffffffffU, 0x01000000U}) {
    TransportHeader header;
    ChunkLists lists;
    const Octets octets = patched(golden::kE1Call, {{4, vers}, {12, 7}, {16, 0xdeadbeef}});
    ASSERT_EQ(decode_call_header(octets, header, lists), HeaderOutcome::kBadVersion);
    EXPECT_EQ(header.xid, 0x11223344U);
    EXPECT_EQ(header.vers, vers);
  }
  EXPECT_EQ(as_call(patched(golden::kE1Call, {{4, 2}, {12, 3}})), HeaderOutcome::kBadVersion);  // ENG-RX-1: 3 before 4
  EXPECT_EQ(answer_for(HeaderOutcome::kBadVersion), Answer::kErrVers);
}

TEST(CallHeader, RdmaDoneIsDiscarded) {
  proves("R8166-4.6-5");
  EXPECT_EQ(as_call(patched(golden::kE1Call, {{12, 3}})), HeaderOutcome::kDone);
  EXPECT_EQ(as_call(cut(patched(golden::kE1Call, {{12, 3}}), 28)), HeaderOutcome::kDone);
  EXPECT_EQ(as_call(cut(patched(golden::kE1Call, {{12, 3}}), 16)), HeaderOutcome::kTooShort);
  EXPECT_EQ(answer_for(HeaderOutcome::kDone), Answer::kDiscard);
}

TEST(CallHeader, RdmaMsgpGetsErrChunk) {
  proves("R8166-4.6-2");
  EXPECT_EQ(as_call(patched(golden::kE1Call, {{12, 2}})), HeaderOutcome::kMsgp);
  EXPECT_EQ(answer_for(HeaderOutcome::kMsgp), Answer::kErrChunk);
}

TEST(CallHeader, UnknownProceduresGetErrChunk) {
  proves("R8166-4.2.4-1", "R8166-4.5.2-2");
  for (const std::uint32_t proc : {5U, 7U, 0xffffffffU}) {
    // ENG-RX-1: the procedure wins over broken lists.
    EXPECT_EQ(as_call(patched(golden::kE1Call, {{12, proc}, {16, 9}})), HeaderOutcome::kUnknownProc);
  }
  EXPECT_EQ(answer_for(HeaderOutcome::kUnknownProc), Answer::kErrChunk);
}

TEST(CallHeader, BrokenListsGetErrChunk) {
  proves("R8166-4.5.2-1");
  EXPECT_EQ(call_with(0, {2, 0, 0}), HeaderOutcome::kBadDiscriminator);
  EXPECT_EQ(call_with(0, {0, 1, 0x00ffffff, 0, 0}), HeaderOutcome::kTruncated);
  EXPECT_EQ(call_with(0, {0, 0, 1, 1, 7, 0x1000, 0xffffffff, 0xffffff00}), HeaderOutcome::kSegmentOverflow);
  for (const auto outcome : {HeaderOutcome::kBadDiscriminator, HeaderOutcome::kTruncated,
                             HeaderOutcome::kSegmentOverflow, HeaderOutcome::kChunkListTooComplex}) {
    EXPECT_EQ(answer_for(outcome), Answer::kErrChunk);
  }
  // ENG-RX-1: lists win over the XID.
  EXPECT_EQ(as_call(patched(golden::kE1Call, {{16, 2}, {28, 1}})), HeaderOutcome::kBadDiscriminator);
}

TEST(CallHeader, TheInlineRpcMessageRepeatsTheXid) {
  proves("R8166-4.2.1-1", "R8166-4.5.2-3");
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_call_header(patched(golden::kE1Call, {{0, 1}, {28, 2}}), header, lists),
            HeaderOutcome::kXidMismatch);
  EXPECT_EQ(header.xid, 1U);
  for (std::size_t length = 28; length < 32; ++length) {
    EXPECT_EQ(as_call(cut(wire(golden::kE1Call), length)), HeaderOutcome::kXidMismatch);
  }
  EXPECT_EQ(answer_for(HeaderOutcome::kXidMismatch), Answer::kErrChunk);
  // ENG-RX-1: the XID wins over chunk sanity.
  EXPECT_EQ(as_call(patched(golden::kE3Call, {{20, 102}, {52, 1}})), HeaderOutcome::kXidMismatch);
}

TEST(CallHeader, NomsgNeedsAPositionZeroReadChunk) {
  proves("R8166-4.2.4-3", "R8166-4.5.2-2");
  EXPECT_EQ(call_with(1, {0, 0, 0}), HeaderOutcome::kNomsgWithoutPayload);
  EXPECT_EQ(call_with(1, {0, 1, 1, 7, 64, 0, 0, 0, 0}), HeaderOutcome::kNomsgWithoutPayload);
  EXPECT_EQ(call_with(1, {0, 0, 1, 1, 7, 64, 0, 0}), HeaderOutcome::kNomsgWithoutPayload);
  EXPECT_EQ(call_with(1, {1, 104, 7, 64, 0, 0, 0, 0, 0}), HeaderOutcome::kNomsgWithoutPayload);
  EXPECT_EQ(call_with(1, {1, 0, 7, 0, 0, 0, 0, 0, 0}), HeaderOutcome::kNomsgWithoutPayload);
  EXPECT_EQ(call_with(1, {1, 0, 7, 64, 0, 0, 0, 0, 0}), HeaderOutcome::kOk);
  EXPECT_EQ(answer_for(HeaderOutcome::kNomsgWithoutPayload), Answer::kErrChunk);
}

TEST(CallHeader, PositionsAreMultiplesOfFour) {
  proves("R8166-3.4.5-2");
  for (const std::uint32_t position : {101U, 102U, 103U}) {
    EXPECT_EQ(as_call(patched(golden::kE3Call, {{20, position}})), HeaderOutcome::kPositionUnaligned);
  }
  EXPECT_EQ(call_with(1, {1, 0, 7, 64, 0, 0, 1, 2, 7, 64, 0, 0, 0, 0, 0}), HeaderOutcome::kPositionUnaligned);
  EXPECT_EQ(answer_for(HeaderOutcome::kPositionUnaligned), Answer::kErrChunk);
}

TEST(CallHeader, PositionZeroInsideMsgIsAmbiguous) {
  proves("ENG-MX-3");
  EXPECT_EQ(call_with(0, {1, 0, 7, 64, 0, 0, 0, 0, 0}), HeaderOutcome::kPositionZeroInMsg);
  EXPECT_EQ(answer_for(HeaderOutcome::kPositionZeroInMsg), Answer::kErrChunk);
}

TEST(CallHeader, AcceptsEveryCombinationOfChunks) {
  proves("ENG-MX-1");
  for (unsigned mask = 0; mask < 16; ++mask) {
    ChunkLists lists;
    const bool position_zero = (mask & 1U) != 0;
    if (position_zero) {
      ASSERT_TRUE(lists.add_read(0, {1, 5000, 0}));
    }
    if (mask & 2U) {
      ASSERT_TRUE(lists.add_read(104, {2, 64, 0}));
    }
    if (mask & 4U) {
      ASSERT_TRUE(lists.add_write_chunk(std::array{Segment{3, 64, 0}}));
    }
    if (mask & 8U) {
      ASSERT_TRUE(lists.set_reply(std::array{Segment{4, 1052672, 0}}));  // ENG-RC-2
    }
    Octets out(header_size(lists));
    ASSERT_EQ(encode_header(out, 0x11223344, 8, position_zero ? Proc::kNomsg : Proc::kMsg, lists), out.size());
    EXPECT_EQ(as_call(position_zero ? out : joined(out, wire(kCallPayload))), HeaderOutcome::kOk) << mask;
  }
}

TEST(CallHeader, OctetsAfterANomsgHeaderAreIgnored) {
  proves("ENG-MX-4");
  EXPECT_EQ(as_call(joined(wire(golden::kE4Call), Octets(40, std::byte{0xee}))), HeaderOutcome::kOk);
}

TEST(CallHeader, PadInsideTheReadChunkIsFine) {  // E3 variant
  proves("R8166-3.4.5-9");
  const Octets e3 = wire(golden::kE3Call);
  const Octets octets = joined(wire(golden::kE3PaddedHeader), Octets(e3.begin() + 52, e3.end()));
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_call_header(octets, header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(header.header_bytes, 76U);
  EXPECT_EQ(lists.read_total, 8196U);
  Octets out(76);
  ASSERT_EQ(encode_header(out, header.xid, header.credit, header.proc, lists), 76U);
  EXPECT_EQ(out, wire(golden::kE3PaddedHeader));
}

TEST(ReplyHeader, ErrChunkOf20OctetsIsAccepted) {  // E7
  proves("ENG-RX-2", "R8166-4.5-7");
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_reply_header(wire(golden::kE7ErrChunk), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(header.proc, Proc::kError);
  EXPECT_EQ(header.rdma_err, RdmaErr::kChunk);
  EXPECT_EQ(header.xid, 0x1122334bU);
  EXPECT_EQ(header.credit, 64U);
}

TEST(ReplyHeader, ErrVersCarriesTheRangeAndTheCallsVersion) {  // E6
  proves("R8166-4.5-5", "ENG-RX-3");
  TransportHeader header;
  ChunkLists lists;
  ASSERT_EQ(decode_reply_header(wire(golden::kE6ErrVers), header, lists), HeaderOutcome::kOk);
  EXPECT_EQ(header.rdma_err, RdmaErr::kVers);
  EXPECT_EQ(header.vers, 2U);
  EXPECT_EQ(header.vers_low, 1U);
  EXPECT_EQ(header.vers_high, 1U);
}

TEST(ReplyHeader, ErrorsThatCannotBeDecodedAreDiscarded) {
  proves("R8166-4.5-8");
  EXPECT_EQ(as_reply(patched(golden::kE7ErrChunk, {{16, 3}})), HeaderOutcome::kBadErrorBody);
  EXPECT_EQ(as_reply(patched(golden::kE7ErrChunk, {{16, 0}})), HeaderOutcome::kBadErrorBody);
  EXPECT_EQ(as_reply(patched(golden::kE7ErrChunk, {{16, 1}})), HeaderOutcome::kBadErrorBody);  // no version range
  for (std::size_t length = 16; length < 20; ++length) {
    EXPECT_EQ(as_reply(cut(wire(golden::kE7ErrChunk), length)), HeaderOutcome::kBadErrorBody);
  }
  for (std::size_t length = 20; length < 28; ++length) {
    EXPECT_EQ(as_reply(cut(wire(golden::kE6ErrVers), length)), HeaderOutcome::kBadErrorBody);
  }
  EXPECT_EQ(as_reply(patched(golden::kE7ErrChunk, {{4, 2}})), HeaderOutcome::kBadVersion);
}

TEST(ReplyHeader, ShortMessagesAreDiscarded) {
  proves("R8166-4.5-1", "ENG-RX-2");
  const Octets reply = wire(golden::kE1Reply);
  for (std::size_t length = 0; length < 28; ++length) EXPECT_EQ(as_reply(cut(reply, length)), HeaderOutcome::kTooShort);
  for (std::size_t length = 0; length < 16; ++length) {
    EXPECT_EQ(as_reply(cut(wire(golden::kE7ErrChunk), length)), HeaderOutcome::kTooShort);
  }
}

TEST(ReplyHeader, OtherVersionsAndProceduresAreDiscarded) {
  proves("ENG-RX-3", "R8166-4.6-3", "R8166-4.6-5", "R8166-4.2.4-1");
  EXPECT_EQ(as_reply(patched(golden::kE1Reply, {{4, 2}})), HeaderOutcome::kBadVersion);
  EXPECT_EQ(as_reply(patched(golden::kE1Reply, {{12, 2}})), HeaderOutcome::kMsgp);
  EXPECT_EQ(as_reply(patched(golden::kE1Reply, {{12, 3}})), HeaderOutcome::kDone);
  EXPECT_EQ(as_reply(patched(golden::kE1Reply, {{12, 5}})), HeaderOutcome::kUnknownProc);
}

TEST(ReplyHeader, BrokenListsAndForeignXidsAreDiscarded) {
  proves("R8166-4.5-3");
  EXPECT_EQ(as_reply(cut(wire(golden::kE2Reply), 50)), HeaderOutcome::kTruncated);
  EXPECT_EQ(as_reply(patched(golden::kE1Reply, {{16, 7}})), HeaderOutcome::kBadDiscriminator);
  EXPECT_EQ(as_reply(patched(golden::kE1Reply, {{28, 7}})), HeaderOutcome::kXidMismatch);
}

TEST(ReplyHeader, AReadListIsNeverPresent) {
  proves("R8166-4.3.1-3");
  EXPECT_EQ(as_reply(wire(golden::kE3Call)), HeaderOutcome::kReadListInReply);
}

TEST(ReplyHeader, AnInlineReplyClaimsNothingInItsReplyChunk) {
  proves("ENG-MX-6");
  EXPECT_EQ(as_reply(patched(golden::kE5ShortReply, {{0x34, 4}})), HeaderOutcome::kReplyChunkInMsg);
}

TEST(ReplyHeader, ALongReplyHoldsAtLeastTheSmallestRpcReply) {
  proves("ENG-MX-5");
  const auto with_length = [](std::uint32_t length) {
    return as_reply(patched(golden::kE5LongReply, {{0x24, length}}));
  };
  EXPECT_EQ(with_length(0), HeaderOutcome::kReplyChunkLength);
  EXPECT_EQ(with_length(16), HeaderOutcome::kReplyChunkLength);
  EXPECT_EQ(with_length(5001), HeaderOutcome::kReplyChunkLength);
  EXPECT_EQ(with_length(20), HeaderOutcome::kOk);
  EXPECT_EQ(with_length(32), HeaderOutcome::kOk);  // PEER-LNX-S1: even a small error comes as a Long Reply
  EXPECT_EQ(as_reply(wire({7, 1, 8, 1, 0, 0, 0})), HeaderOutcome::kReplyChunkLength);
  EXPECT_EQ(as_reply(wire({7, 1, 8, 1, 0, 1, 1, 7, 64, 0, 0, 0, 0})), HeaderOutcome::kReplyChunkLength);
  EXPECT_EQ(as_reply(wire({7, 1, 8, 1, 0, 1, 1, 7, 64, 0, 0, 0, 1, 1, 7, 64, 0, 0})), HeaderOutcome::kOk);
}

TEST(ReplyHeader, AnAbsentReplyChunkIsAccepted) {
  proves("ENG-RC-3");
  EXPECT_EQ(as_reply(wire(golden::kE1Reply)), HeaderOutcome::kOk);
}

TEST(ErrorEncoding, HasExactlyTheOctetsOfTheStandard) {
  proves("R8166-4.2.4-4", "R8166-4.5-4", "R8166-4.5-5", "R8166-4.5-6", "ENG-RX-8");
  Octets out(28);
  EXPECT_EQ(encode_err_vers(out.data(), 0x1122334a, 2, 64), 28U);
  EXPECT_EQ(out, wire(golden::kE6ErrVers));
  out.resize(20);
  EXPECT_EQ(encode_err_chunk(out.data(), 0x1122334b, 1, 64), 20U);
  EXPECT_EQ(out, wire(golden::kE7ErrChunk));
}

TEST(Direction, FollowsTheDecisionTable) {
  proves("ENG-8167-1", "R8167-2-1");
  for (const auto& message : golden::kMessages) {
    const auto expected = message.kind == golden::Kind::kCall    ? Direction::kCall
                          : message.kind == golden::Kind::kReply ? Direction::kReply
                                                                 : Direction::kError;
    EXPECT_EQ(classify(wire(message.words)), expected) << message.name;
  }
  // NOMSG: Read list -> Call, also with a Reply chunk; Reply chunk alone -> Reply, also after a Write list.
  EXPECT_EQ(classify(wire({7, 1, 8, 1, 1, 0, 7, 64, 0, 0, 0, 0, 1, 1, 7, 64, 0, 0})), Direction::kCall);
  EXPECT_EQ(classify(wire({7, 1, 8, 1, 0, 1, 1, 7, 64, 0, 0, 0, 1, 1, 7, 64, 0, 0})), Direction::kReply);
}

TEST(Direction, IsUnknownForWhatCannotBeTold) {
  proves("R8167-4.1-4");
  const Octets call = wire(golden::kE1Call);
  for (std::size_t length = 0; length < 36; ++length) EXPECT_EQ(classify(cut(call, length)), Direction::kUnknown);
  EXPECT_EQ(classify(cut(call, 36)), Direction::kCall);
  EXPECT_EQ(classify(patched(golden::kE1Call, {{32, 2}})), Direction::kUnknown);
  EXPECT_EQ(classify(patched(golden::kE1Call, {{4, 2}})), Direction::kUnknown);
  EXPECT_EQ(classify(patched(golden::kE1Call, {{12, 2}})), Direction::kUnknown);
  EXPECT_EQ(classify(patched(golden::kE1Call, {{16, 5}})), Direction::kUnknown);
  EXPECT_EQ(classify(patched(golden::kE2Call, {{24, 0x0fffffff}})), Direction::kUnknown);
  EXPECT_EQ(classify(wire({7, 1, 8, 1, 0, 0, 0})), Direction::kUnknown);
  EXPECT_EQ(classify(wire({7, 1, 8, 1, 0, 1, 1, 7, 64, 0, 0, 0, 0})), Direction::kUnknown);
}

TEST(Direction, TellsAReverseCallByItsMsgTypeAlone) {  // E8
  proves("R8167-5.1-2", "R8167-5.2-2");
  EXPECT_EQ(classify(wire(golden::kE8ReverseCall)), Direction::kCall);
  EXPECT_EQ(classify(patched(golden::kE8ReverseCall, {{32, 1}})), Direction::kReply);
}

}  // namespace
}  // namespace rodeo
