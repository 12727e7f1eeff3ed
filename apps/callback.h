// SPDX-License-Identifier: Apache-2.0
#pragma once

// Calls in reverse direction (RFC 8167), shown by the test program: its procedure CALLBACK calls the client's callback
// program so many times, one after the other, and then answers. It takes a server whose Config::reverse_credits is not
// zero, and a connection on which the client lets kCallbackProgram be called; otherwise the answer is SYSTEM_ERR.

#include <cstdint>

#include "engine/program.h"

namespace rodeo::apps {

/// What a client serves for it: version 1, and NULL alone.
inline constexpr std::uint32_t kCallbackProgram = 0x20524f45;
inline constexpr std::uint32_t kCallbackVersion = 1;
[[nodiscard]] Program callback_program();

/// The procedure of the test program. Handlers run on poll cores.
[[nodiscard]] Procedure callback_procedure();

}  // namespace rodeo::apps
