// SPDX-License-Identifier: Apache-2.0
#include "engine/memory.h"

#include <algorithm>
#include <mutex>
#include <vector>

namespace rodeo {

namespace {

constexpr std::size_t kSmallCache = 512;
constexpr std::size_t kBulkCache = 32;

thread_local CoreMemory* current_core = nullptr;

// Every engine's memory, for buffers that come back on a thread that is none of an engine's cores.
std::mutex all_memory_mutex;
std::vector<Memory*> all_memory;

constexpr std::size_t kZeroBytes = 4096;  // one page: what follows stays aligned

std::size_t round_up(std::size_t bytes) { return (bytes + 4095) / 4096 * 4096; }

}  // namespace

Result<std::unique_ptr<Memory>> Memory::create(const MemorySizes& sizes) {
  const std::size_t small = round_up(pools::BufferPool::footprint(sizes.small_bytes, sizes.small_count));
  const std::size_t bulk = round_up(pools::BufferPool::footprint(sizes.bulk_bytes, sizes.bulk_count));
  auto arena = pools::Arena::create({.bytes = small + bulk + kZeroBytes + round_up(sizes.application_bytes),
                                     .hugepages = sizes.hugepages,
                                     .numa_node = sizes.numa_node,
                                     .name = "rodeo"});
  if (!arena) return tl::unexpected(arena.error());
  const auto bytes = arena->bytes();
  auto small_pool =
      pools::BufferPool::create("small buffers", bytes.first(small), sizes.small_bytes, sizes.small_count);
  if (!small_pool) return tl::unexpected(small_pool.error());
  auto bulk_pool =
      pools::BufferPool::create("bulk buffers", bytes.subspan(small, bulk), sizes.bulk_bytes, sizes.bulk_count);
  if (!bulk_pool) return tl::unexpected(bulk_pool.error());
  const auto zeros = bytes.subspan(small + bulk, kZeroBytes);
  std::ranges::fill(zeros, std::byte{0});
  return std::unique_ptr<Memory>(new Memory(std::move(*arena), std::move(*small_pool), std::move(*bulk_pool), zeros,
                                            bytes.subspan(small + bulk + kZeroBytes, sizes.application_bytes)));
}

Memory::Memory(pools::Arena arena, std::unique_ptr<pools::BufferPool> small, std::unique_ptr<pools::BufferPool> bulk,
               RegisteredBytes zeros, RegisteredBytes application)
    : arena_(std::move(arena)),
      small_(std::move(small)),
      bulk_(std::move(bulk)),
      zeros_(zeros),
      application_(application) {
  const std::scoped_lock lock(all_memory_mutex);
  all_memory.push_back(this);
}

Memory::~Memory() {
  const std::scoped_lock lock(all_memory_mutex);
  std::erase(all_memory, this);
}

CoreMemory::CoreMemory(Memory& memory)
    : memory_(memory),
      small_(memory.small(), std::min(kSmallCache, memory.small().count())),
      bulk_(memory.bulk(), std::min(kBulkCache, memory.bulk().count())) {}

CoreMemory::~CoreMemory() {
  if (current_core == this) current_core = nullptr;
}

Buffer CoreMemory::make_buffer(std::size_t bytes) noexcept {
  if (bytes <= memory_.small().buffer_bytes()) {
    if (std::byte* buffer = small_.get(pools::Owner::kApplication)) return {buffer, memory_.small().buffer_bytes()};
  }
  if (bytes > memory_.bulk().buffer_bytes()) return {};
  std::byte* buffer = bulk_.get(pools::Owner::kApplication);
  return buffer == nullptr ? Buffer{} : Buffer{buffer, memory_.bulk().buffer_bytes()};
}

bool CoreMemory::take_back(std::byte* buffer) noexcept {
  if (memory_.small().contains(buffer)) {
    small_.put(buffer);
    return true;
  }
  if (memory_.bulk().contains(buffer)) {
    bulk_.put(buffer);
    return true;
  }
  return false;
}

CoreMemory* CoreMemory::enter(CoreMemory* memory) noexcept { return std::exchange(current_core, memory); }
CoreMemory* CoreMemory::current() noexcept { return current_core; }

void return_buffer(std::byte* data) noexcept {
  if (current_core != nullptr && current_core->take_back(data)) return;
  const std::scoped_lock lock(all_memory_mutex);
  for (Memory* memory : all_memory) {
    for (pools::BufferPool* pool : {&memory->small(), &memory->bulk()}) {
      if (!pool->contains(data)) continue;
      std::byte* const one[] = {data};
      pool->hand_back(one);
      return;
    }
  }
}

}  // namespace rodeo
