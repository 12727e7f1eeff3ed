// SPDX-License-Identifier: Apache-2.0

// Calls in both directions of one connection at once (RFC 8167), end to end, and connections that are lost under them.

#include <atomic>
#include <memory>
#include <random>
#include <thread>

#include "engine/test_pair.h"
#include "pools/proves.h"
#include "pools/topology.h"

namespace rodeo {
namespace {

using test::must;
using test::Pair;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kForward = 0x20000001;
constexpr std::uint32_t kBack = 0x20000055;
enum Procedure : std::uint32_t { kEcho, kHello, kHold };

std::atomic<std::uint64_t> served{0};
std::vector<DeferredCall> held;                  // of one thread
std::vector<std::shared_ptr<Connection>> peers;  // who said hello; the thread of the Responder's loop

/// Its argument, and as many octets as the argument says.
void echo(Call& call, void*) noexcept {
  served.fetch_add(1, std::memory_order_relaxed);
  XdrReader in = call.arguments();
  const std::uint32_t value = in.u32();
  const std::uint32_t bytes = value % 1500 / 4 * 4;
  XdrWriter& out = call.results(4 + bytes);
  out.u32(value);
  for (std::uint32_t i = 0; i < bytes / 4; ++i) out.u32(value + i);
  call.reply();
}
void hello(Call& call, void*) noexcept {
  peers.push_back(call.connection());
  call.reply();
}
void hold(Call& call, void*) noexcept { held.push_back(call.defer()); }

[[nodiscard]] Program program(std::uint32_t number) {
  return {.number = number,
          .version = 1,
          .name = "test",
          .procedures = {{.number = kEcho, .name = "ECHO", .handler = echo},
                         {.number = kHello, .name = "HELLO", .handler = hello},
                         {.number = kHold, .name = "HOLD", .handler = hold}}};
}

/// Calls of one end on one connection, as many at once as its credits allow. Used by the loop's thread.
class Load {
 public:
  Load(std::uint32_t program, std::uint64_t calls, std::uint32_t procedure = kEcho)
      : target_(program, 1, procedure, Credential{}), slots_(64), left_(calls) {
    for (Slot& slot : slots_) {
      slot.load = this;
      free_.push_back(&slot);
    }
  }

  void use(Connection* connection) noexcept { connection_ = connection; }
  std::size_t submit_all() noexcept {
    std::size_t n = 0;
    while (connection_ != nullptr && left_ != 0 && !free_.empty()) {
      Slot& slot = *free_.back();
      slot.value = next_;
      std::byte argument[4];
      store_be32(argument, slot.value);
      const SubmitOutcome outcome = connection_->submit(
          {.target = &target_, .arguments = argument, .max_results = 1504, .on_reply = on_reply, .context = &slot});
      if (outcome != SubmitOutcome::kPosted) {
        waits_ += outcome == SubmitOutcome::kSendQueueFull ? 1U : 0U;
        break;
      }
      free_.pop_back();
      next_ += 7;
      --left_;
      ++n;
    }
    return n;
  }
  [[nodiscard]] std::uint64_t good() const noexcept { return good_.load(std::memory_order_acquire); }
  [[nodiscard]] std::uint64_t lost() const noexcept { return lost_; }
  [[nodiscard]] std::uint64_t bad() const noexcept { return bad_; }
  [[nodiscard]] std::size_t out() const noexcept { return slots_.size() - free_.size(); }
  [[nodiscard]] std::uint64_t send_queue_waits() const noexcept { return waits_; }

 private:
  struct Slot {
    Load* load = nullptr;
    std::uint32_t value = 0;
  };
  static void on_reply(void* context, const Reply& reply) noexcept {
    Slot& slot = *static_cast<Slot*>(context);
    Load& load = *slot.load;
    load.free_.push_back(&slot);
    if (reply.error == CallError::kConnectionLost) {
      ++load.lost_;
      load.bad_ += reply.ran() == Ran::kPerhaps ? 0U : 1U;
      return;
    }
    XdrReader in = reply.reader();
    bool right = reply.ok() && in.u32() == slot.value;
    for (std::uint32_t i = 0; right && i < slot.value % 1500 / 4; ++i) right = in.u32() == slot.value + i;
    load.bad_ += right && in.ok() ? 0U : 1U;
    load.good_.fetch_add(1, std::memory_order_release);
  }

