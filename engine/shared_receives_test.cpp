// SPDX-License-Identifier: Apache-2.0

// Connections that take their receives from one queue (Config::shared_receives): what one leaves serves the others, and
// one that takes more than it was granted takes nothing away from them for long. That grants and everything else that
// a peer sees are as with private queues, other tests show, which run both ways (F37).

#include <array>
#include <deque>
#include <vector>

#include "engine/test_pair.h"

namespace rodeo {
namespace {

using test::Pair;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;

std::deque<DeferredCall> held;

/// 0 answers at once, 1 when the test says.
[[nodiscard]] Program program() {
  const Handler answer = [](Call& call, void*) noexcept { call.reply(); };
  const Handler hold = [](Call& call, void*) noexcept { held.push_back(call.defer()); };
  return {
      .number = kProgram,
      .version = 1,
      .name = "test",
      .procedures = {{.number = 0, .name = "NULL", .handler = answer}, {.number = 1, .name = "HOLD", .handler = hold}}};
}
const std::array kTargets{CallTarget(kProgram, 1, 0, {}), CallTarget(kProgram, 1, 1, {})};

[[nodiscard]] Config shared_config(std::uint32_t credits) {
  Config config = test::small_config();
  config.shared_receives = true;
  config.credits = credits;
  return config;
}

/// Buffers of receives: posted, or with a message whose Call is not answered.
[[nodiscard]] std::size_t receives(const Engine& engine) {
  const std::string text = engine.audit().second;  // "small buffers: ..., N held; ..."
  const std::size_t end = text.find(" held");
  EXPECT_NE(end, std::string::npos) << text;
  return std::stoul(text.substr(text.rfind(' ', end - 1)));
}

void call_well(Pair& pair, Connection& connection, int times) {
  for (int i = 0; i < times; ++i) {
    Seen seen;
    ASSERT_EQ(connection.submit({.target = &kTargets[0], .on_reply = Seen::on_reply, .context = &seen}),
              SubmitOutcome::kPosted);
    pair.until([&] { return seen.times == 1; });
    ASSERT_EQ(seen.error, CallError::kNone);
  }
}

TEST(SharedReceives, WhatAConnectionLeavesServesTheOthers) {
  Pair pair(program(), shared_config(8), shared_config(8));
  Connection* first = pair.connect();
  Connection* second = pair.connect();
  call_well(pair, *first, 20);
  call_well(pair, *second, 20);
  const std::size_t of_two = receives(*pair.server);
  EXPECT_EQ(of_two, 16U) << "a receive for each credit of both";
  pair.client->disconnect(first);
  pair.until([&] { return pair.client->connection_count() == 1 && pair.server->connection_count() == 1; });
  EXPECT_EQ(receives(*pair.server), of_two) << "they cannot be taken out of the queue";
  call_well(pair, *second, 50);
  Connection* third = pair.connect();
  call_well(pair, *third, 50);
  EXPECT_EQ(receives(*pair.server), of_two) << "the third has those of the first";
  pair.client->disconnect(second);
  pair.client->disconnect(third);
  pair.until([&] { return pair.client->connection_count() == 0 && pair.server->connection_count() == 0; });
  EXPECT_EQ(receives(*pair.server), 0U) << "nobody takes from the queue any more";
  EXPECT_EQ(receives(*pair.client), 0U);
  call_well(pair, *pair.connect(), 50);
  test::expect_adds_up(*pair.server);
  test::expect_adds_up(*pair.client);
}

TEST(SharedReceives, ManyConnectionsComeAndGoBesideOneThatStays) {
  constexpr int kRounds = 200;
  Pair pair(program(), shared_config(8), shared_config(8));
  Connection* stays = pair.connect();
  call_well(pair, *stays, 3);
  for (int i = 0; i < kRounds; ++i) {
    Connection* guest = pair.connect();
    // It goes while a Call of its own has no Reply.
    Seen seen;
    ASSERT_EQ(guest->submit({.target = &kTargets[1], .on_reply = Seen::on_reply, .context = &seen}),
              SubmitOutcome::kPosted);
    pair.until([] { return held.size() == 1; });
    pair.client->disconnect(guest);
    pair.until([&] { return seen.times == 1; });
    held.front().reply();
    held.clear();
    call_well(pair, *stays, 10);
    pair.until([&] { return pair.client->connection_count() == 1 && pair.server->connection_count() == 1; });
  }
  EXPECT_LE(receives(*pair.server), 16U);
  pair.client->disconnect(stays);
  pair.until([&] { return pair.server->connection_count() == 0; });
  EXPECT_EQ(receives(*pair.server), 0U);
  test::expect_adds_up(*pair.server);
  test::expect_adds_up(*pair.client);
}

/// A Requester of raw Sends with two connections from one poll group, which thus share a queue at the Responder.
class TwoConnections {
 public:
  explicit TwoConnections(Pair& pair) : pair_(pair) {
    const auto address = test::must(dv::Address::parse(pair.address));
    device_ = test::must(dv::open_soft_device(address));
    region_ = test::must(device_->register_memory(arena_.bytes(), arena_.fd(), 0, dv::Access::kRemoteReadWrite));
    group_ = test::must(device_->make_poll_group());
    for (End& end : ends_) {
      end.id = test::must(device_->connect(address, *group_));
      until([&] { return end.established; });
    }
  }

