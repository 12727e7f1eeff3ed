// SPDX-License-Identifier: Apache-2.0
#include "dv/device_list.h"

#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <net/if.h>

#include <algorithm>
#include <array>
#include <memory>

#include "dv/providers.h"
#include "dv/soft/host_device.h"

namespace rodeo::dv {

namespace {

struct Close {
  void operator()(ibv_context* c) const noexcept { ibv_close_device(c); }
  void operator()(ibv_device** l) const noexcept { ibv_free_device_list(l); }
};

std::string text_of(const ibv_gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  return inet_ntop(AF_INET6, gid.raw, text.data(), text.size()) == nullptr ? "?" : text.data();
}

std::string type_of(std::uint32_t gid_type) {
  if (gid_type == IBV_GID_TYPE_ROCE_V2) return "RoCE v2";
  return gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "InfiniBand";
}

std::vector<GidFacts> gids_of(ibv_context* context, std::uint8_t port, int entries) {
  std::vector<GidFacts> out;
  for (int index = 0; index < entries; ++index) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(context, port, static_cast<std::uint32_t>(index), &entry, 0) != 0) continue;
    std::array<char, IF_NAMESIZE> name{};
    const bool named = entry.ndev_ifindex != 0 && if_indextoname(entry.ndev_ifindex, name.data()) != nullptr;
    out.push_back({entry.gid_index, text_of(entry.gid), type_of(entry.gid_type), named ? name.data() : ""});
  }
  return out;
}

std::vector<PortFacts> ports_of(ibv_context* context, std::uint8_t count) {
  std::vector<PortFacts> out;
  for (std::uint8_t number = 1; number <= count; ++number) {
    ibv_port_attr port{};
    if (ibv_query_port(context, number, &port) != 0) continue;
    std::string state = ibv_port_state_str(port.state);
    state = state.substr(state.find('_') + 1);  // PORT_ACTIVE
    std::ranges::transform(state, state.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    constexpr std::uint32_t kSmallestMtu = 128;  // shifted by the enumerator: IBV_MTU_256 is 1
    out.push_back({.number = number,
                   .state = std::move(state),
                   .link = port.link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
                   .mtu_bytes = kSmallestMtu << static_cast<unsigned>(port.active_mtu),
                   .gids = gids_of(context, number, port.gid_tbl_len)});
  }
  return out;
}

DeviceFacts software_hca() {
  DeviceFacts facts;
  facts.capabilities.name = "software HCA";
  const auto device = soft::open({});
  if (device) {
    facts.capabilities = (*device)->capabilities();
  } else {
    facts.problem = device.error().message();
  }
  return facts;
}

DeviceFacts rdma_device(ibv_device& device) {
  DeviceFacts facts;
  facts.rdma = true;
  facts.iwarp = device.transport_type == IBV_TRANSPORT_IWARP;
  facts.capabilities.name = ibv_get_device_name(&device);
  // As an engine opens it, so that what is missing for one is found here.
  const Address address{Address::Scheme::kRdma, "0.0.0.0", 1, facts.capabilities.name};
  const auto opened = open_device(address);
  if (!opened) {
    facts.problem = opened.error().message();
    return facts;
  }
  facts.capabilities = std::visit([](const auto& of) { return of->capabilities(); }, *opened);
  const std::unique_ptr<ibv_context, Close> context(ibv_open_device(&device));
  ibv_device_attr attributes{};
  if (context == nullptr || ibv_query_device(context.get(), &attributes) != 0) return facts;
  facts.max_qps = static_cast<std::uint32_t>(attributes.max_qp);
  facts.max_reads = static_cast<std::uint32_t>(attributes.max_qp_rd_atom);
  facts.max_region = attributes.max_mr_size;
  facts.ports = ports_of(context.get(), attributes.phys_port_cnt);
  return facts;
}

}  // namespace

std::vector<DeviceFacts> list_devices() {
  std::vector<DeviceFacts> out{software_hca()};
  int count = 0;
  const std::unique_ptr<ibv_device*, Close> devices(ibv_get_device_list(&count));
  for (int i = 0; devices != nullptr && i < count; ++i) {
    out.push_back(rdma_device(*devices.get()[i]));
  }
  return out;
}

}  // namespace rodeo::dv
