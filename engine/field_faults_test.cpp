// SPDX-License-Identifier: Apache-2.0

// Faults that were met in the field (../shared/field-faults.md) and have no other place: unaligned buffers, more calls
// than there is room for, connections by the thousand. F20 is scripts/soak; others stand where their kind is tested.

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <deque>
#include <filesystem>
#include <fstream>

#include "engine/persistent_connection.h"
#include "engine/scripted_session.h"
#include "pools/sanitizers.h"

namespace rodeo {
namespace {

using test::kProgram;
using test::Pair;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr std::size_t kPageBytes = 2 << 20;
constexpr std::uint32_t kMaxData = 256 * 1024;
constexpr std::size_t kPieces = 16;

void mirror(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, kMaxData);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    pulled.push(pulled.kept(0).first(pulled.state()[0]));
    pulled.reply();
  });
}

/// Piece i is of i + 1 octets, from an odd place.
void give_pieces(Call& call, void* context) noexcept {
  static_cast<void>(call.results(4 * kPieces));
  const RegisteredBytes source = static_cast<Engine*>(context)->application_memory();
  for (std::size_t i = 0; i < kPieces; ++i) call.push(source.subspan(1 + 3 * i, i + 1));
  call.reply();
}

/// 0 NULL, 1 MIRROR (a Read chunk comes back by Write chunk), 2 PIECES.
void add_program(Engine& engine) {
  Program program{.number = kProgram, .version = 1, .name = "test", .procedures = {}};
  program.procedures.push_back(
      {.number = 0, .name = "NULL", .handler = [](Call& call, void*) noexcept { call.reply(); }});
  program.procedures.push_back({.number = 1, .name = "MIRROR", .handler = mirror, .max_read_chunks = 1});
  program.procedures.push_back({.number = 2, .name = "PIECES", .handler = give_pieces, .context = &engine});
  EXPECT_TRUE(engine.add_program(std::move(program)));
}
const std::array<CallTarget, 3> kTargets{CallTarget(kProgram, 1, 0, Credential{}),
                                         CallTarget(kProgram, 1, 1, Credential{}),
                                         CallTarget(kProgram, 1, 2, Credential{})};

Seen call_well(Pair& pair, Connection& connection, const CallRequest& request) {
  Seen seen = test::call_once(pair, connection, request);
  EXPECT_EQ(seen.error, CallError::kNone);
  return seen;
}

// ----------------------------------------------------------------------------------------------- unaligned buffers

constexpr std::byte kUntouched{0xee};

struct Edge {
  explicit Edge(Registration registration)
      : pair(add_program, config(registration), config(registration)), connection(pair.connect(8)) {
    memory = pair.client->application_memory();
    const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
    first_page = kPageBytes - address % kPageBytes;  // where a page begins, within memory
    std::ranges::fill(memory, kUntouched);
  }
  static Config config(Registration registration) {
    Config config = test::small_config();
    config.registration = registration;
    config.application_bytes = 3 * kPageBytes;
    return config;
  }

  /// `length` octets from `from` on go there and come back to `to`, and nothing beside changes.
  void mirror(std::size_t from, std::size_t to, std::size_t length) {
    SCOPED_TRACE(std::to_string(length) + " octets from " + std::to_string(from) + " to " + std::to_string(to));
    const RegisteredBytes source = memory.subspan(from, length);
    const std::array sinks{memory.subspan(to, length)};
    for (std::size_t i = 0; i < length; ++i) source[i] = test::pattern_at(i + length);
    std::array<std::byte, 4> arguments{};
    store_be32(arguments.data(), static_cast<std::uint32_t>(length));
    const BulkSource bulk{4, source};
    const Seen seen = call_well(
        pair, *connection, {.target = &kTargets[1], .arguments = arguments, .sources = {&bulk, 1}, .sinks = sinks});
    EXPECT_EQ(seen.accept_stat, AcceptStat::kSuccess);
    ASSERT_EQ(seen.written.size(), 1U);
    EXPECT_EQ(seen.written[0], length);
    EXPECT_TRUE(std::ranges::equal(sinks[0], source));
    for (const std::size_t begin : {from, to}) {
      EXPECT_TRUE(untouched(begin - std::min(begin, kBeside), begin));
      EXPECT_TRUE(untouched(begin + length, std::min(begin + length + kBeside, memory.size())));
    }
    std::ranges::fill(source, kUntouched);
    std::ranges::fill(sinks[0], kUntouched);
  }
  [[nodiscard]] bool untouched(std::size_t begin, std::size_t end) const {
    return std::ranges::all_of(memory.subspan(begin, end - begin), [](std::byte b) { return b == kUntouched; });
  }

