// SPDX-License-Identifier: Apache-2.0
#pragma once

// Fixed-size buffers carved from a range of an Arena, shared through a ring and cached per core.
//
// A buffer is at any time in exactly one place: in the pool's ring, in one core's cache, or held by a named owner. Only
// indices travel through the ring, and nothing about a buffer is stored in the range itself: a peer can map that.
// An address names its buffer by arithmetic alone.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "pools/result.h"
#include "pools/ring.h"

namespace rodeo::pools {

class BufferCache;

/// Who answers for a buffer. The first two are free buffers.
enum class Owner : std::uint8_t { kPool, kCache, kPosted, kCall, kSend, kApplication };
inline constexpr std::size_t kOwnerCount = 6;
[[nodiscard]] const char* owner_name(Owner owner) noexcept;

/// Debug builds know each buffer's owner and abort on a double put or a foreign pointer; release builds only count.
#ifdef NDEBUG
inline constexpr bool kTracksOwners = false;
#else
inline constexpr bool kTracksOwners = true;
#endif

/// Where the buffers of a pool are. Exact when no other core uses the pool meanwhile.
struct Audit {
  std::size_t total = 0;
  std::size_t in_pool = 0;    ///< in the ring
  std::size_t in_caches = 0;  ///< in the caches that exist now
  std::size_t held = 0;       ///< the rest
  bool owners_known = false;
  std::size_t by_owner[kOwnerCount] = {};  ///< by Owner, if owners_known

  /// Whether the places sum up to the total and, where owners are known, agree with them one by one.
  [[nodiscard]] bool adds_up() const;
  [[nodiscard]] std::string to_string() const;
};

class BufferPool {
 public:
  /// The distance between buffers: whole pairs of cache lines, and an odd number of those, so that the first lines of
  /// successive buffers fall into different sets of the L1 cache (a power of two would put them all into a few).
  [[nodiscard]] static constexpr std::size_t stride_for(std::size_t buffer_bytes) noexcept {
    return ((buffer_bytes + kStep - 1) / kStep | 1U) * kStep;
  }
  [[nodiscard]] static constexpr std::size_t footprint(std::size_t buffer_bytes, std::size_t count) noexcept {
    return stride_for(buffer_bytes) * count;
  }

  /// The range must outlive the pool and start at a multiple of 64.
  static Result<std::unique_ptr<BufferPool>> create(std::string name, std::span<std::byte> range,
                                                    std::size_t buffer_bytes, std::size_t count);
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;
  /// Its caches must be gone.
  ~BufferPool();

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::size_t buffer_bytes() const noexcept { return buffer_bytes_; }
  [[nodiscard]] std::size_t stride() const noexcept { return stride_; }
  [[nodiscard]] std::size_t count() const noexcept { return count_; }
  [[nodiscard]] std::span<std::byte> range() const noexcept { return {base_, stride_ * count_}; }

  // Hot path from here to set_owner. Runs on: any.

  /// Whether the address lies within a buffer of this pool or the gap behind one.
  [[nodiscard]] bool contains(const void* address) const noexcept { return offset_of(address) < stride_ * count_; }

  /// The buffer that an address of this pool lies in, without a division.
  [[nodiscard]] std::uint32_t index_of(const void* address) const noexcept {
    return static_cast<std::uint32_t>(static_cast<Wide>(offset_of(address) / kStep) * reciprocal_ >> kShift);
  }
  [[nodiscard]] std::byte* at(std::uint32_t index) const noexcept { return base_ + index * stride_; }
  /// The start of the buffer that an address of this pool lies in.
  [[nodiscard]] std::byte* base_of(const void* address) const noexcept { return at(index_of(address)); }

  /// Returns buffers from whatever core holds them. Takes all of them.
  void hand_back(std::span<std::byte* const> buffers) noexcept;

  /// Passes a held buffer on to another holder: kPosted, kCall, kSend or kApplication. Nothing in release builds.
  void set_owner([[maybe_unused]] const std::byte* buffer, [[maybe_unused]] Owner owner) noexcept {
    if constexpr (kTracksOwners) track_pass(buffer, owner);
  }

