// SPDX-License-Identifier: Apache-2.0
#pragma once

// Objects of verbs and rdma_cm that destroy themselves.

#include <rdma/rdma_cma.h>

#include <memory>

namespace rodeo::dv::rdma {

struct Destroy {
  void operator()(rdma_event_channel* c) const noexcept { rdma_destroy_event_channel(c); }
  void operator()(rdma_cm_id* i) const noexcept { rdma_destroy_id(i); }
  void operator()(ibv_context** l) const noexcept { rdma_free_devices(l); }
  void operator()(ibv_pd* p) const noexcept { ibv_dealloc_pd(p); }
  void operator()(ibv_td* t) const noexcept { ibv_dealloc_td(t); }
  void operator()(ibv_mr* m) const noexcept { ibv_dereg_mr(m); }
  void operator()(ibv_mw* w) const noexcept { ibv_dealloc_mw(w); }
  void operator()(ibv_cq* c) const noexcept { ibv_destroy_cq(c); }
  void operator()(ibv_qp* q) const noexcept { ibv_destroy_qp(q); }
};
template <class T>
using Owned = std::unique_ptr<T, Destroy>;

}  // namespace rodeo::dv::rdma
