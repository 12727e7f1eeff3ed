// SPDX-License-Identifier: Apache-2.0
#include "pools/topology.h"

#include <hwloc.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "pools/core_set.h"

namespace rodeo::pools {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_s* bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

}  // namespace

void Topology::Destroy::operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }

Result<Topology> Topology::load() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return fail("topology", "hwloc did not start", "check that memory is free");
  Topology topology(raw);
  // Cores outside our cpuset must be known too, so that "not allowed" and "does not exist" are told apart.
  hwloc_topology_set_flags(raw, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc_topology_load(raw) != 0) {
    return fail("topology", std::string("hwloc could not read the machine: ") + std::strerror(errno),
                "check that /sys is mounted and readable");
  }
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  const bool affinity_known = sched_getaffinity(0, sizeof affinity, &affinity) == 0;
  const hwloc_const_cpuset_t cpuset = hwloc_topology_get_allowed_cpuset(raw);
  for (unsigned core = 0; core < CoreSet::kMaxCores; ++core) {
    if (!topology.core_exists(core) || hwloc_bitmap_isset(cpuset, core) == 0) continue;
    if (affinity_known && !CPU_ISSET(core, &affinity)) continue;
    topology.allowed_.push_back(core);
  }
  return topology;
}

bool Topology::core_exists(unsigned core) const {
  return hwloc_get_pu_obj_by_os_index(topology_.get(), core) != nullptr;
}

bool Topology::core_allowed(unsigned core) const { return std::binary_search(allowed_.begin(), allowed_.end(), core); }

std::string Topology::core_list() const { return core_list_text(allowed_); }

Result<void> Topology::check_cores(std::span<const unsigned> cores) const {
  for (const unsigned core : cores) {
    if (core_allowed(core)) continue;
    const char* what = core_exists(core) ? " is not among the cores that this process may use" : " does not exist here";
    return fail("cores", "core " + std::to_string(core) + what, "choose from " + core_list());
  }
  return {};
}

bool Topology::node_exists(int node) const {
  return node >= 0 && hwloc_get_numanode_obj_by_os_index(topology_.get(), static_cast<unsigned>(node)) != nullptr;
}

int Topology::numa_node_of_core(unsigned core) const {
  const hwloc_obj_t pu = hwloc_get_pu_obj_by_os_index(topology_.get(), core);
  return pu == nullptr || pu->nodeset == nullptr ? -1 : hwloc_bitmap_first(pu->nodeset);
}

int Topology::numa_node_of_memory(const void* address) const {
  const Bitmap nodes(hwloc_bitmap_alloc());
  if (nodes == nullptr || address == nullptr) return -1;
  if (hwloc_get_area_memlocation(topology_.get(), address, 1, nodes.get(), HWLOC_MEMBIND_BYNODESET) != 0) return -1;
  return hwloc_bitmap_first(nodes.get());
}

Result<void> Topology::prefer_node(std::span<std::byte> range, int node) const {
  if (!node_exists(node)) {
    return fail("numa node", "node " + std::to_string(node) + " does not exist", "`numactl --hardware` lists them");
  }
  const Bitmap nodes(hwloc_bitmap_alloc());
  if (nodes == nullptr || hwloc_bitmap_only(nodes.get(), static_cast<unsigned>(node)) != 0 ||
      hwloc_set_area_membind(topology_.get(), range.data(), range.size(), nodes.get(), HWLOC_MEMBIND_BIND,
                             HWLOC_MEMBIND_BYNODESET) != 0) {
    return fail("numa node", "memory could not be bound to node " + std::to_string(node) + ": " + std::strerror(errno),
                "leave the node unset, or allow mbind in this container");
  }
  return {};
}

std::vector<std::string> Topology::numa_warnings(std::span<const unsigned> cores, int memory_node,
                                                 int device_node) const {
  std::vector<int> nodes;
  for (const unsigned core : cores) nodes.push_back(numa_node_of_core(core));
  return numa_mismatches(cores, nodes, memory_node, device_node);
}

std::vector<std::string> numa_mismatches(std::span<const unsigned> cores, std::span<const int> core_nodes,
                                         int memory_node, int device_node) {
  const auto differ = [](int a, int b) { return a >= 0 && b >= 0 && a != b; };
  std::vector<std::string> warnings;
  for (std::size_t i = 0; i < cores.size() && i < core_nodes.size(); ++i) {
    const std::string core = "core " + std::to_string(cores[i]) + " is on NUMA node " + std::to_string(core_nodes[i]);
    if (differ(core_nodes[i], memory_node)) {
      warnings.push_back(core + " but its buffers are on node " + std::to_string(memory_node) +
                         ": every access crosses the interconnect");
    }
    if (differ(core_nodes[i], device_node)) {
      warnings.push_back(core + " but its device is on node " + std::to_string(device_node) +
                         ": every doorbell and completion crosses the interconnect");
    }
  }
  if (differ(memory_node, device_node)) {
    warnings.push_back("the buffers are on NUMA node " + std::to_string(memory_node) + " but the device is on node " +
                       std::to_string(device_node) + ": every transfer crosses the interconnect");
  }
  return warnings;
}

}  // namespace rodeo::pools
