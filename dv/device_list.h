// SPDX-License-Identifier: Apache-2.0
#pragma once

// What there is to choose from: the software HCA, and the RDMA devices of this host. Runs on: control thread.

#include <cstdint>
#include <string>
#include <vector>

#include "dv/device.h"

namespace rodeo::dv {

/// An entry of a port's GID table that is in use.
struct GidFacts {
  std::uint32_t index = 0;
  std::string gid;        // as an IPv6 address
  std::string type;       // "RoCE v2", "RoCE v1", "InfiniBand"
  std::string interface;  // RoCE: the network interface whose address it is; else empty
};

struct PortFacts {
  std::uint32_t number = 0;
  std::string state;  // "active", "down" …
  std::string link;   // "Ethernet", "InfiniBand"
  std::uint32_t mtu_bytes = 0;
  std::vector<GidFacts> gids;
};

struct DeviceFacts {
  Capabilities capabilities;
  bool rdma = false;  // else the software HCA
  bool iwarp = false;
  std::uint32_t max_qps = 0;     // 0: no limit of its own
  std::uint32_t max_reads = 0;   // RDMA Reads under way on one QP
  std::uint64_t max_region = 0;  // bytes of one registration; 0: no limit of its own
  std::vector<PortFacts> ports;
  std::string problem;  // not empty: why it cannot be used, and what helps; then only the name is known
};

/// The software HCA first.
[[nodiscard]] std::vector<DeviceFacts> list_devices();

}  // namespace rodeo::dv
