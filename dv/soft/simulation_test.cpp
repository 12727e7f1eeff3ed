// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "dv/provider_suite.h"
#include "dv/soft/fabric.h"

// The scheduled fabric: the same seed gives the same run, different seeds give different ones, a log of choices
// replays; and planned faults happen where they were planned.

namespace rodeo::dv::suite {

namespace {

constexpr QpSizes kSizes{.send_depth = 64, .receive_depth = 64};

/// Two connected ends on a scheduled fabric, with a log of what each of them saw.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed, std::uint32_t rnr_retry = 7, std::vector<std::uint32_t> choices = {})
      : fabric(soft::Fabric::Mode::kScheduled, seed) {
    fabric.replay(std::move(choices));
    for (std::size_t i = 0; i < ends.size(); ++i) {
      devices[i] = std::move(*fabric.open_device({.rnr_retry = rnr_retry}));
      End& end = ends[i];
      end.device = devices[i].get();
      end.memory = std::make_unique<SharedBytes>(End::kBytes);
      end.region = *end.device->register_memory(end.memory->bytes(), -1, 0, Access::kRemoteReadWrite);
      end.group = *end.device->make_poll_group();
    }
    const Address address{Address::Scheme::kSimulated, "s", 0};
    EXPECT_TRUE(b.device->listen(address));
    a.id = *a.device->connect(address, *a.group);
    wait_for([&] { return has(a, CmEventKind::kRouteResolved); });
    a.qp = *a.device->make_qp(a.id, kSizes);
    a.post_receives(32);
    EXPECT_TRUE(a.device->finish_connect(a.id, {}));
    wait_for([&] { return has(b, CmEventKind::kConnectRequest); });
    b.id = b.events.back().id;
    b.qp = *b.device->make_qp(b.id, kSizes);
    b.post_receives(32);
    EXPECT_TRUE(b.device->accept(b.id, {}));
    wait_for([&] { return has(a, CmEventKind::kEstablished) && has(b, CmEventKind::kEstablished); });
  }

  [[nodiscard]] static bool has(const End& end, CmEventKind kind) {
    for (const CmEvent& event : end.events) {
      if (event.kind == kind) return true;
    }
    return false;
  }
  void look(std::size_t which) {
    End& end = ends[which];
    while (auto event = end.device->next_event()) end.events.push_back(std::move(*event));
    std::array<Completion, 1> one;
    while (poll_into(*end.group, one) == 1) {
      if (end.qp == nullptr || one[0].qpn() != end.qp->qpn()) continue;
      log += std::to_string(which) + (one[0].kind == CompletionKind::kSendQueue ? 's' : 'r') +
             std::to_string(static_cast<int>(one[0].status)) + ' ';
      if (one[0].kind == CompletionKind::kSendQueue) {
        if (one[0].status != Status::kSuccess) end.send_errors.push_back(one[0]);
        end.qp->retire_send(one[0], [&](Token token) { end.tokens.push_back(token); });
      } else {
        end.arrivals.push_back({one[0], end.qp->take_receive(one[0])});
      }
    }
    end.group->progress();
  }
  bool wait_for(const std::function<bool()>& done) {
    for (int i = 0; i < 100'000 && !done(); ++i) {
      fabric.step();
      for (std::size_t which = 0; which < ends.size(); ++which) look(which);
    }
    return done();
  }
  /// Work in both directions, all of whose completions race.
  void exchange() {
    for (Token token = 1; token <= 8; ++token) {
      EXPECT_TRUE(a.qp->post_send(std::array{a.sge(0, 100)}, token));
      EXPECT_TRUE(b.qp->post_send(std::array{b.sge(0, 100)}, token));
    }
    a.qp->ring_doorbell();
    b.qp->ring_doorbell();
    EXPECT_TRUE(wait_for([&] {
      return a.tokens.size() == 8 && b.tokens.size() == 8 && a.arrivals.size() == 8 && b.arrivals.size() == 8;
    }));
  }

  soft::Fabric fabric;
  std::array<std::unique_ptr<mlx5::Device>, 2> devices;
  std::array<End, 2> ends;
  End& a = ends[0];
  End& b = ends[1];
  std::string log;
};

constexpr std::uint64_t opcode_bit(unsigned opcode) { return std::uint64_t{1} << opcode; }

}  // namespace