  static constexpr std::size_t kBeside = 128;
  Pair pair;
  Connection* connection;
  RegisteredBytes memory;
  std::size_t first_page = 0;
};

class Unaligned : public ::testing::TestWithParam<Registration> {};
INSTANTIATE_TEST_SUITE_P(FieldFaults, Unaligned,
                         ::testing::Values(Registration::kPoolKey, Registration::kKeyPerCall,
                                           Registration::kRemoteInvalidation));

TEST_P(Unaligned, PayloadsStraddlePagesAndReachTheEndsOfMemory) {  // F32
  proves("F32");
  Edge edge(GetParam());
  const std::size_t page = edge.first_page;
  for (const std::size_t offset : {1UL, 3UL, 4095UL}) {
    edge.mirror(page - offset, page + kPageBytes - 1, 2 * offset + 1);
    edge.mirror(page - offset, page + kPageBytes - offset, 100'001);
    edge.mirror(page + offset, page + kPageBytes + 1, 4096);
  }
  // The very first octets and the very last, where what is registered may end.
  for (const std::size_t length : {1UL, 5UL, 4097UL}) {
    edge.mirror(0, edge.memory.size() - length, length);
    edge.mirror(edge.memory.size() - length, 0, length);
  }
  expect_all_home(edge.pair);
}

TEST_P(Unaligned, ManySmallPiecesLandSideBySide) {  // F32
  proves("F32");
  Edge edge(GetParam());
  const RegisteredBytes given = edge.pair.server->application_memory();
  for (std::size_t i = 0; i < 256; ++i) given[i] = test::pattern_at(i);
  // One untouched octet between each two, and a page ends in their midst.
  std::vector<RegisteredBytes> sinks;
  std::size_t at = edge.first_page - 61;
  for (std::size_t i = 0; i < kPieces; ++i) {
    sinks.push_back(edge.memory.subspan(at, i + 1));
    at += i + 2;
  }
  const Seen seen = call_well(edge.pair, *edge.connection, {.target = &kTargets[2], .sinks = sinks, .max_results = 64});
  EXPECT_EQ(seen.accept_stat, AcceptStat::kSuccess);
  ASSERT_EQ(seen.written.size(), kPieces);
  for (std::size_t i = 0; i < kPieces; ++i) {
    EXPECT_EQ(seen.written[i], i + 1);
    EXPECT_TRUE(std::ranges::equal(sinks[i], given.subspan(1 + 3 * i, i + 1))) << i;
    EXPECT_EQ(sinks[i].data()[i + 1], kUntouched) << i;
  }
  EXPECT_EQ(edge.memory[edge.first_page - 62], kUntouched);
  expect_all_home(edge.pair);
}

// -------------------------------------------------------------------------------------------------------- overload

TEST(Overload, TenTimesTheGrantIsRefusedWithoutLossAndGoesOnLater) {  // F38
  proves("F38");
  for (const std::uint32_t grant : {1U, 2U, 16U, 255U, 256U, 257U}) {
    SCOPED_TRACE(grant);
    Config config = test::small_config();
    config.credits = grant;
    Pair pair(add_program, config, config);
    Connection* connection = pair.connect(grant);
    (void)call_well(pair, *connection, {.target = &kTargets[0]});
    std::deque<Seen> seen;
    const std::size_t wanted = std::size_t{10} * grant;
    int bursts = 0;
    while (seen.size() < wanted) {
      // As many as it takes, ten times over, and no turn in between.
      std::uint32_t posted = 0;
      for (std::size_t i = 0; i < wanted && seen.size() < wanted; ++i) {
        Seen& one = seen.emplace_back();
        const CallRequest request{.target = &kTargets[0], .on_reply = Seen::on_reply, .context = &one};
        const SubmitOutcome outcome = connection->submit(request);
        if (outcome == SubmitOutcome::kPosted) {
          ++posted;
          continue;
        }
        EXPECT_TRUE(outcome == SubmitOutcome::kNoCredit || outcome == SubmitOutcome::kSendQueueFull);
        seen.pop_back();
      }
      EXPECT_LE(posted, grant);
      ASSERT_GT(posted, 0U) << "nothing goes on";
      ++bursts;
      pair.until([&] { return connection->in_flight() == 0; });
    }
    EXPECT_GE(bursts, 10);
    for (const Seen& one : seen) {
      EXPECT_EQ(one.times, 1);
      EXPECT_EQ(one.error, CallError::kNone);
    }
    expect_all_home(pair);
  }
}

TEST(Overload, APersistentConnectionQueuesAsManyAsItSays) {  // F38
  proves("F38");
  constexpr std::uint32_t kGrant = 256;
  constexpr std::uint32_t kCalls = 10 * kGrant;
  Config config = test::small_config();
  config.credits = kGrant;
  Pair pair(add_program, config, config);
  std::deque<Seen> seen;
  PersistentConnection connection(*pair.client, pair.address, {.connect = {.credits = kGrant}, .calls = kCalls});
  const auto submit = [&](Seen& one) {
    return connection.submit({.target = &kTargets[0], .on_reply = Seen::on_reply, .context = &one});
  };
  for (std::uint32_t i = 0; i < kCalls; ++i) ASSERT_TRUE(submit(seen.emplace_back())) << i;
  Seen refused;
  EXPECT_FALSE(submit(refused));
  pair.until([&] {
    connection.maintain();
    return connection.pending() == 0;
  });
  for (const Seen& one : seen) {
    EXPECT_EQ(one.times, 1);
    EXPECT_EQ(one.error, CallError::kNone);
  }
  EXPECT_EQ(refused.times, 0);
  EXPECT_EQ(Pair::counter(*pair.server, "calls_received"), kCalls);
  connection.close();
  expect_all_home(pair);
}

/// The neighbours of a full queue: a Send that fits the room as a number, but not where the ring ends.
TEST(Overload, ACallWithChunksWaitsWhereItsSendFindsNoRoom) {
  constexpr std::uint32_t kGrant = 64;
  test::Session session(kGrant, kGrant);
  const std::array sinks{session.raw.client().application_memory().first(64)};
  const std::vector<std::byte> arguments(800);
  std::uint32_t refused = 0;
  for (std::size_t round = 0; round < 400; ++round) {
    // Lengths that differ move the ring's end to every place in a WQE.
    const CallRequest request{.target = &test::kTarget,
                              .arguments = std::span(arguments).first(800 - 4 * (round % 23)),
                              .sinks = sinks,
                              .on_reply = Seen::on_reply};
    const std::size_t begin = session.seen.size();
    for (;;) {
      CallRequest one = request;
      one.context = &session.seen.emplace_back();
      const SubmitOutcome outcome = session.connection->submit(one);
      if (outcome == SubmitOutcome::kPosted) continue;
      session.seen.pop_back();
      ASSERT_EQ(outcome, SubmitOutcome::kSendQueueFull);
      ++refused;
      break;
    }
    ASSERT_GT(session.seen.size(), begin) << "nothing goes on";
    for (std::size_t i = begin; i < session.seen.size(); ++i) {
      const auto taken = session.take();
      EXPECT_EQ(taken->lists.write_chunk_count, 1U);
      session.answer(taken->xid(), kGrant);
    }
    session.raw.until([&] { return session.connection->in_flight() == 0; });
  }
  EXPECT_EQ(refused, 400U);
  for (const Seen& one : session.seen) {
    EXPECT_EQ(one.times, 1);
    EXPECT_EQ(one.error, CallError::kNone);
  }
  EXPECT_FALSE(session.raw.failed());
}

// ------------------------------------------------------------------------------------------- connections by thousands

[[nodiscard]] std::size_t descriptors() {
  using Entries = std::filesystem::directory_iterator;
  return static_cast<std::size_t>(std::distance(Entries("/proc/self/fd"), Entries()));
}
[[nodiscard]] std::size_t status_kib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string line;
  while (std::getline(status, line)) {
    if (line.starts_with(key)) return std::stoul(line.substr(key.size()));
  }
  ADD_FAILURE() << "no " << key;
  return 0;
}

