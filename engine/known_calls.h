// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// RPC Call headers that were decoded before. Clients send the same header again and again but for the XID: same
// program, version, procedure and credential. Where all of its octets are the same, so is what they mean: the header is
// well formed, the credential passes, and the procedure is the one found then. Comparing costs a quarter of decoding.
//
// An entry is replaced by the latest header that falls on it; nothing is kept about connections.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include "engine/program.h"

namespace rodeo {

class KnownCalls {
 public:
  struct Entry {
    std::uint32_t header_bytes = 0;  // from the XID to the arguments; 0: empty
    const Procedure* procedure = nullptr;
    alignas(16) std::array<std::byte, 124> header;  // behind the XID
  };

  /// The entry whose header `message`, an RPC message, starts with, or nullptr.
  [[nodiscard, gnu::always_inline]] const Entry* find(const std::byte* message, std::size_t bytes) const noexcept {
    if (bytes < kLeastBytes) return nullptr;
    const Entry& entry = entries_[slot_of(message)];
    const std::size_t end = entry.header_bytes;
    if (bytes < end || end == 0) return nullptr;
    return same(message + kSkipped, entry.header.data(), end - kSkipped) ? &entry : nullptr;
  }

  /// Remembers a header that was decoded and found good.
  void remember(std::span<const std::byte> header, const Procedure& procedure) noexcept {
    if (header.size() < kLeastBytes || header.size() - kSkipped > Entry{}.header.size()) return;
    Entry& entry = entries_[slot_of(header.data())];
    entry.header_bytes = static_cast<std::uint32_t>(header.size());
    entry.procedure = &procedure;
    std::memcpy(entry.header.data(), header.data() + kSkipped, header.size() - kSkipped);
  }

 private:
  static constexpr std::size_t kSkipped = 4;      // the XID
  static constexpr std::size_t kLeastBytes = 60;  // of the shortest AUTH_SYS; AUTH_NONE is decoded as fast
  static constexpr unsigned kSlotBits = 5;

  /// By procedure, and a word of the credential that differs between users of hosts with names of up to 8 octets.
  [[nodiscard]] static std::size_t slot_of(const std::byte* message) noexcept {
    std::uint32_t procedure;
    std::uint32_t user;
    std::memcpy(&procedure, message + 20, sizeof procedure);
    std::memcpy(&user, message + 48, sizeof user);
    return ((procedure ^ user) * 0x9e3779b1U) >> (32 - kSlotBits);
  }

  using Piece [[gnu::vector_size(16)]] = std::uint64_t;
  using Signed [[gnu::vector_size(16)]] = long long;
  [[nodiscard, gnu::always_inline]] static Piece difference(const std::byte* a, const std::byte* b) noexcept {
    Piece first;
    Piece second;
    std::memcpy(&first, a, sizeof first);
    std::memcpy(&second, b, sizeof second);
    return first ^ second;
  }
  [[nodiscard, gnu::always_inline]] static bool zero(Piece piece) noexcept {
#ifdef __SSE4_1__
    return __builtin_ia32_ptestz128(reinterpret_cast<Signed>(piece), reinterpret_cast<Signed>(piece)) != 0;
#else
    return (piece[0] | piece[1]) == 0;
#endif
  }
  /// Pieces from the front, and from the back; they overlap. Longer headers need some in between. `b` is aligned.
  [[nodiscard, gnu::always_inline]] static bool same(const std::byte* a, const std::byte* b,
                                                     std::size_t bytes) noexcept {
    constexpr std::size_t kPiece = sizeof(Piece);
    constexpr std::size_t kFront = 3 * kPiece;
    constexpr std::size_t kBack = 2 * kPiece;
    static_assert(kLeastBytes - kSkipped >= kFront);
    b = std::assume_aligned<kPiece>(b);
    Piece differences =
        difference(a, b) | difference(a + kPiece, b + kPiece) | difference(a + 2 * kPiece, b + 2 * kPiece) |
        difference(a + bytes - 2 * kPiece, b + bytes - 2 * kPiece) | difference(a + bytes - kPiece, b + bytes - kPiece);
    for (std::size_t at = kFront; at + kBack < bytes; at += kPiece) differences |= difference(a + at, b + at);
    return zero(differences);
  }

  std::array<Entry, std::size_t{1} << kSlotBits> entries_;
};

}  // namespace rodeo
