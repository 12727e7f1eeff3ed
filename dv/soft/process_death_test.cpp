// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <string>

#include "dv/soft/party.h"
#include "pools/sanitizers.h"

// A peer may be killed at any moment. Whoever survives must hear of it, get every work request back, and hold nothing
// of the dead any more.

namespace rodeo::dv::suite {

namespace {

std::size_t shared_mappings() {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find("memfd:") != std::string::npos ? 1U : 0U;
  return count;
}

using ProcessDeath = BetweenProcesses;

}  // namespace

TEST_F(ProcessDeath, AServerSurvivesClientsThatAreKilledInMidTraffic) {
  constexpr int kKills = 30;
  Party server("victims");
  ASSERT_TRUE(server.device->listen(server.address));
  std::minstd_rand random(1);
  std::size_t files = 0;
  std::size_t mappings = 0;
  for (int round = 0; round < kKills; ++round) {
    const pid_t child = in_child([] {
      Party client("victims");
      if (!client.connect(64)) _exit(1);
      std::size_t credit = 32;
      for (;;) client.chat(credit);
    });
    ASSERT_GT(child, 0);
    ASSERT_TRUE(server.accept(64)) << round;
    std::size_t credit = 16;
    const auto until = Clock::now() + std::chrono::microseconds(random() % 3000);
    while (Clock::now() < until) server.chat(credit);
    kill(child, SIGKILL);
    const auto killed = Clock::now();
    while (!server.has(CmEventKind::kDisconnected) && Clock::now() - killed < kPatience) server.chat(credit);
    EXPECT_TRUE(server.has(CmEventKind::kDisconnected)) << round;
    ASSERT_TRUE(server.clean_up()) << round;
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    if (round == 0) {
      files = open_files();
      mappings = shared_mappings();
    }
  }
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(shared_mappings(), mappings);
  EXPECT_EQ(mappings, 1U) << "only our own memory is mapped";
}

TEST_F(ProcessDeath, AClientSurvivesServersThatAreKilledInMidTraffic) {
  constexpr int kKills = 30;
  Party client("server");
  std::minstd_rand random(2);
  std::size_t files = 0;
  for (int round = 0; round < kKills; ++round) {
    const pid_t child = in_child([] {
      Party server("server");
      if (!server.device->listen(server.address) || !server.accept(64)) _exit(1);
      std::size_t credit = 16;
      for (;;) server.chat(credit);
    });
    ASSERT_GT(child, 0);
    ASSERT_TRUE(client.connect(64)) << round;
    std::size_t credit = 32;
    const auto until = Clock::now() + std::chrono::microseconds(random() % 3000);
    while (Clock::now() < until) client.chat(credit);
    kill(child, SIGKILL);
    const auto killed = Clock::now();
    while (!client.has(CmEventKind::kDisconnected) && Clock::now() - killed < kPatience) client.chat(credit);
    EXPECT_TRUE(client.has(CmEventKind::kDisconnected)) << round;
    ASSERT_TRUE(client.clean_up()) << round;
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    if (round == 0) files = open_files();
  }
  EXPECT_EQ(open_files(), files);
  EXPECT_EQ(shared_mappings(), 1U);
}

TEST_F(ProcessDeath, SendsThatWaitForADeadPeersReceiveComeBack) {
  Party server("stalled");
  ASSERT_TRUE(server.device->listen(server.address));
  const pid_t child = in_child([] {
    Party client("stalled");
    if (!client.connect(0)) _exit(1);
    for (;;) pause();
  });
  ASSERT_TRUE(server.accept(8));
  for (Token token = 1; token <= 4; ++token) ASSERT_TRUE(server.end.qp->post_send({}, token));
  server.end.qp->ring_doorbell();
  for (int i = 0; i < 100; ++i) server.turn();
  EXPECT_TRUE(server.end.tokens.empty());
  kill(child, SIGKILL);
  ASSERT_TRUE(server.run_until([&] { return server.end.tokens.size() == 4; }, kPatience));
  EXPECT_EQ(server.end.send_errors.at(0).status, Status::kRetryExceeded);
  EXPECT_EQ(server.end.send_errors.at(1).status, Status::kFlushed);
  EXPECT_TRUE(server.has(CmEventKind::kDisconnected));
  EXPECT_TRUE(server.clean_up());
  waitpid(child, nullptr, 0);
}

TEST_F(ProcessDeath, AStoppedPeerDelaysOnlyItsOwnTeardown) {
  Party server("stopped");
  ASSERT_TRUE(server.device->listen(server.address));
  const pid_t child = in_child([] {
    Party client("stopped");
    if (!client.connect(64)) _exit(1);
    std::size_t credit = 8;
    for (;;) client.chat(credit);
  });
  ASSERT_TRUE(server.accept(64));
  std::size_t credit = 8;
  for (int i = 0; i < 1000; ++i) server.chat(credit);
  kill(child, SIGSTOP);
  server.device->disconnect(server.end.id);
  server.device->move_to_error(*server.end.qp);
  ASSERT_FALSE(server.run_until([&] { return server.end.qp->drained(); }, milliseconds(100)))
      << "a stopped process may still write into our receives";
  kill(child, SIGKILL);
  ASSERT_TRUE(server.clean_up());
  waitpid(child, nullptr, 0);
}

TEST_F(ProcessDeath, ThousandsOfConnectionsLeaveNothingBehind) {
  constexpr int kCycles = pools::kSanitized ? 500 : 5000;
  Party server("cycles");
  Party client("cycles");
  ASSERT_TRUE(server.device->listen(server.address));
  std::size_t files = 0;
  std::size_t mappings = 0;
  for (int round = 0; round < kCycles; ++round) {
    auto id = client.device->connect(client.address, *client.end.group);
    ASSERT_TRUE(id) << round << id.error().message();
    client.end.id = *id;
    const auto both = [&](auto done) {
      return client.run_until([&] {
        server.turn();
        return done();
      });
    };
    ASSERT_TRUE(both([&] { return client.has(CmEventKind::kRouteResolved); })) << round;
    client.end.qp = *client.device->make_qp(*id, kPartySizes);
    client.end.post_receives(4);
    ASSERT_TRUE(client.device->finish_connect(*id, {}));
    ASSERT_TRUE(both([&] { return server.has(CmEventKind::kConnectRequest); })) << round;
    server.end.id = server.end.events.back().id;
    server.end.qp = *server.device->make_qp(server.end.id, kPartySizes);
    server.end.post_receives(4);
    ASSERT_TRUE(server.device->accept(server.end.id, {}));
    ASSERT_TRUE(both([&] { return client.has(CmEventKind::kEstablished) && server.has(CmEventKind::kEstablished); }));
    client.device->disconnect(*id);
    ASSERT_TRUE(both([&] { return server.has(CmEventKind::kDisconnected); })) << round;
    for (Party* party : {&client, &server}) {
      party->device->move_to_error(*party->end.qp);
      ASSERT_TRUE(party->end.qp->post_drain(kNoToken));
      party->end.qp->ring_doorbell();
    }
    ASSERT_TRUE(both([&] { return client.end.qp->drained() && server.end.qp->drained(); })) << round;
    ASSERT_TRUE(client.clean_up());
    ASSERT_TRUE(server.clean_up());
    if (round == 10) {
      files = open_files();
      mappings = shared_mappings();
    }
  }
  server.turn();
  EXPECT_LE(open_files(), files);
  EXPECT_LE(shared_mappings(), mappings);
}

TEST_F(ProcessDeath, AThousandConnectionsLiveAtOnce) {
  constexpr std::size_t kConnections = 1000;
  Party server("thousand");
  Party client("thousand");
  ASSERT_TRUE(server.device->listen(server.address));
  const std::size_t files_before = open_files();
  std::vector<CmId> ids;
  std::vector<mlx5::Qp*> client_qps;
  std::vector<mlx5::Qp*> server_qps;
  for (std::size_t i = 0; i < kConnections; ++i) {
    ids.push_back(*client.device->connect(client.address, *client.end.group));
  }
  std::size_t established = 0;
  const auto serve = [&](Party& party, std::vector<mlx5::Qp*>& qps) {
    while (auto event = party.device->next_event()) {
      if (event->kind == CmEventKind::kEstablished) ++established;
      if (event->kind != CmEventKind::kRouteResolved && event->kind != CmEventKind::kConnectRequest) continue;
      auto qp = party.device->make_qp(event->id, {.send_depth = 8, .receive_depth = 8});
      ASSERT_TRUE(qp) << qp.error().message();
      qps.push_back(*qp);
      for (int k = 0; k < 4; ++k) {
        ASSERT_TRUE((*qp)->post_receive(party.end.buffer(0), End::kBufferBytes, party.end.region.lkey));
      }
      (*qp)->publish_receives();
      const bool active = event->kind == CmEventKind::kRouteResolved;
      ASSERT_TRUE(active ? party.device->finish_connect(event->id, {}) : party.device->accept(event->id, {}));
    }
  };
  const auto limit = Clock::now() + std::chrono::seconds(30);
  while (established < 2 * kConnections && Clock::now() < limit) {
    ASSERT_NO_FATAL_FAILURE(serve(client, client_qps));
    ASSERT_NO_FATAL_FAILURE(serve(server, server_qps));
  }
  ASSERT_EQ(established, 2 * kConnections);
  EXPECT_LE(open_files() - files_before, 2 * kConnections + 8) << "one socket for each end";
  for (mlx5::Qp* qp : client_qps) {
    std::byte* bytes = qp->post_inline_send(8);
    ASSERT_NE(bytes, nullptr);
    std::memset(bytes, 1, 8);
    qp->ring_doorbell();
  }
  std::size_t got = 0;
  std::array<Completion, 64> batch;
  while (got < kConnections && Clock::now() < limit) {
    const std::size_t n = poll_into(*server.end.group, batch);
    for (std::size_t i = 0; i < n; ++i) got += batch[i].status == Status::kSuccess ? 1U : 0U;
    client.end.group->progress();
  }
  EXPECT_EQ(got, kConnections);
}

}  // namespace rodeo::dv::suite
