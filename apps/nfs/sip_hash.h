// SPDX-License-Identifier: Apache-2.0
#pragma once

// SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed hash that whoever lacks the key can neither predict nor make
// collide. Runs on: any.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace rodeo::nfs {

using SipKey = std::array<std::uint64_t, 2>;

[[nodiscard]] inline std::uint64_t sip_hash(const SipKey& key, std::span<const std::byte> octets) noexcept {
  std::uint64_t a = key[0] ^ 0x736f6d6570736575U;
  std::uint64_t b = key[1] ^ 0x646f72616e646f6dU;
  std::uint64_t c = key[0] ^ 0x6c7967656e657261U;
  std::uint64_t d = key[1] ^ 0x7465646279746573U;
  const auto rounds = [&](int n) {
    while (n-- > 0) {
      a += b;
      c += d;
      b = std::rotl(b, 13) ^ a;
      d = std::rotl(d, 16) ^ c;
      a = std::rotl(a, 32);
      c += b;
      a += d;
      b = std::rotl(b, 17) ^ c;
      d = std::rotl(d, 21) ^ a;
      c = std::rotl(c, 32);
    }
  };
  const auto take = [&](std::uint64_t word) {
    d ^= word;
    rounds(2);
    a ^= word;
  };
  const std::uint64_t length = octets.size();
  std::uint64_t word = 0;
  for (; octets.size() >= sizeof word; octets = octets.subspan(sizeof word)) {
    std::memcpy(&word, octets.data(), sizeof word);
    take(word);
  }
  word = 0;
  if (!octets.empty()) std::memcpy(&word, octets.data(), octets.size());
  take(word | (length << 56U));
  c ^= 0xff;
  rounds(4);
  return a ^ b ^ c ^ d;
}

}  // namespace rodeo::nfs
