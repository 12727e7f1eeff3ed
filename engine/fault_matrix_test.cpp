// SPDX-License-Identifier: Apache-2.0

// The fault matrix: calls of every message shape, and at every step of theirs a fault. Afterwards every call has ended
// once, with the right contents or a clear error; connections beside the faulty one have been served all along; a new
// connection works; and when all are closed, nothing is held anywhere.
//
// The steps are found, not listed: the nth work request of either end, for n = 1, 2, ... until a run passes without
// meeting the fault. Where calls are many, n grows in strides.
//
// RODEO_FAULT_SEED chooses another order of events; RODEO_FAULT_CASE runs one group of cases, by the name that a
// failure prints.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "engine/fault_matrix.h"
#include "engine/test_shared_receives.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::Node;
using test::Shape;
using test::ShapedCall;

constexpr std::uint64_t kSends = (std::uint64_t{1} << MLX5_OPCODE_SEND) | (std::uint64_t{1} << MLX5_OPCODE_SEND_INVAL);
constexpr std::uint64_t kRdma =
    (std::uint64_t{1} << MLX5_OPCODE_RDMA_READ) | (std::uint64_t{1} << MLX5_OPCODE_RDMA_WRITE);
constexpr std::uint64_t kAll = ~std::uint64_t{0};

struct Fault {
  std::string name;
  std::uint64_t opcodes;
  dv::soft::FaultAction action;
  std::uint64_t value;
  bool recovers;  // the transport gets over it, so no call may fail
};

