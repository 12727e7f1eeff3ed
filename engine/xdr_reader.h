// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// Reads XDR (RFC 4506) from a message that may lie in several pieces: the inline Payload, data pulled by RDMA Read,
// more inline Payload. The caller owns the pieces and the array that names them; both outlive the reader and every view
// it returns. The first error sticks: later reads return zero or nothing, so a decoder checks ok() once, at its end.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "engine/xdr_pad.h"
#include "pools/byte_order.h"

namespace rodeo {

class XdrReader {
 public:
  explicit XdrReader(std::span<const std::byte> message) noexcept
      : at_(message.data()), end_(message.data() + message.size()), unread_(message.size()), total_(message.size()) {}

  /// Over pieces in stream order; empty ones are allowed.
  explicit XdrReader(std::span<const std::span<const std::byte>> pieces) noexcept : pieces_(pieces) {
    for (const auto& piece : pieces) total_ += piece.size();
    unread_ = total_;
    if (!pieces_.empty()) enter_next_piece();
  }

  /// Whether everything so far was there and well-formed.
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  /// Octets not read yet; 0 after an error.
  [[nodiscard]] std::size_t remaining() const noexcept { return ok_ ? unread_ : 0; }
  /// Octets read so far, pads included. After an error, where it was met.
  [[nodiscard]] std::size_t position() const noexcept { return total_ - unread_; }

  std::uint32_t u32() noexcept {
    if (static_cast<std::size_t>(end_ - at_) < 4) return static_cast<std::uint32_t>(slow_integer(4));
    const std::uint32_t value = load_be32(at_);
    advance(4);
    return value;
  }
  std::uint64_t u64() noexcept {
    if (static_cast<std::size_t>(end_ - at_) < 8) return slow_integer(8);
    const std::uint64_t value = load_be64(at_);
    advance(8);
    return value;
  }
  std::int32_t i32() noexcept { return static_cast<std::int32_t>(u32()); }
  std::int64_t i64() noexcept { return static_cast<std::int64_t>(u64()); }

  /// Exactly 0 or 1; anything else is an error.
  bool boolean() noexcept {
    const std::uint32_t value = u32();
    if (value > 1) fail();
    return ok_ && value == 1;
  }

  /// An enumeration whose values are 0 up to and including `last`; others are an error and read as value 0.
  template <class E>
  E enumeration(E last) noexcept {
    const std::uint32_t value = u32();
    if (value > static_cast<std::uint32_t>(last)) fail();
    return ok_ ? static_cast<E>(value) : E{};
  }

  /// opaque[length]: a view into the message when the octets lie in one piece, else a copy in `scratch`. An error when
  /// they are split and scratch is too small. The pad is skipped and its content ignored.
  std::span<const std::byte> opaque_fixed(std::size_t length, std::span<std::byte> scratch = {}) noexcept {
    const std::size_t padded = xdr_padded(length);
    if (padded < length || padded > remaining()) return fail();
    if (at_ == end_) enter_next_piece();
    if (length <= static_cast<std::size_t>(end_ - at_)) {
      const std::span<const std::byte> view{at_, length};
      advance(length);
      skip_octets(padded - length);
      return view;
    }
    if (length > scratch.size()) return fail();
    copy_octets(scratch.data(), length);
    skip_octets(padded - length);
    return scratch.first(length);
  }

  /// opaque<max>. The declared maximum is enforced before anything else happens.
  std::span<const std::byte> opaque(std::size_t max, std::span<std::byte> scratch = {}) noexcept {
    const std::uint32_t length = u32();
    if (length > max) return fail();
    return opaque_fixed(length, scratch);
  }

  /// string<max>, as octets: XDR names no encoding.
  std::string_view string(std::size_t max, std::span<std::byte> scratch = {}) noexcept {
    const auto octets = opaque(max, scratch);
    return {reinterpret_cast<const char*>(octets.data()), octets.size()};
  }

  /// Copies opaque[out.size()] out and skips its pad. False on error.
  bool read_into(std::span<std::byte> out) noexcept {
    const std::size_t padded = xdr_padded(out.size());
    if (padded > remaining()) {
      fail();
      return false;
    }
    copy_octets(out.data(), out.size());
    skip_octets(padded - out.size());
    return ok_;
  }

  /// Passes over octets without looking at them.
  void skip(std::size_t length) noexcept {
    if (length > remaining()) {
      fail();
      return;
    }
    skip_octets(length);
  }

  /// What follows the last piece in memory belongs to the message after all, as far as `octets`. After all was read.
  void extend(std::size_t octets) noexcept {
    if (!ok_) return;
    end_ += octets;
    unread_ += octets;
    total_ += octets;
  }

  /// For the decoder's own rules, such as a union arm that does not exist.
  std::span<const std::byte> fail() noexcept {
    ok_ = false;
    at_ = end_;
    pieces_ = {};
    return {};
  }

 private:
  void advance(std::size_t length) noexcept {
    at_ += length;
    unread_ -= length;
  }

  /// Precondition: the current piece is used up. Leaves an empty window when there is no further piece.
  void enter_next_piece() noexcept {
    while (at_ == end_ && !pieces_.empty()) {
      at_ = pieces_.front().data();
      end_ = at_ + pieces_.front().size();
      pieces_ = pieces_.subspan(1);
    }
  }

  // Both: the caller has checked that `length` octets remain.
  void copy_octets(std::byte* out, std::size_t length) noexcept {
    while (length != 0) {
      if (at_ == end_) enter_next_piece();
      const std::size_t part = std::min(length, static_cast<std::size_t>(end_ - at_));
      std::memcpy(out, at_, part);
      out += part;
      length -= part;
      advance(part);
    }
  }
  void skip_octets(std::size_t length) noexcept {
    while (length != 0) {
      if (at_ == end_) enter_next_piece();
      const std::size_t part = std::min(length, static_cast<std::size_t>(end_ - at_));
      length -= part;
      advance(part);
    }
  }

  /// An integer that is split between pieces, or is not there.
  [[gnu::noinline, gnu::cold]] std::uint64_t slow_integer(std::size_t width) noexcept {
    if (width > remaining()) {
      fail();
      return 0;
    }
    std::byte octets[8] = {};
    copy_octets(octets + (8 - width), width);
    return load_be64(octets);
  }

  const std::byte* at_ = nullptr;  // the window into the current piece
  const std::byte* end_ = nullptr;
  std::size_t unread_ = 0;  // octets from at_ to the end of the message
  bool ok_ = true;
  std::span<const std::span<const std::byte>> pieces_;  // those after the current one
  std::size_t total_ = 0;
};

}  // namespace rodeo
