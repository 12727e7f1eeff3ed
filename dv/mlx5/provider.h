// SPDX-License-Identifier: Apache-2.0
#pragma once

// The provider of mlx5 queues: a ConnectX, or the software HCA, which eats the same queues.

#include "dv/device.h"
#include "dv/mlx5/poll_group.h"
#include "dv/mlx5/qp.h"
#include "dv/provider.h"

namespace rodeo::dv::mlx5 {

struct Provider {
  using Qp = mlx5::Qp;
  using PollGroup = mlx5::PollGroup;
  using Srq = mlx5::Srq;
};
static_assert(dv::Provider<Provider>);

using Device = dv::Device<Provider>;

}  // namespace rodeo::dv::mlx5
