// SPDX-License-Identifier: Apache-2.0
#include "dv/providers.h"

#include "dv/soft/host_device.h"
#include "dv/verbs/rdma_device.h"

namespace rodeo::dv {

Result<std::unique_ptr<mlx5::Device>> open_device(const Address& address) {
  switch (address.scheme) {
    case Address::Scheme::kSoft:
      return soft::open(soft::SoftOptions{});
    case Address::Scheme::kSimulated:
      return fail("open " + address.to_string(), "sim: devices belong to a fabric inside one process",
                  "use soft:NAME, or open the device on a soft::Fabric");
    case Address::Scheme::kRdma:
      break;
  }
  return fail("open " + address.to_string(), "rdma:// has no mlx5 queues", "use open_rdma_device");
}

Result<std::unique_ptr<verbs::Device>> open_rdma_device(const Address& address) {
  auto device = verbs::RdmaDevice::open(address, {});
  if (!device) return tl::unexpected(device.error());
  return std::unique_ptr<verbs::Device>(std::move(*device));
}

}  // namespace rodeo::dv
