// SPDX-License-Identifier: Apache-2.0
// The tool: one subcommand a file.

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "apps/bench_options.h"
#include "apps/bench_report.h"
#include "apps/bench_run.h"
#include "apps/command_line.h"
#include "apps/cp.h"
#include "apps/ls.h"
#include "apps/ping.h"
#include "apps/stat.h"
#include "apps/sum.h"

namespace rodeo::apps {
namespace {

constexpr const char* kFooter = R"(
Examples:
  rodeo ping soft:rodeo --count 3
  rodeo bench soft:rodeo --cores 1 --seconds 3
  rodeo sum --back /usr/bin/*
  rodeo cp disk.img rdma://server/export/

Start an engine first: rodeod --poll-cores 0. "rodeo COMMAND --help" says more about a command.
)";

int run_bench_command(BenchOptions& options) {
  constexpr const char* kName = "rodeo bench";
  if (auto finished = finish_bench_options(options); !finished) {
    complain(kName, finished.error().message());
    return kExitUsage;
  }
  const auto result = run_bench(options);
  if (!result) {
    complain(kName, result.error().message());
    return kExitFailure;
  }
  fmt::print("{}", options.json ? bench_json(options, *result) : bench_table(options, *result));
  std::fflush(stdout);
  if (!result->failure.empty()) complain(kName, result->failure);
  return bench_exit_status(*result);
}

int run(int argc, char** argv) {
  CLI::App app{
      "Talks RPC-over-RDMA: is the engine there, how fast is it, does it get every octet right; and to NFS servers.",
      "rodeo"};
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("rodeo ") + kVersion, "Print the version and exit");
  app.require_subcommand(1);

  const auto add = [&](const char* name, const char* what, auto add_options, auto& options) {
    CLI::App* command = app.add_subcommand(name, what);
    add_options(*command, options);
    return command;
  };
  PingOptions ping;
  const auto* ping_command = add("ping", "One call at a time, with times", add_ping_options, ping);
  BenchOptions bench;
  const auto* bench_command = add("bench", "Rate and latency of many calls", add_bench_options, bench);
  SumOptions sum;
  add("sum", "SHA-256 of files, computed by the engine", add_sum_options, sum);
  LsOptions ls;
  const auto* ls_command = add("ls", "What a directory of an NFS server holds", add_ls_options, ls);
  StatOptions stat;
  const auto* stat_command = add("stat", "Attributes of files of an NFS server", add_stat_options, stat);
  CpOptions cp;
  const auto* cp_command = add("cp", "Copy files to an NFS server, or from one", add_cp_options, cp);

  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  remember_stop_signals();
  std::signal(SIGPIPE, SIG_DFL);
  if (ping_command->parsed()) return run_ping(ping);
  if (bench_command->parsed()) return run_bench_command(bench);
  if (ls_command->parsed()) return run_ls(ls);
  if (stat_command->parsed()) return run_stat(stat);
  if (cp_command->parsed()) return run_cp(cp);
  return run_sum(sum);
}

}  // namespace
}  // namespace rodeo::apps

int main(int argc, char** argv) { return rodeo::apps::run(argc, argv); }
