// SPDX-License-Identifier: Apache-2.0
#include "apps/cp.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/command_line.h"
#include "apps/copy_in.h"
#include "apps/copy_job.h"
#include "apps/copy_out.h"
#include "apps/location.h"

namespace rodeo::apps {
namespace {

constexpr const char* kName = "rodeo cp";

constexpr const char* kFooter = R"(
Examples:
  rodeo cp disk.img rdma://server/export/            to a server
  rodeo cp rdma://server/export/disk.img .           and from it
  rodeo cp -rp src rdma://[fd00::1]/export/backup    a tree, with modes and times
  rodeo cp --checksum a b soft:rodeo/data            read back, compared, and summed as by sha256sum

Each file is written under a name of its own, .rodeo-cp-..., made stable, and then renamed: what has the right name is
complete. The exit status is 1 when anything could not be copied.
)";

}  // namespace

void add_cp_options(CLI::App& app, CpOptions& options) {
  constexpr const char* kGroup = "Transfer";
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  app.add_option("paths", options.paths, "Sources, then where they go. One side is rdma://HOST[:PORT]/EXPORT/PATH")
      ->required()
      ->expected(2, -1)
      ->type_name("SOURCE... DESTINATION");
  app.add_flag("-r,-R", options.recursive, "Directories with what they hold; symbolic links as they are");
  app.add_flag("-p", options.preserve, "Keep mode and times");
  app.add_flag("--checksum", options.checksum, "Compare with what arrived, and print SHA-256 sums by the local name");
  app.add_option("--block", options.block_bytes, "Octets of one READ or WRITE, 1K to 1M; the server may want less")
      ->transform(byte_size(1024, nfs::kMaxTransferBytes))
      ->group(kGroup);
  app.add_option("--window", options.window, "READs or WRITEs under way at once")
      ->check(whole_number(1, 128))
      ->group(kGroup);
  add_nfs_options(app, options.nfs);
}

int run_cp(const CpOptions& options) {
  std::vector<Location> sources;
  for (std::size_t i = 0; i + 1 < options.paths.size(); ++i) sources.push_back(parse_location(options.paths[i]));
  const Location destination = parse_location(options.paths.back());
  const bool out = destination.remote();
  const std::string& address = out ? destination.address : sources.front().address;
  for (const Location& source : sources) {
    if (source.remote() == out || (!out && source.address != address)) {
      complain(kName, fmt::format("\"{}\" to \"{}\" is not between this host and one server; "
                                  "write the server's side as rdma://HOST[:PORT]/EXPORT/PATH",
                                  source.text(), destination.text()));
      return kExitUsage;
    }
  }
  nfs::NfsClientOptions how = nfs_client_options(options.nfs);
  how.credits = options.window + 1;
  how.application_bytes = std::size_t{options.block_bytes} * options.window;
  const auto client = nfs::NfsClient::open(address, how);
  if (!client) {
    complain(kName, address + ": " + client.error().message());
    return kExitFailure;
  }
  nfs::PathWalker walker(**client);
  CopyJob job(options, **client, walker);
  if (out) {
    copy_out(job, {options.paths.begin(), options.paths.end() - 1}, options.paths.back());
  } else {
    copy_in(job, sources, options.paths.back());
  }
  if (stop_signalled() && job.all_well()) complain(kName, "interrupted");
  const bool printed = std::fflush(stdout) == 0;
  return job.all_well() && printed && !stop_signalled() ? kExitOk : kExitFailure;
}

}  // namespace rodeo::apps
