// SPDX-License-Identifier: Apache-2.0

// Faults that were met in the field (../shared/field-faults.md) and are a matter of when things happen: completions
// that come after the Reply, and a network that loses. Two engines on the scheduled fabric, where what is unordered
// comes in any order and a fault is where it was planned.

#include <deque>
#include <random>
#include <string>

#include "engine/fault_matrix.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using dv::soft::FaultAction;
using test::Node;
using test::Shape;
using test::ShapedCall;

[[nodiscard]] Config config() {
  Config config;
  config.hugepages = false;
  config.credits = test::kMaxWindow;
  config.connections = 1;
  config.small_buffers = 128;
  config.bulk_bytes = 16384;
  config.bulk_buffers = 24;
  config.application_bytes = test::kPatternAt + test::kPatternBytes;
  return config;
}

/// A Requester and a Responder, and calls of one shape between them.
class Two {
 public:
  explicit Two(std::uint64_t seed)
      : fabric(dv::soft::Fabric::Mode::kScheduled, seed),
        random_(seed),
        requester(fabric, 0, config()),
        responder(fabric, 1, config()) {
    EXPECT_TRUE(responder.engine->listen("sim:responder"));
    connect();
    static const Shape kFirst{.name = "first"};
    call_all(kFirst, 1);
  }

  void connect() {
    const auto attempt = requester.engine->begin_connect("sim:responder", 0, 0);
    ASSERT_TRUE(attempt);
    connection = nullptr;
    until([&] {
      auto made = requester.engine->finish_connect(*attempt);
      if (!made) {
        ADD_FAILURE() << made.error().message();
        return true;
      }
      connection = *made;
      return connection != nullptr;
    });
  }
  ShapedCall& prepare(const Shape& shape) {
    ShapedCall& call = calls.emplace_back();
    ++last_id_;
    call.prepare(shape, last_id_, requester.slot(last_id_ % test::kMaxWindow));
    return call;
  }
  /// So many calls, all of which are to succeed or, where `may_be_lost`, end with their connection.
  void call_all(const Shape& shape, std::size_t count, bool may_be_lost = false) {
    calls.clear();
    for (std::size_t i = 0; i < count; ++i) prepare(shape);
    until([&] {
      bool over = true;
      for (ShapedCall& call : calls) {
        if (!call.posted() && connection->open()) (void)call.submit(*connection);
        over = over && (call.posted() ? call.times() != 0 : !connection->open());
      }
      return over;
    });
    for (const ShapedCall& call : calls) {
      EXPECT_EQ(call.complaint(), "");
      EXPECT_LE(call.times(), 1);
      if (!may_be_lost || (call.posted() && call.error() != CallError::kConnectionLost)) {
        EXPECT_TRUE(call.succeeded()) << to_string(call.error());
      }
    }
  }

  void turn() {
    requester.engine->step();
    responder.engine->step();
    for (std::uint64_t steps = random_() % 4; steps != 0; --steps) static_cast<void>(fabric.step());
  }
  void until(const std::function<bool()>& done) {
    for (int i = 0; i < 200'000; ++i) {
      if (done()) return;
      turn();
    }
    ADD_FAILURE() << "it did not happen";
  }
  /// Small buffers of the Requester that are not in its pool.
  [[nodiscard]] std::size_t held() const {
    const auto [adds_up, text] = requester.engine->audit();
    EXPECT_TRUE(adds_up) << text;
    const std::size_t end = text.find(" held");
    return std::stoul(text.substr(text.rfind(' ', end - 1) + 1));
  }
  void expect_nothing_left() {
    if (connection != nullptr) requester.engine->disconnect(connection);
    until([&] { return requester.engine->connection_count() == 0 && responder.engine->connection_count() == 0; });
    for (Node* node : {&requester, &responder}) {
      node->engine->stop(std::chrono::milliseconds(0));
      const auto [adds_up, text] = node->engine->audit();
      EXPECT_TRUE(adds_up) << text;
    }
  }

  std::deque<ShapedCall> calls;  // outlive the engine, which ends what is outstanding
  dv::soft::Fabric fabric;

 private:
  std::mt19937_64 random_;
  std::uint32_t last_id_ = 0;

 public:
  Node requester;
  Node responder;
  Connection* connection = nullptr;
};

TEST(FieldFaults, ASendBufferIsUsedAgainOnlyWhenItsSendHasCompleted) {  // F18
  proves("F18", "ENG-MR-2");
  static const Shape kFromBuffer{.name = "from_buffer", .filler = 3000, .answer = 8};
  int overtaken = 0;
  for (std::uint64_t seed = 1; seed <= 60 && !HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    Two two(seed);
    two.fabric.run_until_idle();
    for (int i = 0; i < 50; ++i) two.turn();
    const std::size_t idle = two.held();
    for (int round = 0; round < 20; ++round) {
      ShapedCall& first = two.prepare(kFromBuffer);
      ASSERT_EQ(first.submit(*two.connection), SubmitOutcome::kPosted);
      EXPECT_EQ(two.held(), idle + 1);
      two.until([&] { return first.times() != 0; });
      EXPECT_TRUE(first.succeeded());
      // The Reply is there. The Send's completion may not be: then the next call has a buffer of its own.
      const std::size_t kept = two.held() - idle;
      ASSERT_LE(kept, 1U);
      overtaken += static_cast<int>(kept);
      ShapedCall& second = two.prepare(kFromBuffer);
      ASSERT_EQ(second.submit(*two.connection), SubmitOutcome::kPosted);
      EXPECT_EQ(two.held(), idle + kept + 1);
      two.until([&] { return second.times() != 0; });
      EXPECT_TRUE(second.succeeded());
      EXPECT_EQ(first.complaint() + second.complaint(), "");
      two.until([&] { return two.held() == idle; });
    }
    two.expect_nothing_left();
  }
  EXPECT_GT(overtaken, 10);
}

/// A reliable connection shows a loss as time: what was lost comes late, and so does all behind it. Copies and swapped
/// packets end at the queue pair.
TEST(FieldFaults, ALossyNetworkCostsTimeAndABrokenOneTheConnection) {  // F43
  proves("F43");
  constexpr std::uint64_t kRetransmission = 4'000'000;  // nanoseconds of the simulated clock
  constexpr std::uint64_t kBlackout = 5'000'000'000;
  for (const Shape& shape : test::shapes()) {
    SCOPED_TRACE(shape.name);
    Two two(43);
    two.fabric.load_faults({{{.probability = 0.01, .action = FaultAction::kDelay, .value = kRetransmission},
                             {.nth = 5, .action = FaultAction::kDelay, .value = kBlackout}}});
    for (int round = 0; round < 8; ++round) two.call_all(shape, test::kMaxWindow);
    EXPECT_GT(two.fabric.faults_injected(), 0U);
    // At the end of its retries the device gives up.
    for (const std::uint32_t device : {0U, 1U}) {
      two.fabric.load_faults({{{.device = device,
                                .nth = 3,
                                .action = FaultAction::kSyndrome,
                                .value = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR}}});
      for (int round = 0; round < 4 && two.connection->open(); ++round) {
        two.call_all(shape, test::kMaxWindow, true);
      }
      EXPECT_EQ(two.fabric.faults_injected(), 1U);
      EXPECT_FALSE(two.connection->open());
      two.fabric.load_faults({});
      two.requester.engine->disconnect(two.connection);
      two.connect();
      two.call_all(shape, 1);
      two.call_all(shape, test::kMaxWindow);
    }
    two.expect_nothing_left();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace rodeo
