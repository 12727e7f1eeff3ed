// SPDX-License-Identifier: Apache-2.0
// The engine as a program: reads its command line, serves the test program, and stops when told to.

#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <memory>
#include <string>

#include "apps/command_line.h"
#include "apps/nfs/mount_server.h"
#include "apps/nfs/rpcbind.h"
#include "apps/rodeod_options.h"
#include "apps/test_program.h"
#include "engine/devices.h"
#include "engine/rodeo.h"
#include "engine/universal_address.h"

namespace rodeo::apps {
namespace {

constexpr const char* kName = "rodeod";
/// So that a payload of --bulk-bytes also fits into a Long Call or Long Reply with its headers.
constexpr std::size_t kLongMessageHeadroom = 4096;

/// Blocks what we wait for, here and in every thread started from here on.
sigset_t block_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  return signals;
}

/// From here on SIGINT and SIGTERM end the process at once.
void unblock_stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals, number);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void print_counters(const Engine& engine) {
  fmt::print("{} connections\n", engine.connection_count());
  for (const CounterValue& counter : engine.counters()) {
    if (counter.value != 0) fmt::print("{:>16}  {:<28} {}\n", counter.value, counter.name, counter.help);
  }
  std::fflush(stdout);
}

int give_up(const Error& error) {
  complain(kName, error.message());
  return kExitFailure;
}

void set_up_log(const std::string& level) {
  auto logger = spdlog::stderr_color_mt(kName);
  logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  logger->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(std::move(logger));
}

int print_devices() {
  bool any = false;
  for (const DeviceReport& device : describe_devices()) {
    fmt::print("{}\n", device.name);
    for (const std::string& line : device.lines) fmt::print("  {}\n", line);
    any = any || device.rdma;
  }
  if (!any) {
    fmt::print(
        "no RDMA device\n"
        "  rdma:// addresses need one: load the driver of the card (`ibv_devices` lists what it offers), or make one "
        "of\n"
        "  an ordinary network interface, as root: modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0\n"
        "  soft:NAME addresses need none, and stay on this host\n");
  }
  return kExitOk;
}

/// What rpcbind is to know: MOUNT, and NFS at each address that has a netid.
Result<std::vector<nfs::Service>> services_of(const RodeodOptions& options, std::uint16_t mount_port) {
  std::vector<nfs::Service> services = nfs::mount_services(mount_port);
  for (const std::string& address : options.listen) {
    if (!address.starts_with("rdma://")) continue;
    auto universal = UniversalAddress::of(address);
    if (!universal) return tl::unexpected(universal.error());
    services.push_back({nfs::kNfsProgram, nfs::kNfsVersion, std::move(universal->netid), std::move(universal->text)});
  }
  return services;
}

/// An address as the log has it: an rdma:// one with its netid and universal address.
std::string with_universal(const std::string& address) {
  if (!address.starts_with("rdma://")) return address;
  const auto universal = UniversalAddress::of(address);
  return universal ? fmt::format("{}, netid {}, universal address {}", address, universal->netid, universal->text)
                   : address;
}

/// Listens, says so, and waits for the signal that ends it.
Result<void> serve(Engine& engine, const RodeodOptions& options, const nfs::MountServer* mount,
                   const sigset_t& signals) {
  for (const std::string& address : options.listen) {
    if (auto listening = engine.listen(address); !listening) return listening;
  }
  std::unique_ptr<nfs::RpcbindRegistration> registration;
  if (options.rpcbind) {
    auto services = services_of(options, mount->port());
    if (!services) return tl::unexpected(services.error());
    auto registered = nfs::RpcbindRegistration::make(std::move(*services));
    if (!registered) return tl::unexpected(registered.error());
    registration = std::move(*registered);
  }
  for (const std::string& address : options.listen) spdlog::info("listening on {}", with_universal(address));
  for (const std::string& line : engine.describe()) spdlog::info("{}", line);
  for (const std::string& line : engine.warnings()) spdlog::warn("{}", line);
  for (const ExportSpec& spec : options.exports) {
    spdlog::info("export {}: {}, MOUNT on port {}", spec.path,
                 spec.directory.empty() ? human_bytes(static_cast<double>(spec.memory_bytes)) + " of memory"
                                        : "the directory " + spec.directory,
                 mount->port());
  }
  for (const std::string& address : options.listen) fmt::print("ready: {}\n", address);
  std::fflush(stdout);
  for (;;) {
    int number = 0;
    if (sigwait(&signals, &number) != 0) continue;
    if (number == SIGUSR1) {
      print_counters(engine);
      continue;
    }
    spdlog::info("stopping on {}", number == SIGINT ? "SIGINT" : "SIGTERM");
    return {};
  }
}