const std::vector<Fault>& faults() {
  using dv::soft::FaultAction;
  static const std::vector<Fault> kFaults{
      {"delay", kAll, FaultAction::kDelay, 50'000, true},
      {"receiver_not_ready", kSends, FaultAction::kNotReady, 2, true},
      {"receiver_never_ready", kSends, FaultAction::kNotReady, 3, false},
      {"remote_access_error", kRdma, FaultAction::kSyndrome, MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, false},
      {"remote_operation_error", kSends, FaultAction::kSyndrome, MLX5_CQE_SYNDROME_REMOTE_OP_ERR, false},
      {"connection_loss", kAll, FaultAction::kDisconnect, 0, false},
      {"peer_death", kAll, FaultAction::kKillPeer, 0, false}};
  return kFaults;
}

/// Of all engines of the worlds that are made from now on.
Registration matrix_registration = Registration::kPoolKey;

[[nodiscard]] Config matrix_config() {
  Config config;
  config.shared_receives = test::shared_receives();
  config.registration = matrix_registration;
  config.hugepages = false;
  config.credits = 16;
  config.connections = 2;
  config.small_buffers = 320;
  config.bulk_bytes = 16384;
  config.bulk_buffers = 24;
  config.application_bytes = test::kPatternAt + test::kPatternBytes;
  return config;
}

/// Three engines: the Requester and the Responder that faults come between, and a bystander that talks to both.
class World {
 public:
  explicit World(std::uint64_t seed, const Config& responder_config = matrix_config())
      : fabric(dv::soft::Fabric::Mode::kScheduled, seed), random_(seed), responder_config_(responder_config) {
    requester = make_node(matrix_config());
    responder = make_node(responder_config_);
    bystander = make_node(matrix_config());
    EXPECT_TRUE(responder->engine->listen(kResponder));
    EXPECT_TRUE(bystander->engine->listen(kBystander));
    beside_.push_back({requester.get(), responder.get(), connect(*requester, kResponder), 0, {}});
    beside_.push_back({bystander.get(), responder.get(), connect(*bystander, kResponder), 1, {}});
    beside_.push_back({requester.get(), bystander.get(), connect(*requester, kBystander), 2, {}});
    beside_.push_back({responder.get(), bystander.get(), connect(*responder, kBystander), 0, {}});
  }

  World(const World&) = delete;
  World& operator=(const World&) = delete;
  /// The engines first: when one goes, the calls that it still has out end.
  ~World() {
    dead_.clear();
    for (auto* node : {&requester, &responder, &bystander}) node->reset();
  }

  /// A new connection between the two, with a grant, and the indexes of its QPs at both ends.
  void connect_main() {
    requester_qp = qps_made_[requester->index];
    responder_qp = qps_made_[responder->index];
    main = connect(*requester, kResponder);
    if (main == nullptr) return;
    static const Shape kFirst{.name = "first", .answer = 8};
    ShapedCall first;
    first.prepare(kFirst, 1, requester->slot(0));
    EXPECT_EQ(first.submit(*main), SubmitOutcome::kPosted);
    until([&] { return first.times() != 0; }, "the first call on a new connection");
    EXPECT_TRUE(first.succeeded());
    EXPECT_EQ(first.complaint(), "");
  }

  /// `window` calls on the connection. Those beside it are served meanwhile. `at_turn` may do something bad.
  void run_calls(
      const Shape& shape, std::size_t window, const std::function<void()>& at_turn = [] {}) {
    calls.resize(window);
    for (std::size_t i = 0; i < window; ++i) calls[i].prepare(shape, next_id_++, requester->slot(i));
    Node* const caller = requester.get();
    if (!starving) start_beside();
    until(
        [&] {
          at_turn();
          if (!caller->alive()) return beside_settled();
          bool over = true;
          for (ShapedCall& call : calls) {
            const bool open = main != nullptr && main->open();
            if (!call.posted() && open) refused += call.submit(*main) == SubmitOutcome::kNoBuffer ? 1U : 0U;
            over = over && (call.posted() ? call.times() != 0 : !open);
          }
          return over && beside_settled();
        },
        "the end of every call");
  }

  /// Every call ended once; those that failed had a reason to.
  void check_calls(const std::function<bool(const ShapedCall&)>& may_fail) {
    if (!requester->alive()) return;
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const ShapedCall& call = calls[i];
      EXPECT_EQ(call.complaint(), "") << "call " << i;
      EXPECT_LE(call.times(), 1) << "call " << i;
      if (call.posted() && call.succeeded()) continue;
      EXPECT_TRUE(may_fail(call)) << "call " << i << (call.posted() ? " ended with " : " was never posted: ")
                                  << to_string(call.error()) << ", accept_stat "
                                  << static_cast<unsigned>(call.status());
    }
    if (main != nullptr) {
      EXPECT_EQ(main->in_flight(), 0U);
    }
  }

  /// Each connection beside the faulty one carries another call, if both its ends live.
  void check_beside() {
    start_beside();
    until([&] { return beside_settled(); }, "the calls on the connections beside");
  }

  /// Gives the connection up, replaces whoever has died, and calls on a new connection.
  void check_reconnect(const Shape& shape, std::size_t window) {
    disconnect_main();
    bury(requester, matrix_config());
    if (bury(responder, responder_config_)) {
      EXPECT_TRUE(responder->engine->listen(kResponder));
    }
    connect_main();
    if (main == nullptr) return;
    run_calls(shape, window);
    check_calls([](const ShapedCall&) { return false; });
    disconnect_main();
    check_counts();
  }

  void disconnect_main() {
    if (main != nullptr && requester->alive()) requester->engine->disconnect(main);
    main = nullptr;
  }

  /// Only the connections beside are left, and hold nothing but their receives.
  void check_counts() {
    for (Node* node : live()) {
      std::size_t expected = 0;
      for (const Beside& one : beside_) expected += (one.from == node ? 1U : 0U) + (one.to == node ? 1U : 0U);
      until([&] { return node->engine->connection_count() == expected; },
            "the end of the connections that were closed");
    }
  }

  /// Closes and stops everything; then it must add up.
  void finish() {
    for (const Beside& one : beside_) one.from->engine->disconnect(one.connection);
    beside_.clear();
    disconnect_main();
    check_counts();
    for (Node* node : live()) {
      node->engine->stop(std::chrono::milliseconds(0));
      const auto [ok, text] = node->engine->audit();
      EXPECT_TRUE(ok) << "engine " << node->index << ": " << text;
      EXPECT_EQ(node->counter("calls_submitted"), node->counter("replies_received") + node->counter("requests_failed"))
          << "engine " << node->index;
      EXPECT_NE(text.find("lost connections kept: 0"), std::string::npos) << "engine " << node->index << ": " << text;
    }
  }

  void turn() {
    for (Node* node : live()) {
      if (!node->alive()) continue;
      node->engine->step();
      // Now and then an engine is away for a while, and then finds a burst.
      const std::uint64_t drawn = random_() % 64;
      for (std::uint64_t steps = drawn < 56 ? drawn % 4 : 100; steps != 0; --steps) static_cast<void>(fabric.step());
    }
    ++turns;
  }
  void until(const std::function<bool()>& done, const char* what) {
    constexpr int kLimit = 50'000;
    for (int i = 0; i < kLimit; ++i) {
      if (done()) return;
      turn();
    }
    ADD_FAILURE() << "waited in vain for " << what;
  }

  [[nodiscard]] Connection* spare_of(const Node& node) const {
    for (const Beside& one : beside_) {
      if (one.from == &node) return one.connection;
    }
    return nullptr;
  }

  static constexpr const char* kResponder = "sim:responder";
  static constexpr const char* kBystander = "sim:bystander";

  dv::soft::Fabric fabric;
  std::unique_ptr<Node> requester;
  std::unique_ptr<Node> responder;
  std::unique_ptr<Node> bystander;
  Connection* main = nullptr;
  std::uint32_t requester_qp = 0;
  std::uint32_t responder_qp = 0;
  std::vector<ShapedCall> calls;
  std::uint64_t turns = 0;
  std::uint64_t refused = 0;  // submissions, for want of a buffer
  bool starving = false;      // a pool is dry, so the connections beside cannot be served either

 private:
  struct Beside {
    Node* from;
    Node* to;
    Connection* connection;
    std::size_t slot;
    std::unique_ptr<ShapedCall> call;
  };

  std::unique_ptr<Node> make_node(const Config& config) {
    qps_made_.push_back(0);
    return std::make_unique<Node>(fabric, static_cast<std::uint32_t>(qps_made_.size() - 1), config);
  }

  [[nodiscard]] std::vector<Node*> live() const {
    std::vector<Node*> nodes;
    for (Node* node : {requester.get(), responder.get(), bystander.get()}) {
      if (node != nullptr && node->alive()) nodes.push_back(node);
    }
    return nodes;
  }

  Connection* connect(Node& from, const char* address) {
    auto attempt = from.engine->begin_connect(address, 0, 0);
    if (!attempt) {
      ADD_FAILURE() << attempt.error().message();
      return nullptr;
    }
    ++qps_made_[from.index];
    ++qps_made_[(address == kResponder ? responder : bystander)->index];
    Connection* made = nullptr;
    until(
        [&] {
          auto connection = from.engine->finish_connect(*attempt);
          if (!connection) {
            ADD_FAILURE() << connection.error().message();
            return true;
          }
          made = *connection;
          return made != nullptr;
        },
        "a connection");
    return made;
  }

  void start_beside() {
    for (Beside& one : beside_) start(one);
  }
  void start(Beside& one) {
    static const Shape kBeside{.name = "beside", .sources = 1, .sinks = 1, .filler = 20, .answer = 20};
    if (!one.from->alive() || !one.to->alive()) return;
    one.call = std::make_unique<ShapedCall>();
    one.call->prepare(kBeside, next_id_++, one.from->slot(test::kMaxWindow + one.slot));
  }

  [[nodiscard]] bool beside_settled() {
    bool settled = true;
    for (Beside& one : beside_) {
      if (!one.from->alive() || !one.to->alive() || one.call == nullptr) continue;
      if (!one.call->posted()) {
        const SubmitOutcome outcome = one.call->submit(*one.connection);
        if (outcome == SubmitOutcome::kClosed) {
          ADD_FAILURE() << "a connection beside the faulty one has closed";
          return true;
        }
      }
      settled = settled && one.call->times() != 0;
      if (one.call->times() != 0 && (!one.call->succeeded() || one.call->complaint() != "")) {
        ADD_FAILURE() << "a call beside the faulty ones: " << to_string(one.call->error()) << ", accept_stat "
                      << static_cast<unsigned>(one.call->status()) << ", " << one.call->complaint();
        return true;
      }
    }
    return settled;
  }

  /// Replaces a node that has died. True when it had.
  bool bury(std::unique_ptr<Node>& node, const Config& config) {
    if (node->alive()) return false;
    std::erase_if(beside_, [&](Beside& one) {
      if (one.from != node.get() && one.to != node.get()) return false;
      if (one.from != node.get()) one.from->engine->disconnect(one.connection);
      dead_calls_.push_back(std::move(one.call));
      return true;
    });
    if (node == requester) dead_windows_.push_back(std::move(calls));
    dead_.push_back(std::move(node));
    node = make_node(config);
    return true;
  }

  std::mt19937_64 random_;
  Config responder_config_;
  std::uint32_t next_id_ = 1;
  std::vector<std::uint32_t> qps_made_;  // by device
  std::vector<Beside> beside_;
  // A dead engine ends its calls when it is destroyed, so what they refer to goes after it.
  std::vector<std::unique_ptr<ShapedCall>> dead_calls_;
  std::vector<std::vector<ShapedCall>> dead_windows_;
  std::vector<std::unique_ptr<Node>> dead_;
};

