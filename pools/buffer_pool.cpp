// SPDX-License-Identifier: Apache-2.0
#include "pools/buffer_pool.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <numeric>

namespace rodeo::pools {
namespace {

constexpr std::array<const char*, kOwnerCount> kOwnerNames{"pool", "cache", "posted", "call", "send", "application"};

bool is_free(Owner owner) noexcept { return owner == Owner::kPool || owner == Owner::kCache; }

[[gnu::cold, gnu::noinline, noreturn]] void abort_on_foreign(const std::string& pool, const void* address) noexcept {
  std::fprintf(stderr, "buffer pool %s: %p is not the start of one of its buffers\n", pool.c_str(), address);
  std::abort();
}

[[gnu::cold, gnu::noinline, noreturn]] void abort_on_move(const std::string& pool, std::uint32_t index, Owner is,
                                                          Owner to) noexcept {
  std::fprintf(stderr, "buffer pool %s: buffer %u cannot go to \"%s\": it is with \"%s\"\n", pool.c_str(), index,
               owner_name(to), owner_name(is));
  std::abort();
}

}  // namespace

const char* owner_name(Owner owner) noexcept { return kOwnerNames[static_cast<std::size_t>(owner)]; }

Result<std::unique_ptr<BufferPool>> BufferPool::create(std::string name, std::span<std::byte> range,
                                                       std::size_t buffer_bytes, std::size_t count) {
  const std::string where = "buffer pool " + name;
  if (count == 0 || count > kMaxCount) {
    return fail(where, std::to_string(count) + " buffers are out of range",
                "choose from 1 to " + std::to_string(kMaxCount));
  }
  if (buffer_bytes == 0 || buffer_bytes > kMaxBytes) {
    return fail(where, "buffers of " + std::to_string(buffer_bytes) + " bytes are out of range",
                "choose from 1 to " + std::to_string(kMaxBytes));
  }
  // Divided, not multiplied: count times stride may not fit into 64 bits.
  if (range.size() / stride_for(buffer_bytes) < count) {
    return fail(
        where,
        std::to_string(count) + " buffers of " + std::to_string(buffer_bytes) + " bytes do not fit into " +
            std::to_string(range.size()) + " bytes",
        "choose at most " + std::to_string(range.size() / stride_for(buffer_bytes)) + " buffers or a larger arena");
  }
  if (reinterpret_cast<std::uintptr_t>(range.data()) % 64 != 0) {
    return fail(where, "its range does not start at a cache line", "start it at a multiple of 64");
  }
  // Twice the room: while one core is preempted within a pop, the slots it took are not free for others to push into.
  auto ring = MpmcRing<std::uint32_t>::create(2 * count);
  if (!ring) return tl::unexpected(ring.error());
  return std::unique_ptr<BufferPool>(
      new BufferPool(std::move(name), range.data(), buffer_bytes, count, std::move(*ring)));
}

BufferPool::BufferPool(std::string name, std::byte* base, std::size_t buffer_bytes, std::size_t count,
                       std::unique_ptr<MpmcRing<std::uint32_t>> ring)
    : base_(base),
      stride_(stride_for(buffer_bytes)),
      count_(count),
      // Rounded up, n * reciprocal >> 63 is n / d exactly while n * d < 2^63; here n < 2^40 (47 address bits, in steps
      // of 2^7) and d <= 2^23 (1 GiB in steps).
      reciprocal_((std::uint64_t{1} << kShift) / (stride_ / kStep) + 1),
      ring_(std::move(ring)),
      buffer_bytes_(buffer_bytes),
      name_(std::move(name)) {
  if constexpr (kTracksOwners) owners_ = std::make_unique<std::atomic<Owner>[]>(count);
  std::array<std::uint32_t, kHandBackBurst> indices;
  for (std::size_t first = 0; first < count; first += indices.size()) {
    const std::size_t n = std::min(indices.size(), count - first);
    std::iota(indices.begin(), indices.begin() + n, static_cast<std::uint32_t>(first));
    push_all({indices.data(), n});
  }
}

BufferPool::~BufferPool() { assert(caches_.empty()); }

void BufferPool::track_pass(const std::byte* buffer, Owner owner) noexcept {
  if (!contains(buffer) || base_of(buffer) != buffer) abort_on_foreign(name_, buffer);
  // relaxed: whoever passes a buffer on holds it, so nobody else writes its entry meanwhile.
  const Owner was = owners_[index_of(buffer)].exchange(owner, std::memory_order_relaxed);
  if (is_free(was) || is_free(owner)) abort_on_move(name_, index_of(buffer), was, owner);
}

void BufferPool::track_return(const std::byte* buffer, Owner to) noexcept {
  if (!contains(buffer) || base_of(buffer) != buffer) abort_on_foreign(name_, buffer);
  const Owner was = owners_[index_of(buffer)].exchange(to, std::memory_order_relaxed);
  if (is_free(was)) abort_on_move(name_, index_of(buffer), was, to);
}

void BufferPool::track_move(const std::byte* buffer, Owner from, Owner to) noexcept {
  const Owner was = owners_[index_of(buffer)].exchange(to, std::memory_order_relaxed);
  if (was != from) abort_on_move(name_, index_of(buffer), was, to);
}

void BufferPool::enlist(const BufferCache* cache) {
  const std::scoped_lock lock(caches_mutex_);
  caches_.push_back(cache);
}

void BufferPool::discharge(const BufferCache* cache) noexcept {
  const std::scoped_lock lock(caches_mutex_);
  std::erase(caches_, cache);
}

Audit BufferPool::audit() const {
  Audit audit{.total = count_, .in_pool = ring_->count(), .owners_known = kTracksOwners};
  {
    const std::scoped_lock lock(caches_mutex_);
    for (const BufferCache* cache : caches_) audit.in_caches += cache->count();
  }
  const std::size_t free = audit.in_pool + audit.in_caches;
  audit.held = audit.total - std::min(audit.total, free);
  if constexpr (kTracksOwners) {
    for (std::size_t i = 0; i < count_; ++i) {
      ++audit.by_owner[static_cast<std::size_t>(owners_[i].load(std::memory_order_relaxed))];
    }
  }
  return audit;
}

bool Audit::adds_up() const {
  if (in_pool + in_caches + held != total) return false;
  if (!owners_known) return true;
  return by_owner[static_cast<std::size_t>(Owner::kPool)] == in_pool &&
         by_owner[static_cast<std::size_t>(Owner::kCache)] == in_caches &&
         std::accumulate(std::begin(by_owner), std::end(by_owner), std::size_t{0}) == total;
}

std::string Audit::to_string() const {
  std::string text = std::to_string(total) + " buffers: " + std::to_string(in_pool) + " in the pool, " +
                     std::to_string(in_caches) + " in caches, " + std::to_string(held) + " held";
  for (std::size_t i = 0; owners_known && i < kOwnerCount; ++i) {
    if (is_free(static_cast<Owner>(i)) || by_owner[i] == 0) continue;
    text += std::string(", ") + kOwnerNames[i] + " " + std::to_string(by_owner[i]);
  }
  return text;
}

BufferCache::BufferCache(BufferPool& pool, std::size_t capacity)
    : pool_(pool),
      capacity_(std::max<std::size_t>(2, capacity + capacity % 2)),
      buffers_(std::make_unique<std::byte*[]>(capacity_)),
      indices_(std::make_unique<std::uint32_t[]>(capacity_ / 2)) {
  pool_.enlist(this);
}

BufferCache::~BufferCache() {
  flush();
  pool_.discharge(this);
}

}  // namespace rodeo::pools
