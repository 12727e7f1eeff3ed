// SPDX-License-Identifier: Apache-2.0
#pragma once

// A set of CPU cores as DPDK users write it: a mask `0x5` or a list `0,2-3`.
// Runs on: any.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pools/result.h"

namespace rodeo::pools {

/// Core numbers in rising order, each once.
class CoreSet {
 public:
  /// Cores from here on do not exist on any Linux we run on (CPU_SETSIZE).
  static constexpr unsigned kMaxCores = 1024;

  CoreSet() = default;

  /// Reads `0x…` as a mask (bit N is core N) and anything else as a list of numbers and ranges; folds duplicates.
  /// An empty text, an empty mask and a backward range are Errors.
  static Result<CoreSet> parse(std::string_view text);

  [[nodiscard]] std::span<const unsigned> cores() const { return cores_; }
  [[nodiscard]] std::size_t size() const { return cores_.size(); }
  [[nodiscard]] bool empty() const { return cores_.empty(); }
  [[nodiscard]] bool contains(unsigned core) const;

  /// The shortest list, such as `0,2-3`; parse() reads it back.
  [[nodiscard]] std::string to_string() const;

 private:
  std::vector<unsigned> cores_;
};

/// Writes rising core numbers as a list with ranges, for messages; "none" when there are none.
[[nodiscard]] std::string core_list_text(std::span<const unsigned> cores);

}  // namespace rodeo::pools
