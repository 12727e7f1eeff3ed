// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the host's resolver makes of an rdma:// address. Blocks. Runs on: control thread.

#include <netdb.h>
#include <sys/socket.h>

#include <memory>

#include "dv/address.h"
#include "pools/result.h"

namespace rodeo::dv {

class Resolved {
 public:
  /// `passive`: to listen there.
  [[nodiscard]] static Result<Resolved> of(const Address& address, bool passive);

  /// The first of what it found: AF_INET or AF_INET6, with the port.
  [[nodiscard]] sockaddr* first() const noexcept { return list_->ai_addr; }
  /// The same, whose port is 0 from now on.
  [[nodiscard]] sockaddr* without_port() const noexcept;

 private:
  struct Free {
    void operator()(addrinfo* a) const noexcept { freeaddrinfo(a); }
  };
  std::unique_ptr<addrinfo, Free> list_;
};

}  // namespace rodeo::dv
