// SPDX-License-Identifier: Apache-2.0
#pragma once

// Memory for the state of connections: queue pairs, their rings, and what the engine knows of each.
//
// A core that serves a thousand connections in turn touches some ten lines of each. On ordinary pages nearly every one
// of them misses in the TLB, too, which costs more than the line. So the state of all connections lies close together,
// in mappings of 2 MiB for which the kernel is asked for transparent hugepages (it gives them where
// /sys/kernel/mm/transparent_hugepage/enabled is "madvise" or "always"; elsewhere this is ordinary memory).
//
// Blocks start on a cache line. One that is freed serves the next block of its size; mappings stay until the process
// ends. Under a sanitizer every block is the heap's own, so that uses after its end are found.
// Runs on: any thread, and takes a lock: not for the hot path.

#include <cstddef>
#include <memory>
#include <memory_resource>
#include <new>
#include <utility>

namespace rodeo::pools {

/// Throws std::bad_alloc when the host has no more memory. Lives as long as the process.
[[nodiscard]] std::pmr::memory_resource& state_memory();

/// For std::allocate_shared and containers.
template <class T>
[[nodiscard]] std::pmr::polymorphic_allocator<T> state_allocator() {
  return &state_memory();
}

/// Objects of a class derived from this are made there by `new` and std::make_unique.
struct InStateMemory {
  static void* operator new(std::size_t bytes) { return state_memory().allocate(bytes); }
  static void* operator new(std::size_t bytes, std::align_val_t alignment) {
    return state_memory().allocate(bytes, static_cast<std::size_t>(alignment));
  }
  static void operator delete(void* block, std::size_t bytes) noexcept { state_memory().deallocate(block, bytes); }
  static void operator delete(void* block, std::size_t bytes, std::align_val_t alignment) noexcept {
    state_memory().deallocate(block, bytes, static_cast<std::size_t>(alignment));
  }
};

/// A fixed number of value-initialised elements that lie there.
template <class T>
class StateArray {
 public:
  StateArray() = default;
  explicit StateArray(std::size_t count) : data_(state_allocator<T>().allocate(count)), count_(count) {
    std::uninitialized_value_construct_n(data_, count);
  }
  StateArray(StateArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
  StateArray& operator=(StateArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~StateArray() {
    if (data_ == nullptr) return;
    std::destroy_n(data_, count_);
    state_allocator<T>().deallocate(data_, count_);
  }

  [[nodiscard]] T* get() const noexcept { return data_; }
  [[nodiscard]] T& operator[](std::size_t index) const noexcept { return data_[index]; }

 private:
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

}  // namespace rodeo::pools
