// SPDX-License-Identifier: Apache-2.0
#include "pools/state_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "pools/host_memory.h"
#include "pools/sanitizers.h"

namespace rodeo::pools {

namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kLargestBytes = kHugepageBytes / 4;  // what is larger has pages enough to itself

class StateMemory final : public std::pmr::memory_resource {
 private:
  struct Free {
    Free* next;
  };

  [[nodiscard]] static std::size_t in_lines(std::size_t bytes) noexcept {
    return (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  }
  [[nodiscard]] static bool is_ours(std::size_t bytes, std::size_t alignment) noexcept {
    return !kSanitized && bytes <= kLargestBytes && alignment <= kLineBytes;
  }
  [[nodiscard]] static std::align_val_t alignment_of(std::size_t alignment) noexcept {
    return std::align_val_t{alignment < kLineBytes ? kLineBytes : alignment};
  }

  void* do_allocate(std::size_t bytes, std::size_t alignment) override {
    if (!is_ours(bytes, alignment)) return ::operator new(bytes, alignment_of(alignment));
    const std::size_t size = in_lines(bytes == 0 ? 1 : bytes);
    const std::lock_guard lock(mutex_);
    if (Free*& first = free_[size]; first != nullptr) return std::exchange(first, first->next);
    if (left_ < size) map_more();
    left_ -= size;
    return std::exchange(next_, next_ + size);
  }

  void do_deallocate(void* block, std::size_t bytes, std::size_t alignment) override {
    if (!is_ours(bytes, alignment)) return ::operator delete(block, alignment_of(alignment));
    const std::lock_guard lock(mutex_);
    Free*& first = free_[in_lines(bytes == 0 ? 1 : bytes)];  // the entry is there since do_allocate
    first = new (block) Free{first};
  }

  [[nodiscard]] bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  /// What is left of the mapping before is given up.
  void map_more() {
    // Twice as much, so that a whole hugepage lies in it; the rest is never touched and goes back.
    const std::size_t mapped = 2 * kHugepageBytes;
    void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) throw std::bad_alloc();
    auto* const first = static_cast<std::byte*>(base);
    const std::size_t skip =
        (kHugepageBytes - reinterpret_cast<std::uintptr_t>(base) % kHugepageBytes) % kHugepageBytes;
    if (skip != 0) munmap(first, skip);
    munmap(first + skip + kHugepageBytes, kHugepageBytes - skip);
    next_ = first + skip;
    left_ = kHugepageBytes;
    madvise(next_, left_, MADV_HUGEPAGE);  // a wish
  }

  std::mutex mutex_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
  std::unordered_map<std::size_t, Free*> free_;  // by size
};

}  // namespace

std::pmr::memory_resource& state_memory() {
  static StateMemory* const memory = new StateMemory;  // outlives whatever static object still holds a block
  return *memory;
}

}  // namespace rodeo::pools
