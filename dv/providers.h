// SPDX-License-Identifier: Apache-2.0
#pragma once

// The list of devices, and which one an address means.

#include <memory>
#include <string>
#include <variant>

#include "dv/address.h"
#include "dv/mlx5/provider.h"
#include "dv/verbs/provider.h"
#include "pools/result.h"

namespace rodeo::dv {

/// A device of either provider, never null.
using AnyDevice = std::variant<std::unique_ptr<mlx5::Device>, std::unique_ptr<verbs::Device>>;

/// Opens the device that serves `address`. soft:NAME is the software HCA between the processes of this host. sim:NAME
/// belongs to a soft::Fabric, whose open_device makes its devices. rdma://HOST:PORT is the device that leads there, or
/// has that address: by direct verbs if they can drive it and nobody asked for plain ones, else by plain verbs, and
/// then its Capabilities::driver says why. Runs on: control thread.
[[nodiscard]] Result<AnyDevice> open_device(const Address& address);

/// The same for an address that is not rdma://.
[[nodiscard]] Result<std::unique_ptr<mlx5::Device>> open_soft_device(const Address& address);

/// Which of the two drives an RDMA device.
struct RdmaChoice {
  bool direct = false;
  std::string why;  // not: follows "plain verbs"
};
/// `mlx5`: the library of direct verbs knows the device; `checked`: what came of looking whether they can drive it.
[[nodiscard]] RdmaChoice choose_verbs(bool mlx5, bool plain_wanted, const Result<void>& checked);

}  // namespace rodeo::dv
