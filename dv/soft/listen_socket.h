// SPDX-License-Identifier: Apache-2.0
#pragma once

// The Unix socket that a service's name stands for. Runs on: control thread.

#include <string>

#include "dv/address.h"
#include "dv/soft/file.h"
#include "pools/result.h"

struct sockaddr_un;

namespace rodeo::dv::soft {

struct ListenSocket {
  File socket;
  std::string path;
};

/// Binds and listens. The folder is made if it does not exist and must be ours; a socket whose owner died is replaced;
/// one that somebody still listens on is an Error.
[[nodiscard]] Result<ListenSocket> make_listen_socket(const Address& address);

/// The path as a socket address, or an Error when it is too long.
[[nodiscard]] Result<void> fill_socket_address(const std::string& path, sockaddr_un& out);

}  // namespace rodeo::dv::soft
