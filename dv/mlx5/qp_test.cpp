// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/qp.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

// The WQEs that a ConnectX would fetch, octet by octet, over memory of our own; and the MMIO register that it would be
// rung through.

namespace rodeo::dv::mlx5 {

namespace {

constexpr std::uint32_t kQpn = 0x123456;
constexpr std::uint32_t kSqBbs = 32;
constexpr std::uint32_t kRqWqes = 8;
constexpr std::uint32_t kBfBytes = 256;

class QpLayout : public testing::Test {
 protected:
  explicit QpLayout(std::uint32_t bf_bytes = kBfBytes)
      : register_{.reg = bf_.data(), .bytes = bf_bytes},
        qp_({.sq = sq_.data(),
             .sq_bbs = kSqBbs,
             .rq = rq_.data(),
             .rq_wqes = kRqWqes,
             .dbrec = dbrec_.data(),
             .bf = &register_,
             .qpn = kQpn,
             .max_inline = 200}) {
    sq_.fill(std::byte{0xee});
  }

  [[nodiscard]] std::vector<unsigned> octets(std::size_t bb, std::size_t offset, std::size_t count) const {
    std::vector<unsigned> out;
    for (std::size_t i = 0; i < count; ++i) {
      out.push_back(std::to_integer<unsigned>(sq_[bb * kBbBytes + offset + i]));
    }
    return out;
  }
  using Octets = std::vector<unsigned>;
  void retire_all() {
    Completion completion;
    completion.origin = last_signalled_;
    qp_.retire_send(completion, [](Token) {});
  }

