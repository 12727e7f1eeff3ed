// SPDX-License-Identifier: Apache-2.0
#pragma once

// The half of `rodeo cp` that goes from a server to this host.

#include <string>
#include <vector>

#include "apps/copy_job.h"
#include "apps/location.h"

namespace rodeo::apps {

/// Copies each of `sources` beneath `destination`, or to it. Complains by itself. Believes no name of the server's: all
/// that it makes is beneath the destination.
void copy_in(CopyJob& job, const std::vector<Location>& sources, const std::string& destination);

}  // namespace rodeo::apps
