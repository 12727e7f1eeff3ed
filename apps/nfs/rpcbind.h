// SPDX-License-Identifier: Apache-2.0
#pragma once

// Tells this host's rpcbind (RFC 1833) where programs are served: MOUNT under "tcp", "udp" and their IPv6 forms, NFS
// under "rdma" and "rdma6" (RFC 8166 §9, RFC 8267 §4.2). By libtirpc, over rpcbind's own socket; libtirpc's rpcb_set
// knows no netids of RDMA.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "pools/result.h"

namespace rodeo::nfs {

inline constexpr const char* kRpcbindSocket = "/run/rpcbind.sock";

/// One thing to be known by rpcbind.
struct Service {
  std::uint32_t program = 0;
  std::uint32_t version = 0;
  std::string netid;
  std::string address;  // universal
};

/// MOUNT on this port, of both families, over TCP and UDP.
[[nodiscard]] std::vector<Service> mount_services(std::uint16_t port);

class RpcbindRegistration {
 public:
  /// Registers them all, or none. Blocks for some seconds at most. An entry that is there already and says the same
  /// counts as ours: a process that was killed left it. `socket`: where rpcbind is.
  [[nodiscard]] static Result<std::unique_ptr<RpcbindRegistration>> make(std::vector<Service> services,
                                                                         std::string socket = kRpcbindSocket);
  RpcbindRegistration(const RpcbindRegistration&) = delete;
  RpcbindRegistration& operator=(const RpcbindRegistration&) = delete;
  ~RpcbindRegistration();  // takes them away again

 private:
  RpcbindRegistration(std::vector<Service> services, std::string socket)
      : services_(std::move(services)), socket_(std::move(socket)) {}

  std::vector<Service> services_;  // that are registered
  std::string socket_;
};

}  // namespace rodeo::nfs