  alignas(64) std::array<std::byte, kSqBbs * kBbBytes> sq_{};
  alignas(64) std::array<std::byte, kRqWqes * kReceiveStride> rq_{};
  alignas(64) std::array<Be32, 2> dbrec_{};
  alignas(64) std::array<std::byte, 2 * kBfBytes> bf_{};
  std::uint16_t last_signalled_ = 0;
  BlueFlame register_;
  Qp qp_;
};

class QpWithoutBlueFlame : public QpLayout {
 protected:
  QpWithoutBlueFlame() : QpLayout(0) {}
};

const std::byte* at(std::uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }

}  // namespace

TEST_F(QpLayout, AnInlineSendIsControlThenInlineHeaderThenOctets) {
  std::byte* bytes = qp_.post_inline_send(5);
  ASSERT_EQ(bytes, sq_.data() + 20);
  std::memcpy(bytes, "hello", 5);
  EXPECT_EQ(octets(0, 0, 16), (Octets{0, 0, 0, 0x0a, 0x12, 0x34, 0x56, 2, 0, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(octets(0, 16, 9), (Octets{0x80, 0, 0, 5, 'h', 'e', 'l', 'l', 'o'}));
}

TEST_F(QpLayout, AGatheredSendSkipsEmptyPieces) {
  const std::array pieces{Sge{at(0x1122334455667788), 0x100, 0xabcd01}, Sge{at(0x10), 0, 7}, Sge{at(0x20), 3, 9}};
  ASSERT_TRUE(qp_.post_send(pieces, 1));
  EXPECT_EQ(octets(0, 0, 12), (Octets{0, 0, 0, 0x0a, 0x12, 0x34, 0x56, 3, 0, 0, 0, 0x08}));
  EXPECT_EQ(octets(0, 16, 16), (Octets{0, 0, 1, 0, 0, 0xab, 0xcd, 1, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}));
  EXPECT_EQ(octets(0, 32, 16), (Octets{0, 0, 0, 3, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0x20}));
}

TEST_F(QpLayout, ASendWithInvalidateCarriesTheKeyInItsImmediate) {
  ASSERT_TRUE(qp_.post_send_invalidate({}, 0xdeadbeef, kNoToken));
  EXPECT_EQ(octets(0, 0, 16), (Octets{0, 0, 0, 0x01, 0x12, 0x34, 0x56, 1, 0, 0, 0, 0, 0xde, 0xad, 0xbe, 0xef}));
}

TEST_F(QpLayout, WriteAndReadNameTheRemoteAddressFirst) {
  const std::array piece{Sge{at(0x40), 16, 5}};
  ASSERT_TRUE(qp_.post_write(piece, {0x0102030405060708, 0x0a0b0c0d}, kNoToken));
  ASSERT_TRUE(qp_.post_read(piece, {0x1000, 0x99}, kNoToken));
  EXPECT_EQ(octets(0, 0, 8), (Octets{0, 0, 0, 0x08, 0x12, 0x34, 0x56, 3}));
  EXPECT_EQ(octets(0, 16, 16), (Octets{1, 2, 3, 4, 5, 6, 7, 8, 0xa, 0xb, 0xc, 0xd, 0, 0, 0, 0}));
  EXPECT_EQ(octets(0, 32, 8), (Octets{0, 0, 0, 16, 0, 0, 0, 5}));
  EXPECT_EQ(octets(1, 0, 8), (Octets{0, 0, 1, 0x10, 0x12, 0x34, 0x56, 3}));
}

TEST_F(QpLayout, AZeroLengthWriteHasNoDataSegment) {
  ASSERT_TRUE(qp_.post_write({}, {1, 2}, kNoToken));
  EXPECT_EQ(octets(0, 7, 1), Octets{2});
}

TEST_F(QpLayout, ABindIsAUmrOfThreeBlocks) {
  ASSERT_TRUE(qp_.post_bind(0x00004512, 0x00004577, {at(0x123000), 0x2000, 0x77aa}, WindowAccess::kRemoteRead, 3));
  EXPECT_EQ(octets(0, 0, 16), (Octets{0, 0, 0, 0x25, 0x12, 0x34, 0x56, 12, 0, 0, 0, 0x08, 0, 0, 0x45, 0x12}));
  // flags INLINE|CHECK_FREE|TRANSLATION_OFFSET, klm_octowords 4, mask: LEN START MKEY QPN 4×access FREE.
  EXPECT_EQ(octets(0, 16, 16), (Octets{0xb0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0x20, 0x3c, 0x60, 0x41}));
  EXPECT_EQ(octets(1, 0, 8), (Octets{0, 0, 0x10, 0, 0x12, 0x34, 0x56, 0x77}));
  EXPECT_EQ(octets(1, 16, 16), (Octets{0, 0, 0, 0, 0, 0x12, 0x30, 0, 0, 0, 0, 0, 0, 0, 0x20, 0}));
  EXPECT_EQ(octets(2, 0, 16), (Octets{0, 0, 0x20, 0, 0, 0, 0x77, 0xaa, 0, 0, 0, 0, 0, 0x12, 0x30, 0}));
  EXPECT_EQ(octets(2, 16, 48), Octets(48, 0));
}

TEST_F(QpLayout, AnInvalidateIsAUmrOfTwoBlocksAndTheNextWqeIsFenced) {
  ASSERT_TRUE(qp_.post_invalidate(0x4577, kNoToken));
  ASSERT_TRUE(qp_.post_send({}, kNoToken));
  ASSERT_TRUE(qp_.post_send({}, kNoToken));
  EXPECT_EQ(octets(0, 0, 16), (Octets{0, 0, 0, 0x25, 0x12, 0x34, 0x56, 8, 0, 0, 0, 0, 0, 0, 0x45, 0x77}));
  // flags INLINE|TRANSLATION_OFFSET|CHECK_QPN; mask FREE MKEY QPN.
  EXPECT_EQ(octets(0, 16, 16), (Octets{0x98, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0x60, 0}));
  EXPECT_EQ(octets(1, 0, 8), (Octets{0x40, 0, 0, 0, 0xff, 0xff, 0xff, 0}));
  EXPECT_EQ(octets(2, 11, 1), Octets{0x20}) << "INITIATOR_SMALL_FENCE";
  EXPECT_EQ(octets(3, 11, 1), Octets{0});
}

TEST_F(QpLayout, ANopFillsTheEndOfTheRingSoThatNoWqeWraps) {
  std::uint32_t posted = 0;
  for (; posted < 15; ++posted) {
    ASSERT_NE(qp_.post_inline_send(100), nullptr);  // 2 BBs
  }
  ASSERT_TRUE(qp_.post_send({}, 9));  // block 30
  last_signalled_ = 30;
  retire_all();
  ASSERT_EQ(qp_.post_inline_send(100), sq_.data() + 20) << "block 31 is skipped";
  EXPECT_EQ(octets(31, 0, 8), (Octets{0, 0, 31, 0x00, 0x12, 0x34, 0x56, 4})) << "NOP of one block";
  EXPECT_EQ(octets(0, 0, 4), (Octets{0, 0, 32, 0x0a})) << "the counter goes on";
}

TEST_F(QpLayout, RequestsWithoutTokenAreSignalledOncePerQuarterOfTheRing) {
  std::vector<std::uint32_t> signalled;
  for (std::uint32_t i = 0; i < kSqBbs; ++i) {
    ASSERT_TRUE(qp_.post_send({}, kNoToken));
    if (octets(i, 11, 1)[0] == 0x08) signalled.push_back(i);
  }
  EXPECT_EQ(signalled, (std::vector<std::uint32_t>{7, 15, 23, 31}));
  EXPECT_FALSE(qp_.post_send({}, kNoToken)) << "full";
}

TEST_F(QpLayout, ACompletionRetiresWhateverIsBeforeIt) {
  for (Token token = 1; token <= 3; ++token) {
    ASSERT_TRUE(qp_.post_send({}, kNoToken));
    ASSERT_TRUE(qp_.post_send({}, token));
  }
  std::vector<Token> tokens;
  Completion completion;
  completion.origin = 3;
  qp_.retire_send(completion, [&](Token token) { tokens.push_back(token); });
  EXPECT_EQ(tokens, (std::vector<Token>{1, 2}));
  EXPECT_EQ(qp_.send_room(), kSqBbs - 2);
  EXPECT_FALSE(qp_.drained());
  completion.origin = 4;  // flushed, though nobody asked for a completion
  completion.status = Status::kFlushed;
  qp_.retire_send(completion, [&](Token token) { tokens.push_back(token); });
  EXPECT_EQ(qp_.send_room(), kSqBbs - 1);
  completion.origin = 5;
  qp_.retire_send(completion, [&](Token token) { tokens.push_back(token); });
  EXPECT_EQ(tokens, (std::vector<Token>{1, 2, 3}));
  EXPECT_TRUE(qp_.drained());
}

TEST_F(QpLayout, OneWqeGoesOutByBlueFlameAndTheHalvesTakeTurns) {
  std::byte* bytes = qp_.post_inline_send(100);
  std::memset(bytes, 0x5c, 100);
  qp_.ring_doorbell();
  EXPECT_EQ(dbrec_[0].raw(), 0U);
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[1]), 2U);
  EXPECT_EQ(std::memcmp(bf_.data(), sq_.data(), 128), 0);
  EXPECT_EQ(bf_[128], std::byte{0});
  ASSERT_TRUE(qp_.post_send({}, kNoToken));
  qp_.ring_doorbell();
  EXPECT_EQ(std::memcmp(bf_.data() + kBfBytes, sq_.data() + 128, 64), 0);
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[1]), 3U);
}

