// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs_options.h"

#include "apps/command_line.h"

namespace rodeo::apps {

void add_nfs_options(CLI::App& app, NfsOptions& options) {
  constexpr const char* kGroup = "Server";
  constexpr std::uint64_t kMaxId = 0xffff'fffe;
  app.add_option("--uid", options.uid, "User to ask as. Default: yours")->check(whole_number(0, kMaxId))->group(kGroup);
  app.add_option("--gid", options.gid, "Group to ask as, and then no other. Default: yours")
      ->check(whole_number(0, kMaxId))
      ->group(kGroup);
  app.add_option("--mount-port", options.mount_port,
                 "TCP port of the server's MOUNT. 0: as its rpcbind says, else 20048")
      ->check(whole_number(0, 65'535))
      ->group(kGroup);
  add_registration(app, options.registration,
                   "How the server reaches our memory: pool-key, key-per-call, remote-invalidation or auto")
      ->group(kGroup);
  app.add_option("--inline", options.inline_bytes, "Largest message without chunks, both ways, 1K to 256K")
      ->transform(inline_threshold())
      ->group(kGroup);
  app.add_option("--timeout", options.timeout_s, "Seconds to wait for an answer")
      ->check(whole_number(1, 3600))
      ->group(kGroup);
}

nfs::NfsClientOptions nfs_client_options(const NfsOptions& options) {
  nfs::NfsClientOptions out;
  out.caller = nfs::Caller::of_process();
  if (options.uid || options.gid) {
    out.caller.uid = options.uid.value_or(out.caller.uid);
    out.caller.gid = options.gid.value_or(out.caller.gid);
    out.caller.gids.clear();
  }
  out.mount_port = options.mount_port;
  out.registration = options.registration;
  out.inline_bytes = options.inline_bytes;
  out.patience = std::chrono::seconds(options.timeout_s);
  out.interrupted = &stop_signalled;
  return out;
}

}  // namespace rodeo::apps
