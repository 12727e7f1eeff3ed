// SPDX-License-Identifier: Apache-2.0
#include "dv/providers.h"

#include <infiniband/mlx5dv.h>

#include <utility>

#include "dv/mlx5/connectx.h"
#include "dv/soft/host_device.h"
#include "dv/verbs/rdma_device.h"

namespace rodeo::dv {

RdmaChoice choose_verbs(bool mlx5, bool plain_wanted, const Result<void>& checked) {
  if (!mlx5) return {.direct = false, .why = ", as it is no mlx5 device"};
  if (plain_wanted) return {.direct = false, .why = ", as the address asks for them"};
  if (!checked) return {.direct = false, .why = ", as direct verbs cannot drive it: " + checked.error().message()};
  return {.direct = true, .why = {}};
}

Result<std::unique_ptr<mlx5::Device>> open_soft_device(const Address& address) {
  if (address.scheme == Address::Scheme::kSoft) return soft::open(soft::SoftOptions{});
  if (address.scheme == Address::Scheme::kRdma) {
    return fail("open " + address.to_string(), "that is no software HCA", "use soft:NAME");
  }
  return fail("open " + address.to_string(), "sim: devices belong to a fabric inside one process",
              "use soft:NAME, or open the device on a soft::Fabric");
}

Result<AnyDevice> open_device(const Address& address) {
  if (address.scheme != Address::Scheme::kRdma) {
    auto device = open_soft_device(address);
    if (!device) return tl::unexpected(device.error());
    return std::move(*device);
  }
  auto opened = rdma::CmDevice::open(address, {});
  if (!opened) return tl::unexpected(opened.error());
  const bool mlx5 = mlx5dv_is_supported((*opened)->context().device);
  const bool look = mlx5 && !address.plain_verbs;
  const RdmaChoice choice =
      choose_verbs(mlx5, address.plain_verbs, look ? mlx5::ConnectX::check(**opened) : Result<void>());
  if (choice.direct) return std::make_unique<mlx5::ConnectX>(std::move(*opened));
  return std::make_unique<verbs::RdmaDevice>(std::move(*opened), choice.why);
}

}  // namespace rodeo::dv