// ---------------------------------------------------------------------------------------------------- groups of cases

[[nodiscard]] std::uint64_t seed() {
  const char* text = std::getenv("RODEO_FAULT_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

/// Whether the group `name` is to run.
[[nodiscard]] bool wanted(const std::string& name) {
  const char* only = std::getenv("RODEO_FAULT_CASE");
  return only == nullptr || name == only;
}

struct Total {
  ~Total() { std::printf("fault matrix: %zu cases ran, seed %llu\n", cases, static_cast<unsigned long long>(seed())); }
  std::size_t cases = 0;
};

[[nodiscard]] std::string step_name(const std::string& group, std::uint64_t step) {
  return "RODEO_FAULT_CASE=" + group + " RODEO_FAULT_SEED=" + std::to_string(seed()) + ", step " + std::to_string(step);
}

/// With one call every step counts; with many, later ones resemble each other.
[[nodiscard]] std::uint64_t step_after(std::uint64_t step, std::size_t window) {
  return window == 1 ? step + 1 : step + 1 + step / 3;
}

constexpr std::size_t kSmall = 64;    // octets that a small buffer holds, and
constexpr std::size_t kBulk = 16384;  // octets that need a bulk buffer

constexpr std::size_t kWindows[] = {1, test::kMaxWindow};
constexpr std::uint64_t kMaxSteps = 2000;

[[nodiscard]] bool lost(const ShapedCall& call) { return !call.posted() || call.error() == CallError::kConnectionLost; }

/// All steps of one end of one shape under one fault.
void run_faults(std::unique_ptr<World>& world, const Shape& shape, std::size_t window, const Fault& fault,
                bool at_requester, const std::string& group, Total& total) {
  for (std::uint64_t nth = 1; nth < kMaxSteps; nth = step_after(nth, window)) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, step_name(group, nth));
    if (world == nullptr) world = std::make_unique<World>(seed());
    World& w = *world;
    w.connect_main();
    if (w.main == nullptr) return;
    w.fabric.load_faults({{{.device = at_requester ? w.requester->index : w.responder->index,
                            .qp = at_requester ? w.requester_qp : w.responder_qp,
                            .opcodes = fault.opcodes,
                            .nth = static_cast<std::uint32_t>(nth),
                            .action = fault.action,
                            .value = fault.value}}});
    w.run_calls(shape, window);
    const bool met = w.fabric.faults_injected() != 0;
    w.fabric.load_faults({});
    w.check_calls([&](const ShapedCall& call) { return met && !fault.recovers && lost(call); });
    w.check_beside();
    w.check_reconnect(shape, window);
    if (met) ++total.cases;
    const bool died = met && fault.action == dv::soft::FaultAction::kKillPeer;
    if (died) {
      w.finish();
      world.reset();
    }
    if (testing::Test::HasFailure() || !met) return;
  }
}

