// SPDX-License-Identifier: Apache-2.0
#pragma once

// A ConnectX through direct verbs: opens the device and makes the objects whose rings mlx5::Qp and mlx5::Cq then drive
// by themselves. How two ends find each other and exchange what Peer holds is not its business: that is for the
// connection manager above. Runs on: control thread.

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dv/device.h"
#include "dv/mlx5/cq.h"
#include "dv/mlx5/qp.h"
#include "pools/result.h"

namespace rodeo::dv::mlx5 {

class ConnectX {
 public:
  /// A verbs object that destroys itself.
  struct Destroy {
    void operator()(ibv_context* c) const noexcept { ibv_close_device(c); }
    void operator()(ibv_pd* p) const noexcept { ibv_dealloc_pd(p); }
    void operator()(ibv_mr* m) const noexcept { ibv_dereg_mr(m); }
    void operator()(ibv_cq* c) const noexcept { ibv_destroy_cq(c); }
    void operator()(ibv_qp* q) const noexcept { ibv_destroy_qp(q); }
  };
  template <class T>
  using Owned = std::unique_ptr<T, Destroy>;

  struct HardwareCq {
    Owned<ibv_cq> cq;
    CqRing ring;
  };
  struct HardwareQp {
    Owned<ibv_qp> qp;  // in state INIT: it takes receives
    QpRings rings;
  };
  /// Where the other end of a QP is.
  struct Peer {
    std::uint32_t qpn = 0;
    std::uint32_t psn = 0;
    std::uint16_t lid = 0;  // 0: RoCE, addressed by gid
    ibv_gid gid{};
  };

  /// Names of the devices here that direct verbs can drive.
  [[nodiscard]] static std::vector<std::string> names();
  /// `name`: "mlx5_0", or empty for the first one.
  [[nodiscard]] static Result<std::unique_ptr<ConnectX>> open(const std::string& name);

  [[nodiscard]] const Capabilities& capabilities() const noexcept { return capabilities_; }
  [[nodiscard]] Result<MemoryRegion> register_memory(std::span<std::byte> range, Access access);
  /// 64-byte CQEs, uncompressed.
  [[nodiscard]] Result<HardwareCq> make_cq(std::uint32_t cqes);
  /// Send and receive completions go to different CQs. Payload is never scattered into CQEs.
  [[nodiscard]] Result<HardwareQp> make_qp(const HardwareCq& send_cq, const HardwareCq& receive_cq,
                                           const QpSizes& sizes);
  /// INIT → RTR → RTS.
  [[nodiscard]] Result<void> connect_qp(const HardwareQp& qp, const Peer& peer, std::uint32_t own_psn);
  [[nodiscard]] static Result<void> move_to_error(const HardwareQp& qp);

 private:
  ConnectX() = default;
  [[nodiscard]] Result<void> read_capabilities(const std::string& name);

  Owned<ibv_context> context_;
  Owned<ibv_pd> pd_;
  std::vector<Owned<ibv_mr>> regions_;  // go before the PD
  Capabilities capabilities_;
  std::uint8_t port_ = 1;
  ibv_port_attr port_state_{};
};

}  // namespace rodeo::dv::mlx5
