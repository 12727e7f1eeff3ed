// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an embedder includes, as installed: <rodeo/rodeo.h>.

#include "engine/binding.h"
#include "engine/client.h"
#include "engine/devices.h"
#include "engine/persistent_connection.h"
#include "engine/rodeo.h"
#include "engine/universal_address.h"