void run_all_faults(std::span<const std::size_t> windows, std::span<const Fault> all_faults, const std::string& prefix,
                    Total& total) {
  for (const Shape& shape : test::shapes()) {
    for (const std::size_t window : windows) {
      for (const Fault& fault : all_faults) {
        for (const bool at_requester : {true, false}) {
          const std::string group = prefix + shape.name + "/" + std::to_string(window) + "/" + fault.name + "/" +
                                    (at_requester ? "requester" : "responder");
          if (!wanted(group)) continue;
          std::unique_ptr<World> world;
          run_faults(world, shape, window, fault, at_requester, group, total);
          if (world != nullptr && !testing::Test::HasFailure()) {
            const testing::ScopedTrace trace(__FILE__, __LINE__, group);
            world->finish();
          }
          ASSERT_FALSE(testing::Test::HasFailure()) << "in " << group;
        }
      }
    }
  }
}

TEST(FaultMatrix, EveryShapeSurvivesAFaultAtEveryWorkRequest) {
  // One of the faults is a delay, and the contents are right whatever is delayed.
  proves("R8166-2.3-2", "R8166-2.3-3", "R8166-3.4.5-6", "R8166-4.5.3-1");
  Total total;
  run_all_faults(kWindows, faults(), "", total);
  if (std::getenv("RODEO_FAULT_CASE") == nullptr) {
    EXPECT_GT(total.cases, 1000U);
  }
}

