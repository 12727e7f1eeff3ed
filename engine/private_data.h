// SPDX-License-Identifier: Apache-2.0
#pragma once

// Runs on: control thread.
// The private data that both ends exchange while connecting (RFC 8797): inline sizes and whether the Requester's
// handles may be invalidated remotely. Fixed for the life of the connection.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "pools/result.h"

namespace rodeo {

inline constexpr std::uint32_t kPrivateDataMagic = 0xf6ab0e18;
inline constexpr std::size_t kPrivateDataBytes = 8;
inline constexpr std::uint32_t kInlineSizeStep = 1024;
inline constexpr std::uint32_t kMinInlineSize = 1024;
inline constexpr std::uint32_t kMaxInlineSize = 262144;

/// What one end says of itself. The defaults are what a silent peer is taken to have said.
struct PrivateData {
  std::uint32_t send_size = kMinInlineSize;     // octets of its largest Send
  std::uint32_t receive_size = kMinInlineSize;  // octets its Receives accept
  bool remote_invalidation = false;             // R: every handle in its Calls may be invalidated remotely
  bool operator==(const PrivateData&) const = default;
};

/// Down to a multiple of 1024 and into the range that can be encoded.
[[nodiscard]] constexpr std::uint32_t round_inline_size(std::uint64_t octets) noexcept {
  if (octets < kMinInlineSize) return kMinInlineSize;
  if (octets > kMaxInlineSize) return kMaxInlineSize;
  return static_cast<std::uint32_t>(octets) / kInlineSizeStep * kInlineSizeStep;
}

/// For configuration: the size that will really be used, or why `octets` cannot be.
[[nodiscard]] Result<std::uint32_t> check_inline_size(std::uint64_t octets);

[[nodiscard]] std::array<std::byte, kPrivateDataBytes> encode_private_data(const PrivateData& own) noexcept;

/// Finds version 1 private data at any octet of what the connection manager delivered; other layers may put theirs in
/// front. Returns the defaults when there is none.
[[nodiscard]] PrivateData decode_private_data(std::span<const std::byte> received) noexcept;

/// The largest Send in each direction, in octets. A Requester's call threshold is `outgoing` and its reply threshold
/// `incoming`; for a Responder it is the other way round.
struct InlineThresholds {
  std::uint32_t outgoing;
  std::uint32_t incoming;
};
[[nodiscard]] InlineThresholds inline_thresholds(const PrivateData& own, const PrivateData& peer) noexcept;

/// Whether a Responder may use Send With Invalidate: both ends said so.
[[nodiscard]] constexpr bool may_invalidate(const PrivateData& own, const PrivateData& peer) noexcept {
  return own.remote_invalidation && peer.remote_invalidation;
}

}  // namespace rodeo