int run(RodeodOptions options) {
  set_up_log(options.log_level);
  Config& config = options.config;
  if (config.poll_cores.empty()) {
    const auto core = lowest_allowed_core();
    if (!core) return give_up(core.error());
    config.poll_cores = {*core};
  }
  const std::size_t payload_bytes = config.bulk_bytes;
  config.bulk_bytes += kLongMessageHeadroom;
  // Pages of exports first: they are aligned as the memory is.
  const std::size_t export_bytes = export_memory_bytes(options.exports);
  config.application_bytes = export_bytes + TestProgram::application_bytes(payload_bytes);
  const sigset_t signals = block_signals();

  // The programs outlive the engine: their handlers run until the engine is gone.
  std::unique_ptr<TestProgram> program;
  OpenExports exports;
  std::unique_ptr<nfs::NfsServer> nfs_server;
  std::unique_ptr<nfs::MountServer> mount_server;
  auto opened = Engine::open(options.listen.front(), config);
  if (!opened) return give_up(opened.error());
  const std::unique_ptr<Engine> engine = std::move(*opened);
  auto added = TestProgram::add_to(*engine, engine->application_memory().subspan(export_bytes), payload_bytes);
  if (!added) return give_up(added.error());
  program = std::move(*added);
  if (!options.exports.empty()) {
    auto opened_exports = open_exports(options.exports, engine->application_memory());
    if (!opened_exports) return give_up(opened_exports.error());
    exports = std::move(*opened_exports);
    auto nfs_added = nfs::NfsServer::add_to(*engine, exports.exports, payload_bytes);
    if (!nfs_added) return give_up(nfs_added.error());
    nfs_server = std::move(*nfs_added);
  }
  if (auto started = engine->start(); !started) return give_up(started.error());
  if (nfs_server != nullptr) {
    auto mount = nfs::MountServer::start(*nfs_server, {.port = options.mount_port});
    if (!mount) return give_up(mount.error());
    mount_server = std::move(*mount);
  }
  const auto served = serve(*engine, options, mount_server.get(), signals);
  unblock_stop_signals();
  program->stop_holding_calls();
  mount_server.reset();
  engine->stop();
  if (!served) return give_up(served.error());
  print_counters(*engine);
  // What such a connection holds is missing, and rightly so.
  if (const std::size_t cut = engine->connection_count(); cut != 0) {
    spdlog::warn("{} connection{} cut off: the peer does not answer", cut, cut == 1 ? " was" : "s were");
    fmt::print("stopped\n");
    return kExitOk;
  }
  const auto [adds_up, where] = engine->audit();
  if (!adds_up) spdlog::error("buffers are missing: {}", where);
  fmt::print("stopped\n");
  return adds_up ? kExitOk : kExitFailure;
}

}  // namespace
}  // namespace rodeo::apps

int main(int argc, char** argv) {
  rodeo::apps::RodeodOptions options;
  if (const auto status = rodeo::apps::parse_rodeod_options(argc, argv, options)) return *status;
  if (options.devices) return rodeo::apps::print_devices();
  return rodeo::apps::run(std::move(options));
}
