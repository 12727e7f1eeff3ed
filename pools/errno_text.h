// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cerrno>
#include <cstring>
#include <string>

namespace rodeo {

/// What the system says of a failed call, for an Error.
[[nodiscard]] inline std::string errno_text(int error = errno) { return std::strerror(error); }

}  // namespace rodeo
