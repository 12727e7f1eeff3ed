// SPDX-License-Identifier: Apache-2.0
#pragma once

// The list of devices, and which one an address means.

#include <memory>

#include "dv/address.h"
#include "dv/mlx5/provider.h"
#include "dv/verbs/provider.h"
#include "pools/result.h"

namespace rodeo::dv {

/// Opens the device that serves `address`: soft:NAME is the software HCA between the processes of this host. sim:NAME
/// belongs to a soft::Fabric, whose open_device makes its devices. Runs on: control thread.
[[nodiscard]] Result<std::unique_ptr<mlx5::Device>> open_device(const Address& address);

/// Opens the device that leads to `address`, or has it: rdma://HOST:PORT. Runs on: control thread.
[[nodiscard]] Result<std::unique_ptr<verbs::Device>> open_rdma_device(const Address& address);

}  // namespace rodeo::dv
