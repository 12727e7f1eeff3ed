// SPDX-License-Identifier: Apache-2.0
// Hot path. The bursts of buffer_pool.h: between a cache and the pool's ring, and from other cores into the ring.
#include <algorithm>
#include <array>

#include "pools/buffer_pool.h"

namespace rodeo::pools {

void BufferPool::push_all(std::span<const std::uint32_t> indices) noexcept {
  for (;;) {
    indices = indices.subspan(ring_->push(indices));
    if (indices.empty()) return;
    rte_pause();
  }
}

void BufferPool::hand_back(std::span<std::byte* const> buffers) noexcept {
  std::array<std::uint32_t, kHandBackBurst> indices;
  while (!buffers.empty()) {
    const std::size_t n = std::min(kHandBackBurst, buffers.size());
    for (std::size_t i = 0; i < n; ++i) {
      if constexpr (kTracksOwners) track_return(buffers[i], Owner::kPool);
      indices[i] = index_of(buffers[i]);
    }
    push_all({indices.data(), n});
    buffers = buffers.subspan(n);
  }
}

std::size_t BufferCache::get_burst(std::span<std::byte*> buffers, Owner owner) noexcept {
  std::size_t done = 0;
  while (done < buffers.size()) {
    std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == 0) count = refill();
    if (count == 0) break;
    const std::size_t n = std::min(count, buffers.size() - done);
    for (std::size_t i = 0; i < n; ++i) {
      std::byte* buffer = buffers_[--count];
      if constexpr (kTracksOwners) pool_.track_move(buffer, Owner::kCache, owner);
      buffers[done++] = buffer;
    }
    count_.store(count, std::memory_order_relaxed);
  }
  return done;
}

/// Only called when empty. Returns the new count.
std::size_t BufferCache::refill() noexcept {
  const std::size_t n = pool_.ring_->pop(std::span<std::uint32_t>(indices_.get(), capacity_ / 2));
  for (std::size_t i = 0; i < n; ++i) {
    buffers_[i] = pool_.at(indices_[i]);
    if constexpr (kTracksOwners) pool_.track_move(buffers_[i], Owner::kPool, Owner::kCache);
  }
  count_.store(n, std::memory_order_relaxed);
  return n;
}

/// Only called when full: gives away the half that has lain longest. Returns the new count.
std::size_t BufferCache::spill() noexcept {
  const std::size_t half = capacity_ / 2;
  give_back(half);
  std::copy(buffers_.get() + half, buffers_.get() + capacity_, buffers_.get());
  count_.store(half, std::memory_order_relaxed);
  return half;
}

void BufferCache::flush() noexcept {
  std::size_t count = count_.load(std::memory_order_relaxed);
  while (count > 0) {
    const std::size_t n = std::min(count, capacity_ / 2);
    give_back(n);
    std::copy(buffers_.get() + n, buffers_.get() + count, buffers_.get());
    count -= n;
  }
  count_.store(0, std::memory_order_relaxed);
}

/// Pushes the oldest `count` buffers, half the capacity at most.
void BufferCache::give_back(std::size_t count) noexcept {
  for (std::size_t i = 0; i < count; ++i) {
    if constexpr (kTracksOwners) pool_.track_move(buffers_[i], Owner::kCache, Owner::kPool);
    indices_[i] = pool_.index_of(buffers_[i]);
  }
  pool_.push_all({indices_.get(), count});
}

}  // namespace rodeo::pools