  void call(std::size_t which, std::uint32_t procedure) {
    const std::uint32_t xid = ++xid_;
    const auto message = test::bytes_of({xid, 1, 4, 0, 0, 0, 0, xid, 0, 2, kProgram, 1, procedure, 0, 0, 0, 0});
    std::byte* out = ends_[which].qp->post_inline_send(static_cast<std::uint32_t>(message.size()));
    ASSERT_NE(out, nullptr);
    std::memcpy(out, message.data(), message.size());
    ends_[which].qp->ring_doorbell();
  }
  [[nodiscard]] int replies(std::size_t which) const { return ends_[which].replies; }

  void leave(std::size_t which) {
    End& end = ends_[which];
    device_->disconnect(end.id);
    device_->move_to_error(*end.qp);
    ASSERT_TRUE(end.qp->post_drain(1));
    end.qp->ring_doorbell();
    until([&] { return end.qp->drained(); });
    device_->destroy(end.id);
    end.qp = nullptr;
  }
  void until(const std::function<bool()>& done) {
    pair_.until([&] {
      poll();
      return done();
    });
  }

 private:
  static constexpr std::size_t kBuffer = 4096;
  static constexpr std::size_t kReceives = 16;
  struct End {
    dv::CmId id{};
    dv::mlx5::Qp* qp = nullptr;
    bool established = false;
    int replies = 0;
  };

  void make_qp(End& end) {
    end.qp = test::must(device_->make_qp(end.id, {.send_depth = 64, .receive_depth = kReceives}));
    const std::size_t first = static_cast<std::size_t>(&end - ends_.data()) * kReceives;
    for (std::size_t i = 0; i < kReceives; ++i) {
      ASSERT_TRUE(end.qp->post_receive(arena_.bytes().data() + (first + i) * kBuffer, kBuffer, region_.lkey));
    }
    end.qp->publish_receives();
    ASSERT_TRUE(device_->finish_connect(end.id, encode_private_data({.send_size = 4096, .receive_size = 4096})));
  }
  void poll() {
    while (auto event = device_->next_event()) {
      for (End& end : ends_) {
        if (end.id != event->id) continue;
        if (event->kind == dv::CmEventKind::kRouteResolved) make_qp(end);
        if (event->kind == dv::CmEventKind::kEstablished) end.established = true;
      }
    }
    dv::Completion completion;
    while (dv::poll_into(*group_, {&completion, 1}) != 0) {
      for (End& end : ends_) {
        if (end.qp == nullptr || end.qp->qpn() != completion.qpn()) continue;
        if (completion.kind == dv::CompletionKind::kSendQueue) {
          end.qp->retire_send(completion, [](dv::Token) {});
        } else if (std::byte* buffer = end.qp->take_receive(completion); completion.status == dv::Status::kSuccess) {
          ++end.replies;
          ASSERT_TRUE(end.qp->post_receive(buffer, kBuffer, region_.lkey));
          end.qp->publish_receives();
        }
      }
    }
    group_->progress();
  }

  Pair& pair_;
  std::unique_ptr<dv::mlx5::Device> device_;
  pools::Arena arena_ = test::must(pools::Arena::create({.bytes = 2 * kReceives * kBuffer, .hugepages = false}));
  dv::MemoryRegion region_;
  dv::mlx5::PollGroup* group_ = nullptr;
  std::array<End, 2> ends_;
  std::uint32_t xid_ = 0;
};

TEST(SharedReceives, WhoTakesMoreThanItWasGrantedGivesItBackWhenItGoes) {
  constexpr std::uint32_t kCredits = 4;
  Pair pair(program(), shared_config(kCredits));
  TwoConnections peer(pair);
  EXPECT_EQ(receives(*pair.server), 2 * kCredits);
  // Six Calls where four are granted: two take the other connection's receives.
  for (int i = 0; i < 6; ++i) peer.call(0, 1);
  peer.until([] { return held.size() == 6; });
  EXPECT_EQ(receives(*pair.server), 2 * kCredits);
  peer.leave(0);
  for (DeferredCall& call : held) call.reply();
  held.clear();
  peer.until([&] { return pair.server->connection_count() == 1; });
  EXPECT_EQ(receives(*pair.server), 4U) << "just the other's";
  for (std::uint32_t i = 0; i < kCredits; ++i) peer.call(1, 1);
  peer.until([] { return held.size() == kCredits; });
  for (DeferredCall& call : held) call.reply();
  held.clear();
  peer.until([&] { return peer.replies(1) == kCredits; });
  for (int i = 0; i < 100; ++i) {
    peer.call(1, 0);
    peer.until([&] { return peer.replies(1) == static_cast<int>(kCredits) + 1 + i; });
  }
  peer.leave(1);
  peer.until([&] { return pair.server->connection_count() == 0; });
  EXPECT_EQ(receives(*pair.server), 0U);
  test::expect_adds_up(*pair.server);
}

TEST(SharedReceives, AFullQueueRefusesTheConnectionThatDoesNotFit) {
  // 16,383 receives are what a queue holds; each connection has 4,000.
  Config server = shared_config(4000);
  server.connections = 5;
  Config client = server;
  client.credits = 4000;
  Pair pair(program(), server, client);
  std::vector<Connection*> connections;
  for (int i = 0; i < 4; ++i) connections.push_back(pair.connect());
  const std::uint64_t attempt = test::must(pair.client->begin_connect(pair.address, 0, 4000));
  std::string why;
  pair.until([&] {
    const auto connection = pair.client->finish_connect(attempt);
    if (!connection) why = connection.error().message();
    return !connection || *connection != nullptr;
  });
  EXPECT_NE(why.find("places in a shared receive queue"), std::string::npos) << why;
  for (Connection* connection : connections) call_well(pair, *connection, 3);
}

}  // namespace
}  // namespace rodeo
