// SPDX-License-Identifier: Apache-2.0
#pragma once

// Registered memory as applications see it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

namespace rodeo {

/// Bytes inside the engine's registered arena: a buffer of its pools, or a piece of Engine::application_memory().
/// Only such bytes can be named in a chunk or be the source or sink of an RDMA operation.
using RegisteredBytes = std::span<std::byte>;

/// Returns a buffer to the pool of the engine it came from. Runs on: any core; on the engine's own cores it goes to the
/// core's cache, elsewhere through the pool's ring.
void return_buffer(std::byte* data) noexcept;

/// One buffer of the engine's pools, owned. Moves, never copies, and returns itself.
class Buffer {
 public:
  Buffer() noexcept = default;
  /// Takes over a buffer that a pool handed out.
  Buffer(std::byte* data, std::size_t capacity) noexcept : data_(data), capacity_(capacity) {}
  Buffer(Buffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), capacity_(std::exchange(other.capacity_, 0)) {}
  Buffer& operator=(Buffer&& other) noexcept {
    if (this != &other) {
      reset();
      data_ = std::exchange(other.data_, nullptr);
      capacity_ = std::exchange(other.capacity_, 0);
    }
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { reset(); }

  [[nodiscard]] explicit operator bool() const noexcept { return data_ != nullptr; }
  [[nodiscard]] std::byte* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  [[nodiscard]] RegisteredBytes first(std::size_t length) const noexcept { return {data_, length}; }
  /// Gives the buffer up without returning it; whoever takes it must.
  [[nodiscard]] std::byte* release() noexcept {
    capacity_ = 0;
    return std::exchange(data_, nullptr);
  }
  void reset() noexcept {
    if (data_ != nullptr) return_buffer(std::exchange(data_, nullptr));
    capacity_ = 0;
  }

 private:
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
};

}  // namespace rodeo
