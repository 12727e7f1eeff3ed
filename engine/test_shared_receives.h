// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>

namespace rodeo::test {

/// Whether the engines of this run share receives (Config::shared_receives). The build runs some tests both ways, with
/// the same results (F37).
[[nodiscard]] inline bool shared_receives() { return std::getenv("RODEO_TEST_SHARED_RECEIVES") != nullptr; }

}  // namespace rodeo::test