TEST(FaultMatrix, SoItDoesWithKeysOfSingleCalls) {
  proves("R8166-4.5.4-2", "R8166-8.1-7", "ENG-MR-3");
  Total total;
  std::vector<Fault> with_windows = faults();
  with_windows.push_back({"window_error", std::uint64_t{1} << MLX5_OPCODE_UMR, dv::soft::FaultAction::kSyndrome,
                          MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, false});
  constexpr std::size_t kManyCalls[] = {test::kMaxWindow};
  for (const Registration registration : {Registration::kKeyPerCall, Registration::kRemoteInvalidation}) {
    matrix_registration = registration;
    run_all_faults(kManyCalls, with_windows, std::string(to_string(registration)) + "/", total);
  }
  matrix_registration = Registration::kPoolKey;
  if (std::getenv("RODEO_FAULT_CASE") == nullptr) {
    EXPECT_GT(total.cases, 1000U);
  }
}

TEST(FaultMatrix, OnlyTheResponderMovesData) {
  proves("R8166-3.1-1", "R8166-3.4-3");
  for (const Registration registration : {Registration::kPoolKey, Registration::kKeyPerCall}) {
    matrix_registration = registration;
    World world(seed());
    world.connect_main();
    ASSERT_NE(world.main, nullptr);
    // Rules that do nothing but count: RDMA of the Requester's, and windows of the Responder's.
    world.fabric.load_faults({{{.device = world.requester->index,
                                .qp = world.requester_qp,
                                .opcodes = kRdma,
                                .action = dv::soft::FaultAction::kDelay,
                                .value = 1},
                               {.device = world.responder->index,
                                .qp = world.responder_qp,
                                .opcodes = std::uint64_t{1} << MLX5_OPCODE_UMR,
                                .action = dv::soft::FaultAction::kDelay,
                                .value = 1}}});
    for (const Shape& shape : test::shapes()) {
      world.run_calls(shape, test::kMaxWindow);
      world.check_calls([](const ShapedCall&) { return false; });
    }
    EXPECT_EQ(world.fabric.faults_injected(), 0U);
    // The same rules at the other end each do count.
    const bool windows = registration == Registration::kKeyPerCall;
    world.fabric.load_faults({{{.device = windows ? world.requester->index : world.responder->index,
                                .qp = windows ? world.requester_qp : world.responder_qp,
                                .opcodes = windows ? std::uint64_t{1} << MLX5_OPCODE_UMR : kRdma,
                                .action = dv::soft::FaultAction::kDelay,
                                .value = 1}}});
    world.run_calls(test::shapes()[2], test::kMaxWindow);
    EXPECT_NE(world.fabric.faults_injected(), 0U);
    world.fabric.load_faults({});
    world.disconnect_main();
    world.finish();
    matrix_registration = Registration::kPoolKey;
  }
}

// What is not the doing of a work request: the same shapes, and at every turn of theirs, until a run is over first.
struct Misfortune {
  std::string name;
  bool queue_stands_still;  // the Responder's send queue is delayed, and so fills up
  std::function<void(World&)> strike;
};

TEST(FaultMatrix, EveryShapeSurvivesDeathAndDisconnectAtEveryTurn) {
  const Misfortune misfortunes[] = {
      {"requester_dies", false, [](World& w) { w.fabric.kill_device(w.requester->index); }},
      {"responder_dies", false, [](World& w) { w.fabric.kill_device(w.responder->index); }},
      {"requester_disconnects", false, [](World& w) { w.disconnect_main(); }},
      {"requester_leaves_a_full_queue", true, [](World& w) { w.disconnect_main(); }}};
  Total total;
  for (const Shape& shape : test::shapes()) {
    for (const Misfortune& misfortune : misfortunes) {
      const std::string group = shape.name + "/" + misfortune.name;
      if (!wanted(group)) continue;
      std::unique_ptr<World> world;
      bool met = true;
      for (std::uint64_t step = 1; met && step < kMaxSteps; step = step_after(step, test::kMaxWindow)) {
        const testing::ScopedTrace trace(__FILE__, __LINE__, step_name(group, step));
        if (world == nullptr) world = std::make_unique<World>(seed());
        world->connect_main();
        if (world->main == nullptr) return;
        if (misfortune.queue_stands_still) {
          world->fabric.load_faults({{{.device = world->responder->index,
                                       .qp = world->responder_qp,
                                       .nth = 1,
                                       .action = dv::soft::FaultAction::kDelay,
                                       .value = 100'000}}});
        }
        const std::uint64_t strike_at = world->turns + step;
        met = false;
        world->run_calls(shape, test::kMaxWindow, [&] {
          if (met || world->turns < strike_at) return;
          met = true;
          misfortune.strike(*world);
        });
        world->check_calls([&](const ShapedCall& call) { return met && lost(call); });
        world->check_beside();
        const bool died = !world->requester->alive() || !world->responder->alive();
        world->check_reconnect(shape, test::kMaxWindow);
        if (met) ++total.cases;
        if (died || !met) {
          world->finish();
          world.reset();
        }
        ASSERT_FALSE(HasFailure()) << "in " << group;
      }
    }
  }
  EXPECT_GT(total.cases, 0U);
}

/// All but `left` of a pool's free buffers.
std::vector<Buffer> hold_buffers(Connection& connection, std::size_t bytes, std::size_t left) {
  std::vector<Buffer> held;
  for (;;) {
    Buffer buffer = connection.make_buffer(bytes);
    if (!buffer) break;
    held.push_back(std::move(buffer));
  }
  held.resize(held.size() - std::min(left, held.size()));
  return held;
}

TEST(FaultMatrix, EveryShapeSurvivesEveryAllocationFailure) {
  Total total;
  for (const Shape& shape : test::shapes()) {
    for (const bool at_requester : {true, false}) {
      // With small buffers gone bulk buffers would take their place, so those go along.
      for (const bool small : {true, false}) {
        const std::string group =
            shape.name + "/no_" + (small ? "small" : "bulk") + "_buffer/" + (at_requester ? "requester" : "responder");
        if (!wanted(group)) continue;
        World world(seed());
        for (std::size_t left = 0; left < 4 * test::kMaxWindow; ++left) {
          const testing::ScopedTrace trace(__FILE__, __LINE__, step_name(group, left));
          world.connect_main();
          if (world.main == nullptr) return;
          Node& starved = at_requester ? *world.requester : *world.responder;
          std::vector<Buffer> bulk;
          std::vector<Buffer> held;
          starved.engine->run_on_loop(0, [&] {
            Connection& spare = *world.spare_of(starved);
            if (small) bulk = hold_buffers(spare, kBulk, 0);
            held = hold_buffers(spare, small ? kSmall : kBulk, left);
          });
          const std::uint64_t waits_before = starved.waits();
          world.refused = 0;
          world.starving = true;
          constexpr std::uint64_t kStarvedTurns = 300;
          const std::uint64_t relief = world.turns + kStarvedTurns;
          world.run_calls(shape, test::kMaxWindow, [&] {
            if (world.turns != relief) return;
            starved.engine->run_on_loop(0, [&] {
              held.clear();
              bulk.clear();
            });
          });
          world.starving = false;
          bool met = world.refused != 0 || starved.waits() != waits_before;
          world.check_calls([&](const ShapedCall& call) {
            met = true;
            return !at_requester && call.posted() && call.error() == CallError::kNone &&
                   call.status() == AcceptStat::kSystemErr;
          });
          starved.engine->run_on_loop(0, [&] {
            held.clear();
            bulk.clear();
          });
          world.check_beside();
          world.check_reconnect(shape, test::kMaxWindow);
          ASSERT_FALSE(HasFailure()) << "in " << group;
          if (!met) break;
          ++total.cases;
        }
        const testing::ScopedTrace trace(__FILE__, __LINE__, group);
        world.finish();
        ASSERT_FALSE(HasFailure()) << "in " << group;
      }
    }
  }
  EXPECT_GT(total.cases, 0U);
}

TEST(FaultMatrix, AConnectionThatLacksBuffersIsRefusedAndLeavesNothing) {
  Config config = matrix_config();
  config.small_buffers = 64;
  World world(seed(), config);
  std::size_t refused = 0;
  for (int i = 0; i < 20; ++i) {
    std::vector<Buffer> held;
    world.responder->engine->run_on_loop(0, [&] { held = hold_buffers(*world.spare_of(*world.responder), kSmall, 0); });
    const auto attempt = world.requester->engine->begin_connect(World::kResponder, 0, 0);
    ASSERT_TRUE(attempt);
    bool over = false;
    world.until(
        [&] {
          const auto connection = world.requester->engine->finish_connect(*attempt);
          refused += connection ? 0U : 1U;
          over = !connection || *connection != nullptr;
          // A call beside it may have given a buffer back just in time.
          if (connection && *connection != nullptr) world.requester->engine->disconnect(*connection);
          return over;
        },
        "an answer");
    world.responder->engine->run_on_loop(0, [&] { held.clear(); });
    world.check_counts();
    world.check_beside();
  }
  EXPECT_GT(refused, 10U);
  world.finish();
}

}  // namespace
}  // namespace rodeo
