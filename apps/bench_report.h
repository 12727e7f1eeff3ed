// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo bench`: what it says in the end.

#include <string>

#include "apps/bench_options.h"
#include "apps/bench_run.h"

namespace rodeo::apps {

[[nodiscard]] std::string bench_table(const BenchOptions& options, const BenchResult& result);
/// One JSON object.
[[nodiscard]] std::string bench_json(const BenchOptions& options, const BenchResult& result);
/// 1 when anything went wrong.
[[nodiscard]] int bench_exit_status(const BenchResult& result);

}  // namespace rodeo::apps
