// SPDX-License-Identifier: Apache-2.0
// Transport headers, chunk lists and RPC headers: what one message costs to decode and to encode.

#include <benchmark/benchmark.h>

#include <array>
#include <string>

#include "bench/per_operation.h"
#include "engine/chunk_list.h"
#include "engine/golden_messages.h"
#include "engine/rpc_message.h"
#include "engine/transport_header.h"

namespace {

using rodeo::bench::PerOperation;

void decode_header(benchmark::State& state, const rodeo::golden::Message& message) {
  const rodeo::golden::Octets octets = rodeo::golden::wire(message.words);
  rodeo::TransportHeader header;
  rodeo::ChunkLists lists;
  PerOperation per_operation(state);
  for (auto _ : state) {
    const auto outcome = message.kind == rodeo::golden::Kind::kCall ? rodeo::decode_call_header(octets, header, lists)
                                                                    : rodeo::decode_reply_header(octets, header, lists);
    if (outcome != rodeo::HeaderOutcome::kOk) state.SkipWithError("a golden message was refused");
    benchmark::DoNotOptimize(header);
  }
  per_operation.report(1);
}

void recognise_plain_call(benchmark::State& state) {
  const rodeo::golden::Octets octets = rodeo::golden::wire(rodeo::golden::kE1Call);
  rodeo::TransportHeader header;
  PerOperation per_operation(state);
  for (auto _ : state) {
    const std::byte* message = octets.data();
    benchmark::DoNotOptimize(message);
    if (!rodeo::is_plain_msg(message, octets.size(), header))
      state.SkipWithError("a plain message was not seen as one");
    benchmark::DoNotOptimize(header);
  }
  per_operation.report(1);
}
BENCHMARK(recognise_plain_call);

void encode_header(benchmark::State& state, const rodeo::golden::Message& message) {
  const rodeo::golden::Octets octets = rodeo::golden::wire(message.words);
  rodeo::TransportHeader header;
  rodeo::ChunkLists lists;
  if (rodeo::decode_call_header(octets, header, lists) != rodeo::HeaderOutcome::kOk) {
    state.SkipWithError("a golden message was refused");
    return;
  }
  std::array<std::byte, 4096> out{};
  PerOperation per_operation(state);
  for (auto _ : state) {
    std::size_t bytes = rodeo::encode_header(out, header.xid, header.credit, header.proc, lists);
    benchmark::DoNotOptimize(bytes);
    benchmark::ClobberMemory();
  }
  per_operation.report(1);
}

/// An AUTH_SYS credential with a host name of ten octets and `gids` groups.
rodeo::Credential auth_sys(std::uint32_t gids) {
  rodeo::Credential credential;
  credential.flavor = rodeo::AuthFlavor::kSys;
  credential.sys.machine_name = "benchmarks";
  credential.sys.uid = 1000;
  credential.sys.gid = 1000;
  credential.sys.gid_count = gids;
  return credential;
}

void encode_rpc_call(benchmark::State& state) {
  const rodeo::Credential credential = auth_sys(static_cast<std::uint32_t>(state.range(0)));
  std::array<std::byte, rodeo::kMaxCallHeaderBytes> out{};
  PerOperation per_operation(state);
  for (auto _ : state) {
    std::size_t bytes = rodeo::encode_call_header(out, 7, 100003, 3, 0, credential);
    benchmark::DoNotOptimize(bytes);
    benchmark::ClobberMemory();
  }
  per_operation.report(1);
}
BENCHMARK(encode_rpc_call)->ArgName("gids")->Arg(0)->Arg(16);

void decode_rpc_call(benchmark::State& state) {
  const rodeo::Credential credential = auth_sys(static_cast<std::uint32_t>(state.range(0)));
  std::array<std::byte, rodeo::kMaxCallHeaderBytes> message{};
  const std::size_t bytes = rodeo::encode_call_header(message, 7, 100003, 3, 0, credential);
  rodeo::CallHeader header;
  PerOperation per_operation(state);
  for (auto _ : state) {
    const std::byte* start = message.data();
    benchmark::DoNotOptimize(start);
    if (rodeo::decode_call({start, bytes}, header) != rodeo::CallOutcome::kOk)
      state.SkipWithError("a Call was refused");
    benchmark::DoNotOptimize(header);
  }
  per_operation.report(1);
}
BENCHMARK(decode_rpc_call)->ArgName("gids")->Arg(0)->Arg(16);

}  // namespace

int main(int argc, char** argv) {
  for (const rodeo::golden::Message& message : rodeo::golden::kMessages) {
    const std::string name(message.name);
    benchmark::RegisterBenchmark(("decode_header/" + name).c_str(),
                                 [&message](benchmark::State& state) { decode_header(state, message); });
    if (message.kind == rodeo::golden::Kind::kCall) {
      benchmark::RegisterBenchmark(("encode_header/" + name).c_str(),
                                   [&message](benchmark::State& state) { encode_header(state, message); });
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