TEST(Connections, ThousandsThatComeAndGoLeaveNothing) {  // F30
  proves("F30");
  constexpr int kCycles = pools::kSanitized ? 200 : 2000;
  Pair pair(add_program, test::small_config(), test::small_config());
  const auto cycles = [&](int count) {
    for (int i = 0; i < count; ++i) {
      Connection* connection = pair.connect(2);
      (void)call_well(pair, *connection, {.target = &kTargets[0]});
      pair.client->disconnect(connection);
      pair.until([&] { return pair.client->connection_count() == 0 && pair.server->connection_count() == 0; });
    }
  };
  const std::size_t files = descriptors();
  // Each end keeps its socket until the other has closed its own.
  const auto settle = [&] { pair.until([&] { return descriptors() <= files; }); };
  cycles(kCycles / 10);  // until the allocator has what it needs
  settle();
  const std::size_t mapped = status_kib("VmSize:");
  const std::size_t resident = status_kib("RssAnon:");
  cycles(kCycles);
  settle();
  EXPECT_EQ(descriptors(), files);
  if (!pools::kSanitized) {
    EXPECT_LE(status_kib("VmSize:"), mapped + 1024);
    EXPECT_LE(status_kib("RssAnon:"), resident + 1024);
  }
  expect_all_home(pair);
  EXPECT_EQ(Pair::counter(*pair.server, "connections_opened"), Pair::counter(*pair.server, "connections_closed"));
}

