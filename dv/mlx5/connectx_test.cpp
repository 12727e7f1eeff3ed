// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/connectx.h"

#include <gtest/gtest.h>

#include <vector>

#include "dv/mlx5/poll_group.h"

namespace rodeo::dv::mlx5 {

TEST(ConnectX, ADeviceThatIsNotThereIsAnErrorThatNamesIt) {
  const auto device = ConnectX::open("no_such_device");
  ASSERT_FALSE(device);
  EXPECT_NE(device.error().what.find("no_such_device"), std::string::npos);
  EXPECT_FALSE(device.error().next.empty());
}

TEST(ConnectX, TwoQueuePairsOfOneDeviceExchangeAMessage) {
  if (ConnectX::names().empty()) GTEST_SKIP() << "this host has no mlx5 device";
  auto device = ConnectX::open("");
  ASSERT_TRUE(device) << device.error().message();
  std::vector<std::byte> memory(8192);
  const auto region = (*device)->register_memory(memory, Access::kRemoteReadWrite);
  ASSERT_TRUE(region) << region.error().message();
  auto send_cq = (*device)->make_cq(256);
  auto receive_cq = (*device)->make_cq(256);
  ASSERT_TRUE(send_cq && receive_cq);
  auto here = (*device)->make_qp(*send_cq, *receive_cq, {});
  auto there = (*device)->make_qp(*send_cq, *receive_cq, {});
  ASSERT_TRUE(here && there);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(here->qp->context, 1, &port), 0);
  ConnectX::Peer to_there{.qpn = there->rings.qpn, .psn = 1, .lid = port.lid, .gid = {}};
  ConnectX::Peer to_here{.qpn = here->rings.qpn, .psn = 2, .lid = port.lid, .gid = {}};
  ASSERT_EQ(ibv_query_gid(here->qp->context, 1, 0, &to_there.gid), 0);
  to_here.gid = to_there.gid;
  ASSERT_TRUE((*device)->connect_qp(*here, to_there, 2));
  ASSERT_TRUE((*device)->connect_qp(*there, to_here, 1));
  Qp sender(here->rings);
  Qp receiver(there->rings);
  Cq arrivals(receive_cq->ring);
  ASSERT_TRUE(receiver.post_receive(memory.data(), 4096, region->lkey));
  receiver.publish_receives();
  std::byte* bytes = sender.post_inline_send(5);
  ASSERT_NE(bytes, nullptr);
  std::memcpy(bytes, "hello", 5);
  sender.ring_doorbell();
  std::array<Completion, 1> one;
  std::size_t n = 0;
  for (int i = 0; i < 100'000'000 && n == 0; ++i) n = poll_into(arrivals, one);
  ASSERT_EQ(n, 1U);
  EXPECT_EQ(one[0].status, Status::kSuccess);
  EXPECT_EQ(receiver.take_receive(one[0]), memory.data());
  EXPECT_EQ(std::memcmp(memory.data(), "hello", 5), 0);
  EXPECT_TRUE(ConnectX::move_to_error(*here));
  EXPECT_TRUE(ConnectX::move_to_error(*there));
}

}  // namespace rodeo::dv::mlx5
