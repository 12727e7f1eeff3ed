// SPDX-License-Identifier: Apache-2.0
#include "engine/devices.h"

#include <fmt/format.h>

#include <string_view>

#include "dv/device_list.h"
#include "engine/registration_choice.h"

namespace rodeo {

namespace {

std::string_view yes_no(bool value) { return value ? "yes" : "no"; }

std::string registration_line(const dv::Capabilities& capabilities) {
  const Registration chosen = automatic_registration(capabilities);
  std::string line = fmt::format("registration: {}", to_string(chosen));
  for (const Registration other :
       {Registration::kPoolKey, Registration::kKeyPerCall, Registration::kRemoteInvalidation}) {
    if (other != chosen && possible(other, capabilities)) line += fmt::format("; {} when asked for", to_string(other));
  }
  if (!capabilities.memory_windows) line += "; key per call needs memory windows of type 2B, which it has not";
  return line;
}

std::string provider_line(const dv::DeviceFacts& facts) {
  return fmt::format("provider: {}{}", facts.capabilities.driver, facts.iwarp ? "; iWARP" : "");
}

DeviceReport report_of(const dv::DeviceFacts& facts) {
  const dv::Capabilities& can = facts.capabilities;
  DeviceReport report{.name = can.name, .rdma = facts.rdma, .usable = facts.problem.empty(), .lines = {}};
  auto& lines = report.lines;
  if (!report.usable) {
    lines.push_back("cannot be used: " + facts.problem);
    return report;
  }
  lines.push_back(fmt::format("address: {}", report.rdma ? "rdma://HOST" : "soft:NAME"));
  lines.push_back(provider_line(facts));
  lines.push_back(registration_line(can));
  lines.push_back(fmt::format("memory windows of type 2B: {}{}; remote invalidation: {}; shared receive queue: {}",
                              yes_no(can.memory_windows),
                              can.memory_windows ? fmt::format(", {} a connection", can.max_windows) : "",
                              yes_no(can.remote_invalidate), yes_no(can.max_shared_receives != 0)));
  lines.push_back(fmt::format("inline {} bytes, {} pieces a message, {} receives a queue pair", can.max_inline,
                              can.max_sges, can.max_queue_depth));
  if (facts.max_qps != 0) {
    lines.push_back(fmt::format("{} queue pairs, {} RDMA Reads at once on one, {} MiB in one registration",
                                facts.max_qps, facts.max_reads, facts.max_region >> 20U));
  }
  if (can.numa_node >= 0) lines.push_back(fmt::format("NUMA node {}", can.numa_node));
  for (const dv::PortFacts& port : facts.ports) {
    lines.push_back(fmt::format("port {}: {}, {}, MTU {}", port.number, port.state, port.link, port.mtu_bytes));
    for (const dv::GidFacts& gid : port.gids) {
      lines.push_back(fmt::format("  GID {}: {} {}{}{}", gid.index, gid.gid, gid.type,
                                  gid.interface.empty() ? "" : " on ", gid.interface));
    }
  }
  return report;
}

}  // namespace

std::vector<DeviceReport> describe_devices() {
  std::vector<DeviceReport> out;
  for (const dv::DeviceFacts& facts : dv::list_devices()) out.push_back(report_of(facts));
  return out;
}

}  // namespace rodeo
