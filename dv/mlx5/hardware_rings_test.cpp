// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/hardware_rings.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <vector>

// What mlx5dv_init_obj would hand out, over memory of our own; a page of it stands for the doorbells' page.

namespace rodeo::dv::mlx5 {

namespace {

constexpr std::uint32_t kQpn = 0x4321;
constexpr std::uint32_t kSqBbs = 64;
constexpr std::uint32_t kRqWqes = 16;
constexpr std::uint32_t kCqes = 64;
constexpr std::uint32_t kHalf = 256;
constexpr std::size_t kRegisterInPage = 0x800;

class HardwareRings : public testing::Test {
 protected:
  HardwareRings() {
    direct_.dbrec = qp_records_.data();
    direct_.sq = {.buf = buffer_.data() + kRqWqes * kReceiveStride, .wqe_cnt = kSqBbs, .stride = kBbBytes};
    direct_.rq = {.buf = buffer_.data(), .wqe_cnt = kRqWqes, .stride = kReceiveStride};
    direct_.bf.reg = page_.data() + kRegisterInPage;
    direct_.bf.size = kHalf;
    direct_cq_.buf = cqes_.data();
    direct_cq_.dbrec = cq_records_.data();
    direct_cq_.cqe_cnt = kCqes;
    direct_cq_.cqe_size = sizeof(mlx5_cqe64);
    for (mlx5_cqe64& cqe : cqes_) cqe.op_own = MLX5_CQE_INVALID << 4;
  }

  /// As the device would, on its first lap.
  void complete(std::size_t at, unsigned opcode, std::uint16_t counter, std::uint32_t bytes) {
    mlx5_cqe64& cqe = cqes_[at];
    cqe.byte_cnt = htobe32(bytes);
    cqe.sop_drop_qpn = htobe32(kQpn);
    cqe.wqe_counter = htobe16(counter);
    cqe.op_own = static_cast<std::uint8_t>(opcode << 4);
  }

