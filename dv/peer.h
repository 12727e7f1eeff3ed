// SPDX-License-Identifier: Apache-2.0
#pragma once

// Who is at the other end of a connection: an address, or over the software HCA a process of this host. Plain data.

#include <sys/socket.h>

#include <array>
#include <cstdint>

namespace rodeo {

struct Peer {
  enum class Kind : std::uint8_t { kUnknown, kAddress, kProcess };

  Kind kind = Kind::kUnknown;
  std::uint16_t port = 0;                  // kAddress: another with each connection
  std::uint32_t uid = 0;                   // kProcess: its user, as the kernel said when it connected
  std::uint32_t pid = 0;                   // kProcess
  std::array<std::uint8_t, 16> address{};  // kAddress: in network order; IPv4 as IPv4-mapped IPv6 (RFC 4291 §2.5.5.2)

  /// An AF_INET or AF_INET6 address; of any other family nothing is known.
  [[nodiscard]] static Peer at(const sockaddr& address) noexcept;
};

}  // namespace rodeo
