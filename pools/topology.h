// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the machine looks like: which cores exist, which of them we may use, and which NUMA node holds what.
// Runs on: control thread (slow path). A loaded Topology may be read from any thread.

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pools/result.h"

struct hwloc_topology;

namespace rodeo::pools {

class Topology {
 public:
  static Result<Topology> load();

  [[nodiscard]] bool core_exists(unsigned core) const;
  /// Whether the calling process may run there: inside its cpuset, and inside the affinity the loading thread had.
  [[nodiscard]] bool core_allowed(unsigned core) const;
  /// The cores of core_allowed(), rising.
  [[nodiscard]] std::span<const unsigned> allowed_cores() const { return allowed_; }
  /// The same as text, such as "0-3", for error messages.
  [[nodiscard]] std::string core_list() const;
  /// Ok when every core exists and may be used; otherwise says which does not and which do.
  [[nodiscard]] Result<void> check_cores(std::span<const unsigned> cores) const;

  [[nodiscard]] bool node_exists(int node) const;
  /// -1 when the machine does not say.
  [[nodiscard]] int numa_node_of_core(unsigned core) const;
  /// The node that holds the page behind the address; -1 when it is not populated or the kernel does not say.
  [[nodiscard]] int numa_node_of_memory(const void* address) const;
  /// Asks that pages of the range, none of which is populated yet, come from a node; others serve when it is full.
  [[nodiscard]] Result<void> prefer_node(std::span<std::byte> range, int node) const;

  /// One sentence for each core, and for the device, that sits on another node than the memory. Unknown nodes (-1)
  /// warn of nothing.
  [[nodiscard]] std::vector<std::string> numa_warnings(std::span<const unsigned> cores, int memory_node,
                                                       int device_node) const;

 private:
  struct Destroy {
    void operator()(hwloc_topology* topology) const;
  };
  explicit Topology(hwloc_topology* loaded) : topology_(loaded) {}

  std::unique_ptr<hwloc_topology, Destroy> topology_;
  std::vector<unsigned> allowed_;
};

/// The sentences of Topology::numa_warnings() for cores whose nodes are known: core_nodes[i] is that of cores[i].
[[nodiscard]] std::vector<std::string> numa_mismatches(std::span<const unsigned> cores, std::span<const int> core_nodes,
                                                       int memory_node, int device_node);

}  // namespace rodeo::pools
