// SPDX-License-Identifier: Apache-2.0
// What an embedder writes: a program of its own, served and called in one process. Compiled by scripts/check against
// the installed tree.

#include <rodeo/rodeo.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <span>
#include <thread>

namespace {

constexpr std::uint32_t kProgram = 0x20000099;

/// Procedure 1 takes two numbers and returns their sum.
void add(rodeo::Call& call, void*) noexcept {
  rodeo::XdrReader arguments = call.arguments();
  const std::uint32_t a = arguments.u32();
  const std::uint32_t b = arguments.u32();
  if (!arguments.ok()) return call.reject(rodeo::AcceptStat::kGarbageArgs);
  call.results().u32(a + b);
  call.reply();
}

int complain(const rodeo::Error& error) {
  std::fprintf(stderr, "embed-example: %s\n", error.message().c_str());
  return 1;
}

/// Serves until told to stop.
void serve(rodeo::Engine& engine, const std::atomic<bool>& stopping) {
  while (!stopping.load(std::memory_order_relaxed)) engine.step();
}

int call_once(const char* address, const rodeo::Config& config) {
  auto client = rodeo::Client::open(address, config);
  if (!client) return complain(client.error());
  const rodeo::CallTarget target(kProgram, 1, 1, {});
  std::array<std::byte, 8> arguments{};
  rodeo::store_be32(arguments.data(), 40);
  rodeo::store_be32(arguments.data() + 4, 2);
  rodeo::CallRequest request;
  request.target = &target;
  request.arguments = arguments;
  request.max_results = 4;
  auto reply = client->call(request);
  if (!reply) return complain(reply.error());
  if (reply->results.size() != 4) return 1;
  std::printf("40 + 2 = %u\n", rodeo::load_be32(reply->results.data()));
  return rodeo::load_be32(reply->results.data()) == 42 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const char* address = argc > 1 ? argv[1] : "soft:embed-example";
  rodeo::Config config;
  config.hugepages = false;
  auto engine = rodeo::Engine::open(address, config);
  if (!engine) return complain(engine.error());
  rodeo::Program program{.number = kProgram, .version = 1, .name = "example", .procedures = {}};
  program.procedures.push_back({.number = 1, .name = "ADD", .handler = add});
  if (auto ok = (*engine)->add_program(program); !ok) return complain(ok.error());
  if (auto ok = (*engine)->start(); !ok) return complain(ok.error());
  if (auto ok = (*engine)->listen(address); !ok) return complain(ok.error());

  std::atomic<bool> stopping{false};
  std::thread server([&] { serve(**engine, stopping); });
  const int status = call_once(address, config);
  stopping = true;
  server.join();
  (*engine)->stop();
  return status;
}