  /// Slow path: counts under a lock that only caches coming and going share.
  [[nodiscard]] Audit audit() const;

 private:
  friend class BufferCache;
  __extension__ typedef unsigned __int128 Wide;
  static constexpr std::size_t kStep = 128;
  static constexpr unsigned kShift = 63;
  static constexpr std::size_t kHandBackBurst = 64;
  static constexpr std::size_t kMaxCount = std::size_t{1} << 29;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

  BufferPool(std::string name, std::byte* base, std::size_t buffer_bytes, std::size_t count,
             std::unique_ptr<MpmcRing<std::uint32_t>> ring);

  [[nodiscard]] std::size_t offset_of(const void* address) const noexcept {
    return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(base_);
  }
  /// Pushes all; waits, for nanoseconds, only while another core stands between taking ring slots and freeing them.
  void push_all(std::span<const std::uint32_t> indices) noexcept;

  // Debug builds only; each aborts with a sentence when the move is not lawful.
  void track_pass(const std::byte* buffer, Owner owner) noexcept;
  void track_return(const std::byte* buffer, Owner to) noexcept;
  void track_move(const std::byte* buffer, Owner from, Owner to) noexcept;

  void enlist(const BufferCache* cache);
  void discharge(const BufferCache* cache) noexcept;

  std::byte* base_;
  std::size_t stride_;
  std::size_t count_;
  std::uint64_t reciprocal_;
  std::unique_ptr<MpmcRing<std::uint32_t>> ring_;
  std::unique_ptr<std::atomic<Owner>[]> owners_;  // debug builds only
  std::size_t buffer_bytes_;
  std::string name_;
  mutable std::mutex caches_mutex_;
  std::vector<const BufferCache*> caches_;
};

/// Hot path (all but construction and destruction). Runs on: the one core that owns it.
/// A stack of free buffers; the one put last, still warm, is got first. It refills from and spills to the pool by
/// halves of its capacity, one ring burst each. The pool must outlive it.
class BufferCache {
 public:
  /// Capacities are rounded up to an even number, and to 2 at least.
  BufferCache(BufferPool& pool, std::size_t capacity);
  BufferCache(const BufferCache&) = delete;
  BufferCache& operator=(const BufferCache&) = delete;
  ~BufferCache();

  /// nullptr when cache and pool are empty. The new owner is a holder, not kPool or kCache.
  [[nodiscard]] std::byte* get(Owner owner) noexcept {
    std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == 0) {
      count = refill();
      if (count == 0) return nullptr;
    }
    std::byte* buffer = buffers_[--count];
    count_.store(count, std::memory_order_relaxed);
    if constexpr (kTracksOwners) pool_.track_move(buffer, Owner::kCache, owner);
    return buffer;
  }

  /// Fills the span from its front and returns how many; fewer when the pool runs dry.
  [[nodiscard]] std::size_t get_burst(std::span<std::byte*> buffers, Owner owner) noexcept;

  /// Takes the start address of a held buffer.
  void put(std::byte* buffer) noexcept {
    if constexpr (kTracksOwners) pool_.track_return(buffer, Owner::kCache);
    std::size_t count = count_.load(std::memory_order_relaxed);
    if (count == capacity_) count = spill();
    buffers_[count] = buffer;
    count_.store(count + 1, std::memory_order_relaxed);
  }

  void put_burst(std::span<std::byte* const> buffers) noexcept {
    for (std::byte* buffer : buffers) put(buffer);
  }

  /// Gives everything to the pool.
  void flush() noexcept;

  [[nodiscard]] BufferPool& pool() const noexcept { return pool_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
  /// From another thread, a snapshot.
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

 private:
  std::size_t refill() noexcept;
  std::size_t spill() noexcept;
  void give_back(std::size_t count) noexcept;

  BufferPool& pool_;
  std::size_t capacity_;
  std::unique_ptr<std::byte*[]> buffers_;
  std::unique_ptr<std::uint32_t[]> indices_;  // one half's worth, on its way to or from the ring
  std::atomic<std::size_t> count_{0};         // relaxed everywhere: audits read it, nothing is published by it
};

}  // namespace rodeo::pools
