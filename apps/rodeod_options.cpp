// SPDX-License-Identifier: Apache-2.0
#include "apps/rodeod_options.h"

#include "apps/command_line.h"

namespace rodeo::apps {
namespace {

constexpr const char* kFooter = R"(
Examples:
  rodeod                                        serve soft:rodeo from one polled core
  rodeod --poll-cores 0 --listen soft:demo      the same under another name, on core 0
  rodeod --poll-cores 0,2-3 --worker-cores 0x30 three loops; handlers that hash run on cores 4 and 5
  rodeod --no-hugepages                         on ordinary pages, where none are reserved
  rodeod --listen rdma://192.0.2.1              on the RDMA device that has this address, port 20049
  rodeod --listen rdma://192.0.2.1 --export /data=memory,size=1G
                                                and serves NFS version 3 there, from memory
  rodeod --listen rdma://192.0.2.1 --export /data=/srv/data,client=192.0.2.0/24
                                                the same from a directory, to these clients
  rodeod --devices                              what could it run on?
  rodeo ping soft:rodeo                         is it there?

A Linux client mounts an export with
  mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=20048,nolock 192.0.2.1:/data /mnt

A poll core is busy all the time: give rodeod cores of its own, and clients others. Without --worker-cores every handler
runs on the poll core that received its Call.

Hugepages make large pools faster. Without them rodeod warns and uses ordinary pages. To reserve 512 MiB, as root:
  sysctl vm.nr_hugepages=256
and as a user other than root, nothing else is needed.

Names of soft: addresses are sockets in $RODEO_RUNTIME_DIR, else in $XDG_RUNTIME_DIR/rodeo, else in /run/rodeo for root
and in /tmp/rodeo-UID for others.

SIGINT and SIGTERM stop it: Calls under way are answered, and counters printed. A second one ends it at once. SIGUSR1
prints the counters and goes on.
)";

int wrong_input(const CLI::App& app, const Error& error) {
  complain(app.get_name(), error.message());
  return kExitUsage;
}

}  // namespace

