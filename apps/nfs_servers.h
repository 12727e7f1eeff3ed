// SPDX-License-Identifier: Apache-2.0
#pragma once

// The servers that a command talks to, each connected once, and again after its connection was lost.

#include <map>
#include <memory>
#include <string>
#include <utility>

#include "apps/nfs/path_walker.h"

namespace rodeo::apps {

struct ConnectedServer {
  std::unique_ptr<nfs::NfsClient> client;
  nfs::PathWalker walker;
};

class NfsServers {
 public:
  explicit NfsServers(nfs::NfsClientOptions options) : options_(std::move(options)) {}

  /// Valid until it is asked for again.
  [[nodiscard]] nfs::NfsResult<ConnectedServer*> at(const std::string& address) {
    const auto known = servers_.find(address);
    if (known != servers_.end() && known->second.client->usable()) return &known->second;
    if (known != servers_.end()) servers_.erase(known);
    auto client = nfs::NfsClient::open(address, options_);
    if (!client) return tl::unexpected(client.error());
    nfs::PathWalker walker(**client);
    return &servers_.try_emplace(address, ConnectedServer{std::move(*client), std::move(walker)}).first->second;
  }

 private:
  nfs::NfsClientOptions options_;
  std::map<std::string, ConnectedServer> servers_{};
};

}  // namespace rodeo::apps
