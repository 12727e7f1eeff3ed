// SPDX-License-Identifier: Apache-2.0
#pragma once

// How a Requester lets its Responder reach the memory of a Call's chunks (RFC 8166 §4.4, §8.1).

#include <cstdint>
#include <string_view>

namespace rodeo {

/// Chosen for an engine (Config), and for one connection of it (ConnectOptions).
enum class Registration : std::uint8_t {
  /// Config: kPoolKey between processes of one host (soft:), kKeyPerCall everywhere else, if the device has memory
  /// windows of type 2B; a warning says so where it has not. ConnectOptions: what the engine has.
  kAuto,
  /// Nobody gets any key of this memory: for engines that only serve, and for connections whose calls have no chunks.
  /// A Responder moves data by its own RDMA, and exposes nothing for it.
  kNone,
  /// One key for the whole pool, and Offsets into it. The fastest: nothing is registered for a Call. A Responder can
  /// reach all of the pool, application_memory() included, as long as the connection lasts: for peers that are trusted
  /// with it. Only for engines that were opened so; the others give their pool no key that a peer could use.
  kPoolKey,
  /// A memory window for each segment of a Call, with a key that nothing had before, and only the right that the chunk
  /// needs. It is invalidated before the application gets its memory back.
  kKeyPerCall,
  /// The same, and the engine announces that its keys may be invalidated remotely (RFC 8797 §4.1). A Responder that can
  /// invalidates one with its Reply, which saves the Requester doing it. An engine announces it in both roles.
  kRemoteInvalidation,
};

[[nodiscard]] constexpr std::string_view to_string(Registration registration) noexcept {
  switch (registration) {
    case Registration::kAuto:
      return "auto";
    case Registration::kNone:
      return "none";
    case Registration::kPoolKey:
      return "pool key";
    case Registration::kKeyPerCall:
      return "key per call";
    case Registration::kRemoteInvalidation:
      return "remote invalidation";
  }
  return "unknown";
}

}  // namespace rodeo