std::optional<int> parse_rodeod_options(int argc, const char* const* argv, RodeodOptions& options) {
  CLI::App app{"Serves RPC-over-RDMA version 1 (RFC 8166) from polled cores.", "rodeod"};
  Config& config = options.config;
  app.footer(std::string(kFooter) + "\n" + kExportHelp + "\n");
  app.set_version_flag("--version", std::string("rodeod ") + kVersion, "Print the version and exit");
  app.option_defaults()->always_capture_default();

  add_cores(app, "--poll-cores", config.poll_cores,
            "Cores that poll, one loop each: a mask (0x5) or a list (0,2-3). Default: the lowest core we may use")
      ->group("Cores");
  add_cores(app, "--worker-cores", config.worker_cores,
            "Cores that run the handlers which take long, such as hashing. Default: none, poll cores run them")
      ->group("Cores");
  app.add_option("--listen", options.listen,
                 "Address to serve, soft:NAME or rdma://HOST[:PORT][?device=NAME][&verbs=plain]; may be repeated. "
                 "Default: soft:rodeo")
      ->type_name("ADDRESS")
      ->group("Connections");
  app.add_option("--connections", config.connections, "Connections that the pools are sized for")
      ->check(whole_number(1, 65'536))
      ->group("Connections");
  app.add_option("--credits", config.credits, "Calls that one Requester may have outstanding")
      ->check(whole_number(1, 4'096))
      ->group("Connections");
  app.add_option("--reverse-credits", config.reverse_credits,
                 "Calls that one client may have outstanding from us, for what calls back (RFC 8167). 0: nothing does")
      ->check(whole_number(0, 1'024))
      ->group("Connections");
  app.add_flag("--shared-receives", config.shared_receives,
               "Let connections share receive queues: faster where a core serves many")
      ->group("Connections");
  app.add_option("--inline-send", config.inline_send_bytes, "Largest message we send without chunks, 1K to 256K")
      ->transform(inline_threshold())
      ->group("Connections");
  app.add_option("--inline-receive", config.inline_receive_bytes,
                 "Largest message we accept without chunks, 1K to 256K; each receive buffer is so large")
      ->transform(inline_threshold())
      ->group("Connections");
  bool remote_invalidation = false;
  app.add_flag("--remote-invalidation", remote_invalidation,
               "Let a Reply take the key of its Call's memory away where the client allows it (RFC 8797)")
      ->group("Memory");
  app.add_option("--max-read", config.max_read_bytes,
                 "Octets that one Call may ask us to pull; more is refused. 0: four times --bulk-bytes")
      ->transform(byte_size(0, std::uint64_t{1} << 32U))
      ->group("Memory");
  app.add_option("--small-buffers", config.small_buffers,
                 "Message buffers in all. 0: enough for the connections and credits above")
      ->check(whole_number(0, 1U << 24U))
      ->group("Memory");
  app.add_option("--bulk-buffers", config.bulk_buffers, "Buffers for Read chunks and long messages. 0: chosen for you")
      ->check(whole_number(0, 1U << 20U))
      ->group("Memory");
  app.add_option("--bulk-bytes", config.bulk_bytes, "The largest payload that one of them holds, 4K to 256M")
      ->transform(byte_size(4096, kMaxPayloadBytes))
      ->group("Memory");
  std::vector<std::string> exports;
  std::string exports_file;
  app.add_option("--export", exports, "A file system to serve by NFS version 3, as told below; may be repeated")
      ->type_name("PATH=memory,OPTION,...")
      ->group("NFS");
  app.add_option("--exports-file", exports_file, "A file with one of them a line")->type_name("FILE")->group("NFS");
  app.add_option("--mount-port", options.mount_port,
                 "Where MOUNT is served over TCP and UDP when there are exports. 0: where there is room")
      ->check(whole_number(0, 65'535))
      ->group("NFS");
  app.add_flag("--rpcbind", options.rpcbind,
               "Tell this host's rpcbind of MOUNT (tcp, udp) and of NFS (rdma, rdma6), until the end")
      ->group("NFS");
  app.add_flag("--devices", options.devices,
               "List the devices of this host, what they can do and how they would be used, and exit");
  bool no_hugepages = false;
  app.add_flag("--no-hugepages", no_hugepages, "Use ordinary pages and do not warn about it")->group("Memory");
  app.add_option("--log-level", options.log_level, "How much to tell: debug, info, warn, error or off")
      ->check(CLI::Validator(
          [](std::string& text) {
            for (const char* level : {"debug", "info", "warn", "error", "off"}) {
              if (text == level) return std::string();
            }
            return "\"" + text + "\" is not allowed; use debug, info, warn, error or off";
          },
          "LEVEL", "log_level"));

  if (const auto status = parse_command_line(app, argc, argv)) return status;
  config.hugepages = !no_hugepages;
  for (const std::string& text : exports) {
    auto spec = parse_export(text);
    if (!spec) return wrong_input(app, spec.error());
    options.exports.push_back(std::move(*spec));
  }
  if (!exports_file.empty()) {
    auto specs = read_exports_file(exports_file);
    if (!specs) return wrong_input(app, specs.error());
    for (ExportSpec& spec : *specs) options.exports.push_back(std::move(spec));
  }
  if (options.rpcbind && options.exports.empty()) {
    return wrong_input(app, {"there is nothing to tell rpcbind of", "--rpcbind", "add an --export"});
  }
  // It makes no calls, so nobody needs a key of its memory.
  config.registration = remote_invalidation ? Registration::kRemoteInvalidation : Registration::kNone;
  if (options.listen.empty()) options.listen.emplace_back(kDefaultAddress);
  return std::nullopt;
}

}  // namespace rodeo::apps