TEST(Connections, TwoThousandAreHeldAtOnceAndAllServe) {  // F30
  proves("F30");
  constexpr std::uint32_t kHeld = pools::kSanitized ? 200 : 2000;
  Config config = test::small_config();
  config.connections = kHeld;
  config.credits = 1;
  const std::size_t files = descriptors();
  {
    Pair pair(add_program, config, config);
    std::vector<Connection*> held;
    for (std::uint32_t i = 0; i < kHeld; ++i) held.push_back(pair.connect(1));
    EXPECT_EQ(pair.server->connection_count(), kHeld);
    for (int round = 0; round < 2; ++round) {
      std::deque<Seen> seen;
      for (Connection* connection : held) {
        const CallRequest request{.target = &kTargets[0], .on_reply = Seen::on_reply, .context = &seen.emplace_back()};
        ASSERT_EQ(connection->submit(request), SubmitOutcome::kPosted);
      }
      pair.until([&] { return std::ranges::all_of(seen, [](const Seen& one) { return one.times == 1; }); });
      for (const Seen& one : seen) EXPECT_EQ(one.error, CallError::kNone);
    }
    expect_all_home(pair);
  }
  EXPECT_EQ(descriptors(), files);
}

TEST(Connections, ALimitOfTheSystemIsNamedAndCostsNobodyElse) {  // F30
  proves("F30");
  Config config = test::small_config();
  config.connections = 512;
  config.credits = 1;
  Pair pair(add_program, config, config);
  std::vector<Connection*> held{pair.connect(1)};
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit lower = before;
  lower.rlim_cur = descriptors() + 20;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &lower), 0);
  std::string complaint;
  for (int i = 0; i < 100 && complaint.empty(); ++i) {
    auto attempt = pair.client->begin_connect(pair.address, 0, 1);
    if (!attempt) {
      complaint = attempt.error().message();
      break;
    }
    for (int turn = 0; turn < 100000; ++turn) {
      pair.turn();
      auto connected = pair.client->finish_connect(*attempt);
      if (!connected) complaint = connected.error().message();
      if (connected && *connected != nullptr) held.push_back(*connected);
      if (!connected || *connected != nullptr) break;
    }
  }
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_NE(complaint.find("ulimit -n"), std::string::npos) << complaint;
  for (Connection* connection : held) (void)call_well(pair, *connection, {.target = &kTargets[0]});
  // With the limit gone, the next one comes.
  (void)call_well(pair, *pair.connect(1), {.target = &kTargets[0]});
  expect_all_home(pair);
}

}  // namespace
}  // namespace rodeo