TEST(Simulation, TheSameSeedGivesTheSameRun) {
  Simulation first(42);
  first.exchange();
  Simulation second(42);
  second.exchange();
  EXPECT_EQ(first.log, second.log);
  EXPECT_EQ(first.fabric.choices(), second.fabric.choices());
}

TEST(Simulation, SeedsDifferInTheOrderOfWhatIsUnordered) {
  std::set<std::string> logs;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Simulation simulation(seed);
    simulation.exchange();
    logs.insert(simulation.log);
  }
  EXPECT_GT(logs.size(), 15U);
}

TEST(Simulation, ALogOfChoicesReplaysUnderAnotherSeed) {
  Simulation original(7);
  original.exchange();
  Simulation replayed(8, 7, original.fabric.choices());
  replayed.exchange();
  EXPECT_EQ(original.log, replayed.log);
}

TEST(Simulation, NothingHappensWithoutAStep) {
  Simulation simulation(3);
  ASSERT_TRUE(simulation.a.send("later"));
  simulation.a.qp->ring_doorbell();
  for (int i = 0; i < 10; ++i) simulation.look(1);
  EXPECT_TRUE(simulation.b.arrivals.empty());
  simulation.fabric.run_until_idle();
  simulation.look(1);
  EXPECT_EQ(simulation.b.arrivals.size(), 1U);
}

TEST(Simulation, AReplyCanOvertakeTheCompletionOfTheSendThatAskedForIt) {
  bool overtook = false;
  for (std::uint64_t seed = 1; seed <= 40 && !overtook; ++seed) {
    Simulation simulation(seed);
    ASSERT_TRUE(simulation.a.qp->post_send({}, 1));
    simulation.a.qp->ring_doorbell();
    ASSERT_TRUE(simulation.wait_for([&] { return !simulation.b.arrivals.empty(); }));
    ASSERT_TRUE(simulation.b.send("reply"));
    simulation.b.qp->ring_doorbell();
    ASSERT_TRUE(simulation.wait_for([&] { return !simulation.a.arrivals.empty(); }));
    overtook = simulation.a.tokens.empty();
  }
  EXPECT_TRUE(overtook);
}

TEST(Simulation, TheDataOfAReadCanLagBehindALaterSend) {
  bool lagged = false;
  for (std::uint64_t seed = 1; seed <= 40 && !lagged; ++seed) {
    Simulation simulation(seed);
    simulation.b.at(0)[0] = std::byte{0x7e};
    ASSERT_TRUE(simulation.a.qp->post_read(std::array{simulation.a.sge(0, 1)}, simulation.b.remote(0), 1));
    ASSERT_TRUE(simulation.a.send("after the read"));
    simulation.a.qp->ring_doorbell();
    ASSERT_TRUE(simulation.wait_for([&] { return !simulation.b.arrivals.empty(); }));
    lagged = simulation.a.at(0)[0] != std::byte{0x7e};
    ASSERT_TRUE(simulation.wait_for([&] { return !simulation.a.tokens.empty(); }));
    ASSERT_EQ(simulation.a.at(0)[0], std::byte{0x7e}) << "it is there when it completes";
  }
  EXPECT_TRUE(lagged);
}

TEST(Faults, ADelayPassesOnTheSimulatedClock) {
  Simulation simulation(1);
  simulation.fabric.load_faults(
      {{{.opcodes = opcode_bit(MLX5_OPCODE_SEND), .nth = 1, .action = soft::FaultAction::kDelay, .value = 5'000'000}}});
  const std::uint64_t before = simulation.fabric.now_ns();
  ASSERT_TRUE(simulation.a.qp->post_send({}, 1));
  simulation.a.qp->ring_doorbell();
  ASSERT_TRUE(simulation.wait_for([&] { return simulation.b.arrivals.size() == 1; }));
  EXPECT_GE(simulation.fabric.now_ns() - before, 5'000'000U);
}

