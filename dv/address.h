// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a service is: "soft:NAME" (software HCA of this host; NAME is a socket under the user's runtime directory),
// "sim:NAME" (a software HCA fabric inside this process), "rdma://host[:port]" (a real device, port 20049 by
// default), after which may stand ?device=NAME (else the device follows from the host's routes), ?verbs=plain (else
// direct verbs drive what they can), or both with an & between them.

#include <cstdint>
#include <string>
#include <string_view>

#include "pools/result.h"

namespace rodeo::dv {

struct Address {
  enum class Scheme : std::uint8_t { kSoft, kSimulated, kRdma };
  Scheme scheme = Scheme::kSoft;
  std::string name;        // soft, sim: the name; rdma: the host
  std::uint16_t port = 0;  // rdma only
  std::string device{};    // rdma only: empty unless named
  bool plain_verbs = false;

  /// Accepts what the comment above lists; anything else is an Error that says what is allowed.
  [[nodiscard]] static Result<Address> parse(std::string_view text);
  [[nodiscard]] std::string to_string() const;

  /// soft: the socket's path: $RODEO_RUNTIME_DIR, else $XDG_RUNTIME_DIR/rodeo, else /run/rodeo (root) or
  /// /tmp/rodeo-UID, then NAME.sock.
  [[nodiscard]] std::string socket_path() const;
};

}  // namespace rodeo::dv
