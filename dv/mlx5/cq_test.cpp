// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/cq.h"

#include <gtest/gtest.h>

#include <array>

#include "dv/soft/cq_writer.h"

// CQEs as a ConnectX writes them, put together octet by octet; and that the software HCA writes the same.

namespace rodeo::dv::mlx5 {

namespace {

constexpr std::uint32_t kCqes = 4;

class CqLayout : public testing::Test {
 protected:
  CqLayout() : cq_({.cqes = ring_.data(), .dbrec = dbrec_.data(), .cqe_count = kCqes}) {
    for (std::uint32_t i = 0; i < kCqes; ++i) ring_[i * 64 + 63] = std::byte{0xf0};
  }
  void put(std::uint32_t index, std::initializer_list<std::pair<std::size_t, unsigned>> octets) {
    for (const auto& [offset, octet] : octets) ring_[index % kCqes * 64 + offset] = static_cast<std::byte>(octet);
  }
  Completion poll_one() {
    std::array<Completion, 8> out;
    EXPECT_EQ(poll_into(cq_, out), 1U);
    return out[0];
  }

  alignas(64) std::array<std::byte, kCqes * 64> ring_{};
  alignas(64) std::array<Be32, 2> dbrec_{};
  Cq cq_;
};

}  // namespace

TEST_F(CqLayout, AnInvalidCqeIsNotTaken) {
  std::array<Completion, 8> out;
  EXPECT_EQ(poll_into(cq_, out), 0U);
  EXPECT_EQ(dbrec_[0].raw(), 0U);
}

TEST_F(CqLayout, AReceivedSendSaysLengthCounterAndQpn) {
  put(0, {{44, 0}, {45, 1}, {46, 2}, {47, 3}, {57, 0xab}, {58, 0xcd}, {59, 0xef}, {60, 0x12}, {61, 0x34}, {63, 0x20}});
  const Completion c = poll_one();
  EXPECT_EQ(c.kind, CompletionKind::kReceive);
  EXPECT_EQ(c.status, Status::kSuccess);
  EXPECT_EQ(c.byte_count, 0x010203U);
  EXPECT_EQ(c.qpn(), 0xabcdefU);
  EXPECT_EQ(c.wqe_counter(), 0x1234U);
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), 1U);
}

TEST_F(CqLayout, AReceivedInvalidateSaysWhichKey) {
  put(0, {{36, 0xde}, {37, 0xad}, {38, 0xbe}, {39, 0xef}, {63, 0x40}});
  const Completion c = poll_one();
  EXPECT_EQ(c.kind, CompletionKind::kReceiveInvalidate);
  EXPECT_EQ(c.invalidated_key, 0xdeadbeefU);
}

TEST_F(CqLayout, ASendsCompletionMasksTheOpcodeOutOfTheQpn) {
  put(0, {{56, 0x0a}, {57, 0}, {58, 0}, {59, 9}, {61, 7}, {63, 0x00}});
  const Completion c = poll_one();
  EXPECT_EQ(c.kind, CompletionKind::kSendQueue);
  EXPECT_EQ(c.qpn(), 9U);
  EXPECT_EQ(c.wqe_counter(), 7U);
}

TEST_F(CqLayout, ErrorsCarryTheirSyndrome) {
  put(0, {{54, 0x68}, {55, 0x13}, {47, 99}, {63, 0xd0}});
  Completion c = poll_one();
  EXPECT_EQ(c.kind, CompletionKind::kSendQueue);
  EXPECT_EQ(c.status, Status::kRemoteAccess);
  EXPECT_EQ(c.vendor_syndrome, 0x68U);
  EXPECT_EQ(c.byte_count, 0U);
  put(1, {{55, 0x05}, {63, 0xe0}});
  c = poll_one();
  EXPECT_EQ(c.kind, CompletionKind::kReceive);
  EXPECT_EQ(c.status, Status::kFlushed);
}

TEST_F(CqLayout, TheOwnerBitFlipsWithEveryLap) {
  for (std::uint32_t i = 0; i < 3 * kCqes; ++i) {
    const unsigned owner = i / kCqes % 2;
    std::array<Completion, 8> out;
    put(i, {{63, 0x20 | (owner ^ 1)}});
    ASSERT_EQ(poll_into(cq_, out), 0U) << "of the lap before";
    put(i, {{61, i}, {63, 0x20 | owner}});
    ASSERT_EQ(poll_one().wqe_counter(), i);
  }
  EXPECT_EQ(static_cast<std::uint32_t>(dbrec_[0]), 3 * kCqes);
}

TEST_F(CqLayout, EverySyndromeHasItsStatus) {
  const std::array<std::pair<std::uint8_t, Status>, 14> table{{{0x01, Status::kLocalLength},
                                                               {0x02, Status::kLocalQpOperation},
                                                               {0x04, Status::kLocalProtection},
                                                               {0x05, Status::kFlushed},
                                                               {0x06, Status::kWindowBind},
                                                               {0x10, Status::kBadResponse},
                                                               {0x11, Status::kLocalAccess},
                                                               {0x12, Status::kRemoteInvalidRequest},
                                                               {0x13, Status::kRemoteAccess},
                                                               {0x14, Status::kRemoteOperation},
                                                               {0x15, Status::kRetryExceeded},
                                                               {0x16, Status::kRnrRetryExceeded},
                                                               {0x22, Status::kRemoteAborted},
                                                               {0x77, Status::kUnknown}}};
  for (const auto& [syndrome, status] : table) EXPECT_EQ(status_of_syndrome(syndrome), status) << int{syndrome};
}

TEST_F(CqLayout, WhatTheSoftwareHcaWritesIsReadBack) {
  soft::CqWriter writer;
  writer.cqes = reinterpret_cast<mlx5_cqe64*>(ring_.data());
  writer.consumer_record = dbrec_.data();
  writer.count = kCqes;
  for (std::uint32_t i = 0; i < 5 * kCqes; ++i) {
    ASSERT_TRUE(writer.has_room());
    writer.put({.qpn = 0xabc,
                .wqe_counter = static_cast<std::uint16_t>(i),
                .opcode = MLX5_CQE_RESP_SEND_INV,
                .send_opcode = 0,
                .byte_count = i * 3,
                .invalidated_key = i + 7,
                .syndrome = 0,
                .vendor_syndrome = 0});
    const Completion c = poll_one();
    ASSERT_EQ(c.wqe_counter(), i);
    ASSERT_EQ(c.qpn(), 0xabcU);
    ASSERT_EQ(c.byte_count, i * 3);
    ASSERT_EQ(c.invalidated_key, i + 7);
  }
  for (std::uint32_t i = 0; i < kCqes; ++i) {
    ASSERT_TRUE(writer.has_room());
    writer.put({.qpn = 1, .opcode = MLX5_CQE_REQ});
  }
  EXPECT_FALSE(writer.has_room()) << "a full CQ is never overrun";
  dbrec_[0] = Be32(0x123456);
  EXPECT_FALSE(writer.has_room()) << "nor when the consumer index is nonsense";
}

}  // namespace rodeo::dv::mlx5