  CallTarget target_;
  Connection* connection_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<Slot*> free_;
  std::uint64_t left_;
  std::uint32_t next_ = 1;
  std::atomic<std::uint64_t> good_{0};
  std::uint64_t lost_ = 0;
  std::uint64_t bad_ = 0;
  std::uint64_t waits_ = 0;
};

[[nodiscard]] Config calling_back(std::uint32_t credits = 5) {
  Config config = test::small_config();
  config.reverse_credits = credits;
  return config;
}

/// Two engines, and a connection on which the client lets itself be called.
struct Rig {
  explicit Rig(const Config& server_config = calling_back(), const Config& client_config = test::small_config())
      : pair([](Engine& engine) { EXPECT_TRUE(engine.add_program(program(kForward))); }, server_config, client_config,
             [](Engine& engine) { EXPECT_TRUE(engine.add_program(program(kBack))); }) {}
  ~Rig() {
    peers.clear();
    held.clear();
  }
  [[nodiscard]] Connection* connect() {
    const std::uint64_t attempt = must(pair.client->begin_connect(pair.address, options()));
    for (int i = 0; i < 100000; ++i) {
      pair.turn();
      if (Connection* connection = must(pair.client->finish_connect(attempt))) return connection;
    }
    ADD_FAILURE() << "the connection was not established";
    return nullptr;
  }
  [[nodiscard]] static ConnectOptions options() {
    return {.credits = 12, .reverse_programs = {kBack}, .reverse_credits = 3};
  }
  /// Says hello; returns the server's end.
  [[nodiscard]] Connection* introduce(Connection* connection) {
    static const CallTarget target(kForward, 1, kHello, Credential{});
    const std::size_t before = peers.size();
    EXPECT_EQ(connection->submit({.target = &target, .on_reply = [](void*, const Reply&) noexcept {}}),
              SubmitOutcome::kPosted);
    pair.until([&] { return peers.size() > before && connection->in_flight() == 0; });
    return peers.back().get();
  }
  void expect_nothing_left() {
    pair.until([&] { return pair.server->connection_count() == 0 && pair.client->connection_count() == 0; });
    for (const Engine* engine : {pair.server.get(), pair.client.get()}) {
      test::expect_adds_up(*engine);
    }
  }

