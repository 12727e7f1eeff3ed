// SPDX-License-Identifier: Apache-2.0
// A whole program that serves a store of its own by NFS version 3: scripts/check-install compiles it against an
// installed tree and runs it. usage: embed-nfs-example ADDRESS

#include <rodeo/apps/nfs/example_store.h>
#include <rodeo/nfs.h>
#include <rodeo/rodeo.h>

#include <cstdio>
#include <vector>

namespace {

int complain(const rodeo::Error& error) {
  std::fprintf(stderr, "%s\n", error.message().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  rodeo::Config config;
  config.hugepages = false;
  auto engine = rodeo::Engine::open(argv[1], config);
  if (!engine) return complain(engine.error());
  rodeo::nfs::ExampleStore store(std::vector<rodeo::nfs::ExampleStore::File>{{"hello", "Hello, world!\n"}});
  auto server = rodeo::nfs::NfsServer::add_to(**engine, {{"/example", &store, {}}}, config.bulk_bytes);
  if (!server) return complain(server.error());
  if (auto started = (*engine)->start(); !started) return complain(started.error());
  if (auto listening = (*engine)->listen(argv[1]); !listening) return complain(listening.error());
  auto mount = rodeo::nfs::MountServer::start(**server, {.port = 0});
  if (!mount) return complain(mount.error());
  std::printf("serving %s, MOUNT on port %u\n", argv[1], (*mount)->port());
  (*mount).reset();
  (*engine)->stop();
  return 0;
}