  // The receive ring first, as the library lays them out.
  alignas(64) std::array<std::byte, kRqWqes * kReceiveStride + kSqBbs * kBbBytes> buffer_{};
  alignas(64) std::array<__be32, 2> qp_records_{};
  alignas(64) std::array<__be32, 2> cq_records_{};
  alignas(64) std::array<mlx5_cqe64, kCqes> cqes_{};
  alignas(4096) std::array<std::byte, 4096> page_{};
  mlx5dv_qp direct_{};
  mlx5dv_cq direct_cq_{};
};

TEST_F(HardwareRings, WhatTheLibraryHandsOutIsDriven) {
  auto rings = rings_of(direct_, kQpn, 236);
  ASSERT_TRUE(rings) << rings.error().message();
  BlueFlame bf = register_of(direct_, true);
  rings->bf = &bf;
  const auto ring = ring_of(direct_cq_);
  ASSERT_TRUE(ring) << ring.error().message();
  Qp qp(*rings);
  Cq cq(*ring);
  EXPECT_EQ(qp.qpn(), kQpn);
  EXPECT_EQ(qp.max_inline(), 236U);
  EXPECT_EQ(qp.send_room(), kSqBbs);

  std::array<std::byte, 64> received{};
  ASSERT_TRUE(qp.post_receive(received.data(), 64, 0x77));
  qp.publish_receives();
  EXPECT_EQ(qp_records_[MLX5_RCV_DBR], htobe32(1));
  const auto* receive = reinterpret_cast<const mlx5_wqe_data_seg*>(direct_.rq.buf);
  EXPECT_EQ(receive->lkey, htobe32(0x77));
  EXPECT_EQ(receive->addr, htobe64(reinterpret_cast<std::uintptr_t>(received.data())));

  ASSERT_TRUE(qp.post_drain(5));
  qp.ring_doorbell();
  EXPECT_EQ(qp_records_[MLX5_SND_DBR], htobe32(1));
  EXPECT_EQ(std::memcmp(page_.data() + kRegisterInPage, direct_.sq.buf, kBbBytes), 0);

  complete(0, MLX5_CQE_REQ, 0, 0);
  complete(1, MLX5_CQE_RESP_SEND, 0, 9);
  std::vector<Completion> seen;
  ASSERT_EQ(cq.poll(8, [&](const Completion& completion) { seen.push_back(completion); }), 2U);
  EXPECT_EQ(cq_records_[0], htobe32(2));
  std::vector<Token> tokens;
  ASSERT_EQ(seen[0].kind, CompletionKind::kSendQueue);
  qp.retire_send(seen[0], [&](Token token) { tokens.push_back(token); });
  EXPECT_EQ(tokens, std::vector<Token>{5});
  ASSERT_EQ(seen[1].kind, CompletionKind::kReceive);
  EXPECT_EQ(seen[1].qpn(), kQpn);
  EXPECT_EQ(seen[1].byte_count, 9U);
  EXPECT_EQ(qp.take_receive(seen[1]), received.data());
  EXPECT_TRUE(qp.drained());
}

TEST_F(HardwareRings, ARegisterThatOtherCoresMayShareGetsDoorbellsOfEightBytes) {
  auto rings = rings_of(direct_, kQpn, 236);
  ASSERT_TRUE(rings);
  BlueFlame bf = register_of(direct_, false);
  EXPECT_EQ(bf.reg, direct_.bf.reg);
  rings->bf = &bf;
  Qp qp(*rings);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(qp.post_drain(kNoToken));
    qp.ring_doorbell();
    const auto* wqe = static_cast<const std::byte*>(direct_.sq.buf) + i * std::ptrdiff_t{kBbBytes};
    EXPECT_EQ(std::memcmp(page_.data() + kRegisterInPage, wqe, 8), 0);
  }
  EXPECT_EQ(page_[kRegisterInPage + 8], std::byte{0});
  EXPECT_EQ(page_[kRegisterInPage + kHalf + 3], std::byte{0});
}

TEST_F(HardwareRings, QueuesOfAnotherLayoutAreRefused) {
  const std::vector<std::function<void(mlx5dv_qp&)>> changes = {
      [](mlx5dv_qp& qp) { qp.sq.stride = 128; },    [](mlx5dv_qp& qp) { qp.rq.stride = 32; },
      [](mlx5dv_qp& qp) { qp.sq.wqe_cnt = 48; },    [](mlx5dv_qp& qp) { qp.sq.wqe_cnt = 16; },
      [](mlx5dv_qp& qp) { qp.sq.wqe_cnt = 65536; }, [](mlx5dv_qp& qp) { qp.rq.wqe_cnt = 0; },
      [](mlx5dv_qp& qp) { qp.rq.wqe_cnt = 24; },    [](mlx5dv_qp& qp) { qp.rq.wqe_cnt = 65536; },
      [](mlx5dv_qp& qp) { qp.sq.buf = nullptr; },   [](mlx5dv_qp& qp) { qp.rq.buf = nullptr; },
      [](mlx5dv_qp& qp) { qp.dbrec = nullptr; },    [](mlx5dv_qp& qp) { qp.bf.reg = nullptr; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    mlx5dv_qp changed = direct_;
    changes[i](changed);
    const auto rings = rings_of(changed, kQpn, 236);
    ASSERT_FALSE(rings) << i;
    EXPECT_FALSE(rings.error().next.empty()) << i;
  }
}

TEST_F(HardwareRings, ACqOfAnotherLayoutIsRefused) {
  const std::vector<std::function<void(mlx5dv_cq&)>> changes = {
      [](mlx5dv_cq& cq) { cq.cqe_size = 128; },
      [](mlx5dv_cq& cq) { cq.cqe_cnt = 63; },
      [](mlx5dv_cq& cq) { cq.buf = nullptr; },
      [](mlx5dv_cq& cq) { cq.dbrec = nullptr; },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    mlx5dv_cq changed = direct_cq_;
    changes[i](changed);
    const auto ring = ring_of(changed);
    ASSERT_FALSE(ring) << i;
    EXPECT_FALSE(ring.error().next.empty()) << i;
  }
}

}  // namespace

}  // namespace rodeo::dv::mlx5
