// SPDX-License-Identifier: Apache-2.0
#pragma once

// Items of XDR take whole words (RFC 4506 §3): opaque data that ends elsewhere is followed by zero octets.

#include <concepts>

namespace rodeo {

/// Octets behind `length` of them, 0 to 3.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T xdr_pad(T length) noexcept {
  return (T{0} - length) % 4;
}

/// `length` and its pad. Wraps round near the end of T.
template <std::unsigned_integral T>
[[nodiscard]] constexpr T xdr_padded(T length) noexcept {
  return length + xdr_pad(length);
}

}  // namespace rodeo
