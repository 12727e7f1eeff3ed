// SPDX-License-Identifier: Apache-2.0
#include "dv/resolved.h"

#include <netinet/in.h>

#include <string>

namespace rodeo::dv {

Result<Resolved> Resolved::of(const Address& address, bool passive) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  Resolved made;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.name.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return fail(address.to_string(), "the host is not known: " + std::string(gai_strerror(error)),
                "check the name, or write the address itself");
  }
  made.list_.reset(found);
  return made;
}

sockaddr* Resolved::without_port() const noexcept {
  if (first()->sa_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(first())->sin_port = 0;
  } else {
    reinterpret_cast<sockaddr_in6*>(first())->sin6_port = 0;
  }
  return first();
}

}  // namespace rodeo::dv
