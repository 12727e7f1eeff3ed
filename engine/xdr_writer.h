// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// Writes XDR (RFC 4506) into memory the caller owns. What does not fit is not written, not even in part, and the
// overflow sticks: check ok() once, when done.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/xdr_pad.h"
#include "pools/byte_order.h"

namespace rodeo {

class XdrWriter {
 public:
  explicit XdrWriter(std::span<std::byte> out) noexcept : out_(out) {}

  /// Whether everything so far fitted.
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  /// Octets written so far.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t room() const noexcept { return ok_ ? out_.size() - size_ : 0; }
  [[nodiscard]] std::span<const std::byte> written() const noexcept { return out_.first(size_); }

  void u32(std::uint32_t value) noexcept {
    if (std::byte* p = take(4)) store_be32(p, value);
  }
  void u64(std::uint64_t value) noexcept {
    if (std::byte* p = take(8)) store_be64(p, value);
  }
  void i32(std::int32_t value) noexcept { u32(static_cast<std::uint32_t>(value)); }
  void i64(std::int64_t value) noexcept { u64(static_cast<std::uint64_t>(value)); }
  void boolean(bool value) noexcept { u32(value ? 1 : 0); }
  template <class E>
  void enumeration(E value) noexcept {
    u32(static_cast<std::uint32_t>(value));
  }

  /// opaque[n] with its zero pad.
  void opaque_fixed(std::span<const std::byte> octets) noexcept {
    const std::size_t pad = xdr_pad(octets.size());
    if (octets.size() > room()) return overflow();
    std::byte* p = take(octets.size() + pad);
    if (p == nullptr) return;
    if (!octets.empty()) std::memcpy(p, octets.data(), octets.size());
    std::memset(p + octets.size(), 0, pad);
  }

  /// opaque<> with its length word and zero pad.
  void opaque(std::span<const std::byte> octets) noexcept {
    const std::size_t pad = xdr_pad(octets.size());
    if (octets.size() > UINT32_MAX || octets.size() + pad + 4 > room()) return overflow();
    u32(static_cast<std::uint32_t>(octets.size()));
    opaque_fixed(octets);
  }
  void string(std::string_view text) noexcept { opaque(std::as_bytes(std::span{text.data(), text.size()})); }

  /// Leaves `length` octets for the caller to fill in place; null when they do not fit. The pad is zeroed.
  std::byte* reserve(std::size_t length) noexcept {
    const std::size_t pad = xdr_pad(length);
    if (length > room()) {
      overflow();
      return nullptr;
    }
    std::byte* p = take(length + pad);
    if (p != nullptr) std::memset(p + length, 0, pad);
    return p;
  }

  /// A word whose value is known later. Pass what it returns to patch_u32(), which is harmless after an overflow.
  [[nodiscard]] std::size_t reserve_u32() noexcept {
    const std::size_t at = size_;
    u32(0);
    return at;
  }
  void patch_u32(std::size_t at, std::uint32_t value) noexcept {
    if (size_ >= 4 && at <= size_ - 4) store_be32(out_.data() + at, value);
  }

  /// Takes back what was written beyond the first `size` octets, and an overflow with it.
  void cut(std::size_t size) noexcept {
    if (size > size_) return;
    size_ = size;
    ok_ = true;
  }

  /// Goes on in other memory, which takes over what was written. Views into the memory before are stale.
  void move_to(std::span<std::byte> out) noexcept {
    if (size_ > out.size()) return overflow();
    if (size_ != 0) std::memcpy(out.data(), out_.data(), size_);
    out_ = out;
  }

 private:
  std::byte* take(std::size_t length) noexcept {
    if (length > room()) {
      overflow();
      return nullptr;
    }
    std::byte* p = out_.data() + size_;
    size_ += length;
    return p;
  }
  void overflow() noexcept { ok_ = false; }

  std::span<std::byte> out_;
  std::size_t size_ = 0;
  bool ok_ = true;
};

}  // namespace rodeo