TEST_F(QpLayout, QpsThatShareARegisterWriteItsHalvesInTurn) {
  alignas(64) std::array<std::byte, kSqBbs * kBbBytes> other_sq{};
  alignas(64) std::array<Be32, 2> other_dbrec{};
  Qp other({.sq = other_sq.data(), .sq_bbs = kSqBbs, .dbrec = other_dbrec.data(), .bf = &register_, .qpn = kQpn + 1});
  ASSERT_TRUE(qp_.post_send({}, kNoToken));
  qp_.ring_doorbell();
  ASSERT_TRUE(other.post_send({}, kNoToken));
  other.ring_doorbell();
  EXPECT_EQ(std::memcmp(bf_.data(), sq_.data(), 64), 0);
  EXPECT_EQ(std::memcmp(bf_.data() + kBfBytes, other_sq.data(), 64), 0);
}

TEST_F(QpLayout, SeveralWqesAreRungByTheLastOnesFirstEightOctets) {
  ASSERT_TRUE(qp_.post_send({}, kNoToken));
  ASSERT_TRUE(qp_.post_send({}, kNoToken));
  qp_.ring_doorbell();
  EXPECT_EQ(std::memcmp(bf_.data(), sq_.data() + 64, 8), 0);
  EXPECT_EQ(bf_[8], std::byte{0});
  bf_.fill(std::byte{0});
  qp_.ring_doorbell();  // nothing new
  EXPECT_EQ(bf_[kBfBytes + 3], std::byte{0});
}

