// SPDX-License-Identifier: Apache-2.0
#pragma once

// Netids and universal addresses, as rpcbind has them (RFC 5665 §5, RFC 8166 §9): netid "rdma" where a transport is
// addressed by IPv4 and "rdma6" where by IPv6, whatever the fabric; the address in the form of "tcp" and "tcp6", with
// the port's two octets in decimal behind it: 192.0.2.1.78.81 is port 20049.

#include <sys/socket.h>

#include <optional>
#include <string>
#include <string_view>

#include "pools/result.h"

namespace rodeo {

struct UniversalAddress {
  std::string netid;  // case matters
  std::string text;
  bool operator==(const UniversalAddress&) const = default;

  /// Of an AF_INET or AF_INET6 address of an RDMA transport; nothing of any other.
  [[nodiscard]] static std::optional<UniversalAddress> of(const sockaddr& address);
  /// Of "rdma://HOST:PORT", as this host resolves it; blocks for that. An error where it is not one.
  [[nodiscard]] static Result<UniversalAddress> of(std::string_view address);
  /// The address that it means; nothing when the netid is neither of the two or the text is not of its form.
  [[nodiscard]] std::optional<sockaddr_storage> parse() const;
};

}  // namespace rodeo
