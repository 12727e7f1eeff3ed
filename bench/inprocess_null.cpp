// SPDX-License-Identifier: Apache-2.0
// NULL calls with both ends in one thread over the software HCA inside this process. Everything that a call costs is
// then in one instruction stream: run it under callgrind with two values of --calls, and the slope is the cost of a
// call without start-up. Each Reply is followed by the next call from its own completion, as in `rodeo bench`. Prints
// one JSON object.

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <utility>

#include "bench/allocation_counter.h"
#include "bench/flags.h"
#include "dv/mlx5/provider.h"
#include "dv/soft/fabric.h"
#include "engine/engine_core.h"

namespace {

using Core = rodeo::EngineCore<rodeo::dv::mlx5::Provider>;
constexpr std::uint32_t kProgram = 0x20524f46;
constexpr const char* kAddress = "sim:null";

struct Progress {
  struct Turn {
    rodeo::Connection* connection;
    Turn* next;
  };
  std::deque<Turn> turns;  // a ring of all connections
  Turn* turn = nullptr;    // the one that is to submit
  rodeo::CallRequest request;
  std::uint64_t to_submit = 0;  // calls that are still to come
  std::uint64_t failed = 0;
  bool full = false;  // the window is; completions keep it so

  /// On the next connection. False when it takes no more.
  bool submit() noexcept {
    const Turn* const now = std::exchange(turn, turn->next);
    if (now->connection->submit(request) != rodeo::SubmitOutcome::kPosted) return false;
    --to_submit;
    return true;
  }
  [[nodiscard]] std::uint64_t outstanding() const noexcept {
    std::uint64_t calls = 0;
    for (const Turn& each : turns) calls += each.connection->in_flight();
    return calls;
  }
};

void answer(rodeo::Call& call, void*) noexcept { call.reply(); }

void on_reply(void* context, const rodeo::Reply& reply) noexcept {
  auto& progress = *static_cast<Progress*>(context);
  if (!reply.ok()) ++progress.failed;
  if (progress.to_submit != 0 && !progress.submit()) progress.full = false;
}

int complain(const rodeo::Error& error) {
  std::fprintf(stderr, "inprocess_null: %s\n", error.message().c_str());
  return 1;
}

/// The two ends.
struct Ends {
  std::unique_ptr<rodeo::Engine> responder;
  std::unique_ptr<rodeo::Engine> requester;

  void turn() {
    requester->step();
    responder->step();
  }
};

rodeo::Result<Ends> open_ends(rodeo::dv::soft::Fabric& fabric, std::uint32_t connections, bool shared_receives) {
  rodeo::Config config;
  config.hugepages = false;
  config.connections = connections;
  config.shared_receives = shared_receives;
  if (connections > 1) config.credits = 4;
  Ends ends;
  for (auto* end : {&ends.responder, &ends.requester}) {
    auto device = fabric.open_device();
    if (!device) return tl::unexpected(device.error());
    auto engine = Core::open_on(std::move(*device), config);
    if (!engine) return tl::unexpected(engine.error());
    *end = std::move(*engine);
  }
  rodeo::Program program{.number = kProgram, .version = 1, .name = "null", .procedures = {}};
  program.procedures.push_back({.number = 0, .name = "NULL", .handler = answer});
  if (auto ok = ends.responder->add_program(std::move(program)); !ok) return tl::unexpected(ok.error());
  if (auto ok = ends.responder->start(); !ok) return tl::unexpected(ok.error());
  if (auto ok = ends.requester->start(); !ok) return tl::unexpected(ok.error());
  if (auto ok = ends.responder->listen(kAddress); !ok) return tl::unexpected(ok.error());
  return ends;
}

rodeo::Result<rodeo::Connection*> connect(Ends& ends) {
  const auto attempt = ends.requester->begin_connect(kAddress, 0, 0);
  if (!attempt) return tl::unexpected(attempt.error());
  for (int turns = 0; turns < 1'000'000; ++turns) {
    ends.turn();
    auto connection = ends.requester->finish_connect(*attempt);
    if (!connection || *connection != nullptr) return connection;
  }
  return rodeo::fail("connect", "the two ends did not meet");
}

/// Keeps `window` calls out until `calls` are done. False when a reply stays away.
bool run(Ends& ends, Progress& progress, std::uint64_t window, std::uint64_t calls) {
  progress.to_submit = calls;
  progress.full = false;
  std::uint64_t idle_turns = 0;
  while (progress.to_submit != 0 || progress.outstanding() != 0) {
    // Until the Responder has granted the window.
    while (!progress.full && progress.to_submit != 0) {
      progress.full = progress.outstanding() >= window;
      if (progress.full || !progress.submit()) break;
    }
    const std::uint64_t before = progress.to_submit;
    ends.turn();
    idle_turns = progress.to_submit == before ? idle_turns + 1 : 0;
    if (idle_turns > 1'000'000) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  double calls = 100'000;
  double window = 16;
  double connections = 1;
  double shared_receives = 0;
  if (const auto status = rodeo::bench::parse_flags(argc, argv,
                                                    {{"--calls", &calls, 1, 1e12},
                                                     {"--window", &window, 1, 1024},
                                                     {"--connections", &connections, 1, 2000},
                                                     {"--shared-receives", &shared_receives, 0, 1}})) {
    return *status;
  }
  rodeo::dv::soft::Fabric fabric;
  auto ends = open_ends(fabric, static_cast<std::uint32_t>(connections), shared_receives != 0);
  if (!ends) return complain(ends.error());
  Progress progress;
  while (progress.turns.size() < static_cast<std::size_t>(connections)) {
    auto connection = connect(*ends);
    if (!connection) return complain(connection.error());
    Progress::Turn* const last = progress.turns.empty() ? nullptr : &progress.turns.back();
    progress.turns.push_back({*connection, nullptr});
    progress.turns.back().next = &progress.turns.front();
    if (last != nullptr) last->next = &progress.turns.back();
  }
  progress.turn = &progress.turns.front();

  rodeo::Credential credential;
  credential.flavor = rodeo::AuthFlavor::kSys;
  credential.sys.machine_name = "inprocess";
  credential.sys.uid = 1000;
  credential.sys.gid = 1000;
  const rodeo::CallTarget target(kProgram, 1, 0, credential);
  progress.request.target = &target;
  progress.request.on_reply = on_reply;
  progress.request.context = &progress;
  const std::uint64_t kWarmUp = 20 * progress.turns.size() + 2000;
  bool finished = run(*ends, progress, static_cast<std::uint64_t>(window), kWarmUp);

  const std::uint64_t allocations = rodeo::bench::allocation_count();
  const auto start = std::chrono::steady_clock::now();
  finished = finished && run(*ends, progress, static_cast<std::uint64_t>(window), static_cast<std::uint64_t>(calls));
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const std::uint64_t allocated = rodeo::bench::allocation_count() - allocations;
  if (!finished || progress.failed != 0) {
    std::fprintf(stderr, "inprocess_null: %llu calls failed%s\n", static_cast<unsigned long long>(progress.failed),
                 finished ? "" : ", and a reply stayed away");
    return 1;
  }
  std::printf("{\"calls\": %.0f, \"window\": %.0f, \"calls_per_second\": %.0f, \"allocations\": %llu}\n", calls, window,
              calls / took, static_cast<unsigned long long>(allocated));
  // Both ends turn until they have parted: neither stop() then waits for the other, which would take as many
  // instructions as there is time.
  for (const auto& turn : progress.turns) ends->requester->disconnect(turn.connection);
  while (ends->requester->connection_count() + ends->responder->connection_count() != 0) ends->turn();
  ends->requester->stop();
  ends->responder->stop();
  return 0;
}
