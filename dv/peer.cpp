// SPDX-License-Identifier: Apache-2.0
#include "dv/peer.h"

#include <netinet/in.h>

#include <algorithm>
#include <cstring>

namespace rodeo {

Peer Peer::at(const sockaddr& address) noexcept {
  constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  Peer peer;
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    peer.kind = Kind::kAddress;
    peer.port = ntohs(in.sin_port);
    std::ranges::copy(kMapped, peer.address.begin());
    std::memcpy(peer.address.data() + kMapped.size(), &in.sin_addr, sizeof in.sin_addr);
  } else if (address.sa_family == AF_INET6) {
    sockaddr_in6 in{};
    std::memcpy(&in, &address, sizeof in);
    peer.kind = Kind::kAddress;
    peer.port = ntohs(in.sin6_port);
    std::memcpy(peer.address.data(), &in.sin6_addr, peer.address.size());
  }
  return peer;
}

}  // namespace rodeo