  Pair pair;
};

TEST(ReverseLoad, BothDirectionsAtOnceInOneThread) {
  proves("R8167-2-1", "R8167-2.4-1", "R8167-4.1-1", "R8167-4.1-2", "R8167-4.1-3");
  constexpr std::uint64_t kCalls = 20000;
  Rig rig;
  Connection* connection = rig.connect();
  Load forward(kForward, kCalls);
  Load back(kBack, kCalls);
  back.use(rig.introduce(connection));
  forward.use(connection);
  rig.pair.until(
      [&] {
        forward.submit_all();
        back.submit_all();
        return forward.good() == kCalls && back.good() == kCalls;
      },
      10000000);
  EXPECT_EQ(forward.bad() + back.bad(), 0U);
  EXPECT_EQ(Pair::counter(*rig.pair.client, "reverse_calls_received"), kCalls);
  EXPECT_EQ(Pair::counter(*rig.pair.server, "reverse_replies"), kCalls);
  for (const Engine* engine : {rig.pair.server.get(), rig.pair.client.get()}) {
    for (const char* odd : {"replies_unknown_xid", "replies_discarded", "calls_overrun", "messages_not_for_us"}) {
      EXPECT_EQ(Pair::counter(*engine, odd), 0U) << odd;
    }
  }
  rig.pair.client->disconnect(connection);
  rig.expect_nothing_left();
}

TEST(ReverseLoad, TheSmallestQueuesAreNeverOverfilled) {  // F34
  proves("F34");
  constexpr std::uint64_t kCalls = 3000;
  Config server = calling_back(1);
  Config client = test::small_config();
  server.credits = client.credits = 1;
  Rig rig(server, client);
  Connection* connection = rig.connect();
  Load forward(kForward, kCalls);
  Load back(kBack, kCalls);
  Load unknown(kForward, kCalls, 99);  // answered with an error
  back.use(rig.introduce(connection));
  forward.use(connection);
  unknown.use(connection);
  for (std::uint64_t turn = 0; forward.good() != kCalls || back.good() != kCalls || unknown.bad() != kCalls; ++turn) {
    ASSERT_LT(turn, 10'000'000U) << "nothing goes on";
    // Taking turns for the one credit.
    turn % 2 == 0 ? forward.submit_all() : unknown.submit_all();
    back.submit_all();
    rig.pair.turn();
  }
  EXPECT_EQ(forward.bad() + back.bad(), 0U);
  for (const Engine* engine : {rig.pair.server.get(), rig.pair.client.get()}) {
    for (const char* odd : {"replies_unknown_xid", "replies_discarded", "calls_overrun", "messages_not_for_us"}) {
      EXPECT_EQ(Pair::counter(*engine, odd), 0U) << odd;
    }
  }
  EXPECT_TRUE(connection->open());
  rig.pair.client->disconnect(connection);
  rig.expect_nothing_left();
}

TEST(ReverseLoad, BothDirectionsAtOnceBetweenTwoLoops) {
  proves("R8167-2-1");
  constexpr std::uint64_t kCalls = 20000;
  Config config = calling_back();
  config.poll_cores = {must(pools::Topology::load()).allowed_cores().front()};
  Load back(kBack, kCalls);
  // The server's loop has a core and a thread of its own; its application is a poller there.
  Pair pair(
      [&](Engine& engine) {
        EXPECT_TRUE(engine.add_program(program(kForward)));
        engine.add_poller(0, [&] {
          if (!peers.empty()) back.use(peers.front().get());
          return back.submit_all();
        });
      },
      config, test::small_config(), [](Engine& engine) { EXPECT_TRUE(engine.add_program(program(kBack))); });
  Connection* connection = must(pair.client->connect(pair.address, Rig::options(), std::chrono::seconds(10)));
  const CallTarget greeting(kForward, 1, kHello, Credential{});
  ASSERT_EQ(connection->submit({.target = &greeting, .on_reply = [](void*, const Reply&) noexcept {}}),
            SubmitOutcome::kPosted);
  Load forward(kForward, kCalls);
  forward.use(connection);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(50);
  while ((forward.good() != kCalls || back.good() != kCalls) && std::chrono::steady_clock::now() < until) {
    forward.submit_all();
    pair.client->step();
  }
  EXPECT_EQ(forward.good(), kCalls);
  EXPECT_EQ(back.good(), kCalls);
  EXPECT_EQ(forward.bad(), 0U);
  pair.client->stop();
  pair.server->stop();
  EXPECT_EQ(back.bad(), 0U);
  peers.clear();
  for (const Engine* engine : {pair.server.get(), pair.client.get()}) {
    test::expect_adds_up(*engine);
  }
}

TEST(ReverseLoad, AConnectionLostUnderBothDirectionsEndsAllCallsOnce) {
  proves("R8167-5.4-1", "R8167-4.3-3", "ENG-RT-6");
  Rig rig;
  std::mt19937 random(8167);
  std::uint64_t cases = 0;
  for (int round = 0; round < 120 && !HasFailure(); ++round) {
    SCOPED_TRACE(round);
    Connection* connection = rig.connect();
    Load forward(kForward, 1000000);
    Load back(kBack, 1000000);
    Load held_forward(kForward, 3, kHold);  // deferred at one end or the other, as long as the connection lasts
    Load held_back(kBack, 1, kHold);
    Connection* reverse = rig.introduce(connection);
    held_forward.use(connection);
    held_back.use(reverse);
    forward.use(connection);
    back.use(reverse);
    // Fewer turns in the first rounds, so that the loss falls into every phase.
    const std::uint32_t turns = static_cast<std::uint32_t>(round) + random() % 8;
    for (std::uint32_t turn = 0; turn < turns; ++turn) {
      held_forward.submit_all();
      held_back.submit_all();
      forward.submit_all();
      back.submit_all();
      // Either end may be ahead of the other.
      if (random() % 4 != 0) rig.pair.server->step();
      if (random() % 4 != 0) rig.pair.client->step();
    }
    const bool by_server = random() % 2 == 0;
    const std::size_t out = forward.out() + back.out() + held_forward.out() + held_back.out();
    by_server ? rig.pair.server->disconnect(reverse) : rig.pair.client->disconnect(connection);
    // Our own calls end although Calls are still held: those may wait for just that.
    rig.pair.until([&] { return forward.out() + back.out() + held_forward.out() + held_back.out() == 0; });
    EXPECT_EQ(forward.bad() + back.bad() + held_forward.bad() + held_back.bad(), 0U);
    EXPECT_EQ(held_forward.good() + held_back.good(), 0U);
    EXPECT_LE(forward.lost() + back.lost() + held_forward.lost() + held_back.lost(), out);
    for (DeferredCall& call : held) call.reply();
    held.clear();
    peers.clear();
    if (by_server) rig.pair.client->disconnect(connection);
    rig.expect_nothing_left();
    ++cases;
  }
  std::printf("%llu connections lost with calls out in both directions\n", static_cast<unsigned long long>(cases));
}

}  // namespace
}  // namespace rodeo
