// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/command_line.h"

namespace rodeo::apps {
namespace {

constexpr const char* kWhere = "rodeo bench";
constexpr std::uint32_t kMaxWindow = 65'536;
constexpr std::uint32_t kMaxConnections = 16'384;

constexpr const char* kFooter = R"(
Examples:
  rodeo bench soft:rodeo                                          NULL calls, 64 outstanding, 3 seconds
  rodeo bench soft:rodeo --cores 1 --window 1                     round trip of one call at a time
  rodeo bench soft:rodeo --proc fill --size 1M                    bulk data by Write chunk
  rodeo bench soft:rodeo --connections 1000 --window 256          many connections
  rodeo bench soft:rodeo --mix null=80,fill:1M=10,checksum:64K=10 a mix: procedure:bytes=weight
  rodeo bench soft:rodeo --mix kernel-nfs3                        shapes recorded from a kernel's NFS traffic
  rodeo bench soft:rodeo --proc nfs-read --size 4K --export /data NFS READs of a file in an export of rodeod
  rodeo bench soft:rodeo --json > result.json                     one JSON object for scripts

Procedures: null; echo (inline, or Long Call and Long Reply when large); checksum (data by Read chunk); fill (data by
Write chunk); mirror (both); delay (answered later; delay:MICROSECONDS in a mix); callback (answered when it has called
us back by RFC 8167, once or callback:TIMES in a mix; see rodeod --reverse-credits); long-call and long-reply
(Position-Zero Read chunk, Reply chunk); nfs-read and nfs-write (NFS version 3, of a file rodeo-bench in an export that
is a rodeod's and in memory, or any that rodeod serves MOUNT for over this transport).

Every core runs one closed loop: a call is sent when another returns. Cores that the engine polls are not for the bench.
What comes back is compared with what should, which costs time on bulk data; --no-verify leaves that out. Any error, or
an engine that goes away, makes the exit status 1.
)";

}  // namespace

void add_bench_options(CLI::App& app, BenchOptions& options) {
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  app.add_option("address", options.address, "Where the engine listens, such as soft:rodeo")->required();
  add_cores(app, "--cores", options.cores, "Cores to send from, mask or list. Default: the highest core we may use")
      ->group("Load");
  app.add_option("--connections", options.connections, "Connections, spread over the cores")
      ->check(whole_number(1, kMaxConnections))
      ->group("Load");
  app.add_option("--window", options.window, "Calls outstanding, all connections together")
      ->check(whole_number(1, kMaxWindow))
      ->group("Load");
  CLI::Option* proc = app.add_option("--proc", options.proc, "What to call; the names stand below")->group("Load");
  app.add_option("--mix", options.mix_text,
                 "Several procedures by weight, or a recorded mix: kernel-nfs3, kernel-nfs42")
      ->excludes(proc)
      ->group("Load");
  app.add_option("--export", options.nfs_export, "Where nfs-read and nfs-write find their file")->group("Load");
  app.add_option("--size", options.size_bytes, "Payload of a call, up to 256M")
      ->transform(byte_size(0, kMaxPayloadBytes))
      ->group("Load");
  app.add_option("--delay-us", options.delay_us, "How long a delay call waits, in microseconds")
      ->check(whole_number(0, kMaxDelayUs))
      ->group("Load");
  CLI::Option* seconds = app.add_option("--seconds", options.seconds, "How long to measure")
                             ->check(positive_time(86'400))
                             ->group("Length");
  app.add_option("--count", options.count, "Calls to measure, instead of a time")
      ->check(whole_number(1, 1'000'000'000'000))
      ->excludes(seconds)
      ->group("Length");
  app.add_option("--warmup", options.warmup_seconds, "Seconds of load before measuring")
      ->check(positive_time(3600))
      ->group("Length");
  app.add_option("--stall", options.stall_seconds, "Give up after so many seconds without any reply")
      ->check(positive_time(3600))
      ->group("Length");
  app.add_option("--inline-send", options.inline_send_bytes, "Largest message we send without chunks, 1K to 256K")
      ->transform(inline_threshold())
      ->group("Connection");
  app.add_option("--inline-receive", options.inline_receive_bytes,
                 "Largest message we accept without chunks, 1K to 256K")
      ->transform(inline_threshold())
      ->group("Connection");
  app.add_option("--credits", options.credits, "Credits to ask for on each connection. 0: its share of the window")
      ->check(whole_number(0, 4096))
      ->group("Connection");
  app.add_flag("--shared-receives", options.shared_receives,
               "Let our connections share receive queues: faster with many of them on a core")
      ->group("Connection");
  add_registration(
      app, options.registration,
      "How the engine reaches our memory: pool-key, one key for all; key-per-call; remote-invalidation, the "
      "same and its Replies take keys away; auto, pool-key on one host and key-per-call elsewhere")
      ->group("Connection");
  app.add_flag("--no-hugepages", options.no_hugepages, "Use ordinary pages and do not warn about it")
      ->group("Connection");
  app.add_flag("--no-verify", options.no_verify, "Do not compare what comes back")->group("Output");
  app.add_flag("--json", options.json, "One JSON object on standard output instead of the table")->group("Output");
}

Result<void> finish_bench_options(BenchOptions& options) {
  auto mix = options.mix_text.empty() ? mix_of_proc(options.proc, options.size_bytes, options.delay_us)
                                      : parse_mix(options.mix_text, options.size_bytes, options.delay_us);
  if (!mix) return tl::unexpected(mix.error());
  options.mix = std::move(*mix);
  if (options.cores.empty()) {
    const auto core = highest_allowed_core();
    if (!core) return tl::unexpected(core.error());
    options.cores = {*core};
  }
  if (options.count == 0 && options.seconds <= 0) {
    return fail(kWhere, "--seconds 0 measures nothing", "use a time above 0, or --count");
  }
  const auto cores = static_cast<std::uint32_t>(options.cores.size());
  if (options.connections < cores) {
    return fail(kWhere,
                fmt::format("{} cores cannot share {} connection{}", cores, options.connections,
                            options.connections == 1 ? "" : "s"),
                fmt::format("use --connections {} or more, or fewer cores", cores));
  }
  if (options.window < cores) {
    return fail(kWhere, fmt::format("{} cores cannot share a window of {}", cores, options.window),
                fmt::format("use --window {} or more, or fewer cores", cores));
  }
  return {};
}

std::uint32_t window_per_connection(const BenchOptions& options) {
  return (options.window + options.connections - 1) / options.connections;
}

}  // namespace rodeo::apps
