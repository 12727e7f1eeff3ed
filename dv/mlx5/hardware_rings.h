// SPDX-License-Identifier: Apache-2.0
#pragma once

// What mlx5dv_init_obj says of a QP or a CQ, as what mlx5::Qp and mlx5::Cq drive; or why they could not.
// Runs on: control thread.

#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "dv/mlx5/cq.h"
#include "dv/mlx5/qp.h"
#include "pools/result.h"

namespace rodeo::dv::mlx5 {

/// The rings of a QP of its own receive queue, but for bf: the register that it is rung by is to be set.
[[nodiscard]] Result<QpRings> rings_of(const mlx5dv_qp& qp, std::uint32_t qpn, std::uint32_t max_inline);
/// The register of a QP. `own`: no QP of another core writes there; only then it takes more than 8 bytes at once.
[[nodiscard]] BlueFlame register_of(const mlx5dv_qp& qp, bool own) noexcept;
[[nodiscard]] Result<CqRing> ring_of(const mlx5dv_cq& cq);

}  // namespace rodeo::dv::mlx5
