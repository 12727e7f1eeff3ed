// SPDX-License-Identifier: Apache-2.0
#pragma once

// The provider of plain verbs: any RDMA device, through its own library.

#include "dv/device.h"
#include "dv/provider.h"
#include "dv/verbs/poll_group.h"
#include "dv/verbs/qp.h"

namespace rodeo::dv::verbs {

struct Provider {
  using Qp = verbs::Qp;
  using PollGroup = verbs::PollGroup;
  using Srq = NoSrq;
};
static_assert(dv::Provider<Provider>);

using Device = dv::Device<Provider>;

}  // namespace rodeo::dv::verbs
