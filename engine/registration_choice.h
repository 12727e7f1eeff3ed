// SPDX-License-Identifier: Apache-2.0
#pragma once

// Which registration modes a device can do, and which one is used where nobody chose.

#include "dv/device.h"
#include "engine/registration.h"

namespace rodeo {

/// Whether a device can do it; memory windows are those of type 2B.
[[nodiscard]] constexpr bool possible(Registration registration, const dv::Capabilities& capabilities) noexcept {
  if (registration == Registration::kPoolKey || registration == Registration::kNone) return true;
  return capabilities.memory_windows && (registration == Registration::kKeyPerCall || capabilities.remote_invalidate);
}

/// What Registration::kAuto means there: the pool's key among processes of one host, and where there are no windows.
[[nodiscard]] constexpr Registration automatic_registration(const dv::Capabilities& capabilities) noexcept {
  return capabilities.one_host || !capabilities.memory_windows ? Registration::kPoolKey : Registration::kKeyPerCall;
}

}  // namespace rodeo
