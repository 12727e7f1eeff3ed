// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the fuzz targets: what must hold ends the process when it does not, so that libFuzzer keeps the input.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "pools/byte_order.h"

namespace rodeo::fuzz {

using Octets = std::vector<std::byte>;

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "fuzz: %s\n", what.c_str());
  std::abort();
}
inline void check(bool holds, const char* what) {
  if (!holds) fail(what);
}

/// In heap memory of exactly its size, where a sanitizer sees the first octet too far.
[[nodiscard]] inline Octets octets_of(const std::uint8_t* data, std::size_t size) {
  const auto* begin = reinterpret_cast<const std::byte*>(data);
  return {begin, begin + size};
}

/// Takes a session's script apart. After its end everything is zero and empty.
class Script {
 public:
  Script(const std::uint8_t* data, std::size_t size) : left_(data, size) {}
  [[nodiscard]] bool empty() const noexcept { return left_.empty(); }
  std::uint32_t u8() noexcept {
    if (left_.empty()) return 0;
    const std::uint32_t value = left_.front();
    left_ = left_.subspan(1);
    return value;
  }
  std::uint32_t u16() noexcept {
    const std::uint32_t high = u8();
    return high << 8U | u8();
  }
  /// As many as are left, at most `size`.
  Octets octets(std::size_t size) {
    size = size < left_.size() ? size : left_.size();
    Octets out = octets_of(left_.data(), size);
    left_ = left_.subspan(size);
    return out;
  }

 private:
  std::span<const std::uint8_t> left_;
};

}  // namespace rodeo::fuzz
