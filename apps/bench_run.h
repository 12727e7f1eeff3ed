// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo bench`: opens engine and connections, lets the cores run, and adds up what they counted.
// Runs on: control thread.

#include <memory>
#include <string>
#include <vector>

#include "apps/bench_core.h"
#include "apps/bench_options.h"
#include "engine/rodeo.h"

namespace rodeo::apps {

struct BenchResult {
  BenchCounts counts;
  std::unique_ptr<Histogram> histogram;  // in ticks
  double seconds = 0;                    // measured
  double ns_per_tick = 0;
  std::uint32_t credits_seen = 0;  // that a connection had in the end
  std::vector<std::string> warnings;
  std::string failure;  // why the run ended early; empty when it did not
};

/// An Error when there was nothing to measure: nobody listens, no memory, no such core.
[[nodiscard]] Result<BenchResult> run_bench(const BenchOptions& options);

}  // namespace rodeo::apps
