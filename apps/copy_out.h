// SPDX-License-Identifier: Apache-2.0
#pragma once

// The half of `rodeo cp` that goes from this host to a server.

#include <string>
#include <vector>

#include "apps/copy_job.h"

namespace rodeo::apps {

/// Copies each of `sources` beneath `destination`, or to it. Complains by itself.
void copy_out(CopyJob& job, const std::vector<std::string>& sources, const std::string& destination);

}  // namespace rodeo::apps
