// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an engine could be opened on, in words for an operator.

#include <string>
#include <vector>

namespace rodeo {

struct DeviceReport {
  std::string name;
  bool rdma = false;    // false: the software HCA
  bool usable = false;  // false: the lines say why not, and what helps
  std::vector<std::string> lines;
};

/// The software HCA, then each RDMA device of this host: how it would be driven and which registration mode would be
/// used, what else it can do, its limits, ports and GIDs. Opens each for a moment. Runs on: any thread.
[[nodiscard]] std::vector<DeviceReport> describe_devices();

}  // namespace rodeo