TEST(Faults, TheNthMatchFailsWithTheChosenSyndromeAtBothEnds) {
  Simulation simulation(2);
  simulation.fabric.load_faults({{{.device = 0,
                                   .opcodes = opcode_bit(MLX5_OPCODE_RDMA_WRITE),
                                   .nth = 3,
                                   .action = soft::FaultAction::kSyndrome,
                                   .value = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR}}});
  for (Token token = 1; token <= 4; ++token) {
    ASSERT_TRUE(simulation.a.qp->post_write(std::array{simulation.a.sge(0, 8)}, simulation.b.remote(0), token));
  }
  simulation.a.qp->ring_doorbell();
  ASSERT_TRUE(simulation.wait_for([&] { return simulation.a.tokens.size() == 4; }));
  ASSERT_EQ(simulation.a.send_errors.size(), 2U);
  EXPECT_EQ(simulation.a.send_errors[0].status, Status::kRemoteAccess);
  EXPECT_EQ(simulation.a.send_errors[1].status, Status::kFlushed);
  ASSERT_TRUE(simulation.wait_for([&] { return simulation.b.arrivals.size() == 32; }));
  EXPECT_EQ(simulation.b.arrivals.front().completion.status, Status::kFlushed);
}

TEST(Faults, AReceiverThatIsNotReadyForTooLongFailsTheSend) {
  for (const std::uint64_t times : {3U, 4U}) {
    Simulation simulation(4, 3);
    simulation.fabric.load_faults({{{.nth = 1, .action = soft::FaultAction::kNotReady, .value = times}}});
    ASSERT_TRUE(simulation.a.qp->post_send({}, 1));
    simulation.a.qp->ring_doorbell();
    ASSERT_TRUE(simulation.wait_for([&] { return simulation.a.tokens.size() == 1; }));
    if (times == 3) {
      EXPECT_TRUE(simulation.a.send_errors.empty());
    } else {
      ASSERT_EQ(simulation.a.send_errors.size(), 1U);
      EXPECT_EQ(simulation.a.send_errors[0].status, Status::kRnrRetryExceeded);
    }
  }
}

TEST(Faults, ADroppedConnectionIsHeardOfAtBothEnds) {
  Simulation simulation(5);
  simulation.fabric.load_faults({{{.device = 0, .nth = 2, .action = soft::FaultAction::kDisconnect}}});
  for (Token token = 1; token <= 3; ++token) ASSERT_TRUE(simulation.a.qp->post_send({}, token));
  simulation.a.qp->ring_doorbell();
  ASSERT_TRUE(simulation.wait_for([&] {
    return Simulation::has(simulation.a, CmEventKind::kDisconnected) &&
           Simulation::has(simulation.b, CmEventKind::kDisconnected) && simulation.a.tokens.size() == 3;
  }));
  EXPECT_EQ(simulation.a.send_errors.at(0).status, Status::kRetryExceeded);
  EXPECT_EQ(simulation.b.arrivals.size(), 1U);
  simulation.b.device->move_to_error(*simulation.b.qp);
  simulation.a.device->move_to_error(*simulation.a.qp);
  EXPECT_TRUE(simulation.wait_for([&] { return simulation.a.qp->drained() && simulation.b.qp->drained(); }));
}

TEST(Faults, AKilledPeerStopsAndTheSurvivorDrains) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    Simulation simulation(seed);
    simulation.fabric.load_faults({{{.device = 0, .nth = 4, .action = soft::FaultAction::kKillPeer}}});
    for (Token token = 1; token <= 6; ++token) {
      ASSERT_TRUE(simulation.a.qp->post_send({}, token));
      ASSERT_TRUE(simulation.b.qp->post_send({}, token));
    }
    simulation.a.qp->ring_doorbell();
    simulation.b.qp->ring_doorbell();
    ASSERT_TRUE(simulation.wait_for([&] { return Simulation::has(simulation.a, CmEventKind::kDisconnected); }));
    EXPECT_FALSE(Simulation::has(simulation.b, CmEventKind::kDisconnected)) << "the dead hear nothing";
    simulation.a.device->move_to_error(*simulation.a.qp);
    ASSERT_TRUE(simulation.a.qp->post_drain(kNoToken));
    simulation.a.qp->ring_doorbell();
    EXPECT_TRUE(simulation.wait_for([&] { return simulation.a.qp->drained(); })) << seed;
  }
}

TEST(Faults, AKilledDeviceOfAnImmediateFabricIsGoneAtOnce) {
  soft::Fabric fabric;
  auto survivor = std::move(*fabric.open_device());
  auto victim = std::move(*fabric.open_device());
  mlx5::PollGroup* group = *survivor->make_poll_group();
  ASSERT_TRUE(victim->make_poll_group());
  const Address address{Address::Scheme::kSimulated, "victim", 0};
  ASSERT_TRUE(victim->listen(address));
  fabric.kill_device(1);
  EXPECT_FALSE(survivor->connect(address, *group));
}

}  // namespace rodeo::dv::suite
