// SPDX-License-Identifier: Apache-2.0

#include "engine/private_data.h"

#include <algorithm>
#include <string>

#include "pools/byte_order.h"

namespace rodeo {
namespace {

constexpr std::byte kVersion{1};
constexpr std::byte kInvalidationFlag{0x01};

constexpr std::byte size_code(std::uint32_t octets) noexcept {
  return static_cast<std::byte>(round_inline_size(octets) / kInlineSizeStep - 1);
}
constexpr std::uint32_t size_of_code(std::byte code) noexcept {
  return (std::to_integer<std::uint32_t>(code) + 1) * kInlineSizeStep;
}

}  // namespace

Result<std::uint32_t> check_inline_size(std::uint64_t octets) {
  if (octets < kMinInlineSize || octets > kMaxInlineSize) {
    return fail("inline size", std::to_string(octets) + " octets is outside 1024 to 262144, which RFC 8797 can express",
                "choose a multiple of 1024 in that range, such as 4096");
  }
  return round_inline_size(octets);
}

std::array<std::byte, kPrivateDataBytes> encode_private_data(const PrivateData& own) noexcept {
  std::array<std::byte, kPrivateDataBytes> out{};
  store_be32(out.data(), kPrivateDataMagic);
  out[4] = kVersion;
  out[5] = own.remote_invalidation ? kInvalidationFlag : std::byte{0};
  out[6] = size_code(own.send_size);
  out[7] = size_code(own.receive_size);
  return out;
}

PrivateData decode_private_data(std::span<const std::byte> received) noexcept {
  // A hit of another version may be another layer's octets that happen to match: keep looking.
  for (std::size_t at = 0; at + kPrivateDataBytes <= received.size(); ++at) {
    const std::byte* p = received.data() + at;
    if (load_be32(p) != kPrivateDataMagic || p[4] != kVersion) continue;
    return {size_of_code(p[6]), size_of_code(p[7]), (p[5] & kInvalidationFlag) != std::byte{0}};
  }
  return {};
}

InlineThresholds inline_thresholds(const PrivateData& own, const PrivateData& peer) noexcept {
  const auto used = [](std::uint32_t sends, std::uint32_t receives) {
    return std::min(round_inline_size(sends), round_inline_size(receives));
  };
  return {used(own.send_size, peer.receive_size), used(peer.send_size, own.receive_size)};
}

}  // namespace rodeo