TEST_F(QpWithoutBlueFlame, TheRegisterGetsEightOctetsAtOffsetZero) {
  for (int i = 0; i < 2; ++i) {
    bf_.fill(std::byte{0});
    ASSERT_TRUE(qp_.post_send({}, kNoToken));
    qp_.ring_doorbell();
    EXPECT_EQ(std::memcmp(bf_.data(), sq_.data() + i * 64, 8), 0);
    EXPECT_EQ(bf_[8], std::byte{0});
  }
}

TEST_F(QpLayout, AReceiveIsSixteenOctetsAndASlotWithTheSameBufferIsNotTouched) {
  std::byte buffer[64];
  ASSERT_TRUE(qp_.post_receive(buffer, 0x1000, 0xabcd));
  EXPECT_EQ(load_be32(rq_.data()), 0x1000U);
  EXPECT_EQ(load_be32(rq_.data() + 4), 0xabcdU);
  EXPECT_EQ(load_be64(rq_.data() + 8), reinterpret_cast<std::uintptr_t>(buffer));
  EXPECT_EQ(dbrec_[0].raw(), 0U);
  for (std::uint32_t i = 1; i < kRqWqes; ++i) ASSERT_TRUE(qp_.post_receive(buffer, 0x1000, 0xabcd));
  EXPECT_FALSE(qp_.post_receive(buffer, 0x1000, 0xabcd));
  qp_.publish_receives();
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), kRqWqes);

  Completion completion;
  completion.origin = 0;
  EXPECT_EQ(qp_.take_receive(completion), buffer);
  rq_.fill(std::byte{0});  // what a peer may scribble
  ASSERT_TRUE(qp_.post_receive(buffer, 0x1000, 0xabcd));
  EXPECT_EQ(load_be32(rq_.data()), 0U);
}

TEST_F(QpLayout, AReceiveCompletionOutOfOrderIsNotBelieved) {
  std::byte buffer[64];
  Completion completion;
  EXPECT_EQ(qp_.take_receive(completion), nullptr) << "nothing is posted";
  ASSERT_TRUE(qp_.post_receive(buffer, 64, 1));
  ASSERT_TRUE(qp_.post_receive(buffer, 64, 1));
  completion.origin = 1;
  EXPECT_EQ(qp_.take_receive(completion), nullptr);
  completion.origin = 0;
  EXPECT_EQ(qp_.take_receive(completion), buffer);
  EXPECT_EQ(qp_.take_receive(completion), nullptr) << "twice";
}

TEST_F(QpLayout, InlineSendsAreLimited) {
  EXPECT_EQ(qp_.post_inline_send(201), nullptr);
  EXPECT_NE(qp_.post_inline_send(200), nullptr);
}

}  // namespace rodeo::dv::mlx5
