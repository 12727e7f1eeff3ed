// SPDX-License-Identifier: Apache-2.0
#include "bench/allocation_counter.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const std::size_t wanted = bytes == 0 ? 1 : bytes;
  if (alignment <= __STDCPP_DEFAULT_NEW_ALIGNMENT__) return std::malloc(wanted);
  return std::aligned_alloc(alignment, (wanted + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t bytes, std::size_t alignment) {
  void* memory = counted(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

namespace rodeo::bench {

std::uint64_t allocation_count() noexcept { return allocations.load(std::memory_order_relaxed); }

}  // namespace rodeo::bench

// The array and sized forms of the standard library end in these.
void* operator new(std::size_t bytes) { return counted_or_throw(bytes, 1); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted(bytes, 1); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return counted_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }
