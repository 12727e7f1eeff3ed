// SPDX-License-Identifier: Apache-2.0
#pragma once

// Big-endian words of the wire and of mlx5 queues. Be32/Be64 cannot be mixed with host integers by accident.

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rodeo {

static_assert(std::endian::native == std::endian::little, "Rodeo runs on little-endian hosts (x86-64, AArch64)");

[[nodiscard]] constexpr std::uint16_t byte_swap(std::uint16_t v) noexcept { return __builtin_bswap16(v); }
[[nodiscard]] constexpr std::uint32_t byte_swap(std::uint32_t v) noexcept { return __builtin_bswap32(v); }
[[nodiscard]] constexpr std::uint64_t byte_swap(std::uint64_t v) noexcept { return __builtin_bswap64(v); }

/// A big-endian integer in memory; reads and writes convert.
template <class T>
class Be {
 public:
  constexpr Be() noexcept = default;
  constexpr Be(T host) noexcept : raw_(byte_swap(host)) {}  // NOLINT: conversion is the point
  constexpr operator T() const noexcept { return byte_swap(raw_); }
  [[nodiscard]] constexpr T raw() const noexcept { return raw_; }

 private:
  T raw_ = 0;
};
using Be16 = Be<std::uint16_t>;
using Be32 = Be<std::uint32_t>;
using Be64 = Be<std::uint64_t>;
static_assert(sizeof(Be32) == 4 && sizeof(Be64) == 8);

/// Unaligned big-endian loads and stores over bytes.
[[nodiscard]] inline std::uint32_t load_be32(const std::byte* p) noexcept {
  std::uint32_t v;
  std::memcpy(&v, p, sizeof v);
  return byte_swap(v);
}
[[nodiscard]] inline std::uint64_t load_be64(const std::byte* p) noexcept {
  std::uint64_t v;
  std::memcpy(&v, p, sizeof v);
  return byte_swap(v);
}
inline void store_be32(std::byte* p, std::uint32_t v) noexcept {
  v = byte_swap(v);
  std::memcpy(p, &v, sizeof v);
}
inline void store_be64(std::byte* p, std::uint64_t v) noexcept {
  v = byte_swap(v);
  std::memcpy(p, &v, sizeof v);
}

}  // namespace rodeo
