// SPDX-License-Identifier: Apache-2.0
#pragma once

// The engine's registered memory: one arena, carved into small buffers (one message each), bulk buffers (chunks, Long
// Calls, Long Replies) and the application's own region; and one core's share of it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "dv/device.h"
#include "engine/buffer.h"
#include "pools/arena.h"
#include "pools/buffer_pool.h"
#include "pools/result.h"

namespace rodeo {

struct MemorySizes {
  std::size_t small_bytes = 4096;
  std::size_t small_count = 0;
  std::size_t bulk_bytes = 0;
  std::size_t bulk_count = 0;
  std::size_t application_bytes = 0;
  bool hugepages = true;
  int numa_node = -1;
};

class Memory {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Memory>> create(const MemorySizes& sizes);
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  [[nodiscard]] pools::Arena& arena() noexcept { return arena_; }
  [[nodiscard]] pools::BufferPool& small() noexcept { return *small_; }
  [[nodiscard]] pools::BufferPool& bulk() noexcept { return *bulk_; }
  [[nodiscard]] RegisteredBytes application() const noexcept { return application_; }
  /// Zero octets, for the XDR pads of Read chunks.
  [[nodiscard]] RegisteredBytes zeros() const noexcept { return zeros_; }
  /// Whether all of `bytes` is registered.
  [[nodiscard]] bool contains(std::span<const std::byte> bytes) const noexcept {
    const auto all = arena_.bytes();
    const auto offset = reinterpret_cast<std::uintptr_t>(bytes.data()) - reinterpret_cast<std::uintptr_t>(all.data());
    return offset <= all.size() && bytes.size() <= all.size() - offset;
  }

 private:
  Memory(pools::Arena arena, std::unique_ptr<pools::BufferPool> small, std::unique_ptr<pools::BufferPool> bulk,
         RegisteredBytes zeros, RegisteredBytes application);

  pools::Arena arena_;
  std::unique_ptr<pools::BufferPool> small_;
  std::unique_ptr<pools::BufferPool> bulk_;
  RegisteredBytes zeros_;
  RegisteredBytes application_;
};

/// One core's caches over the pools. Runs on: that core.
class CoreMemory {
 public:
  explicit CoreMemory(Memory& memory);
  ~CoreMemory();
  CoreMemory(const CoreMemory&) = delete;
  CoreMemory& operator=(const CoreMemory&) = delete;

  [[nodiscard]] Memory& memory() noexcept { return memory_; }
  [[nodiscard]] std::byte* get_small(pools::Owner owner) noexcept { return small_.get(owner); }
  [[nodiscard]] std::byte* get_bulk(pools::Owner owner) noexcept { return bulk_.get(owner); }
  void put_small(std::byte* buffer) noexcept { small_.put(buffer); }
  void put_bulk(std::byte* buffer) noexcept { bulk_.put(buffer); }
  /// A small buffer when `bytes` fits one, else a bulk buffer; empty when there is none.
  [[nodiscard]] Buffer make_buffer(std::size_t bytes) noexcept;
  /// False when the buffer is of other memory.
  [[nodiscard]] bool take_back(std::byte* buffer) noexcept;
  void flush() noexcept {
    small_.flush();
    bulk_.flush();
  }

  /// Names the memory that return_buffer() uses on this thread; returns the one before.
  static CoreMemory* enter(CoreMemory* memory) noexcept;
  [[nodiscard]] static CoreMemory* current() noexcept;

 private:
  Memory& memory_;
  pools::BufferCache small_;
  pools::BufferCache bulk_;
};

/// CoreMemory::enter for a scope.
class OnCore {
 public:
  explicit OnCore(CoreMemory& memory) noexcept : before_(CoreMemory::enter(&memory)) {}
  ~OnCore() { CoreMemory::enter(before_); }
  OnCore(const OnCore&) = delete;
  OnCore& operator=(const OnCore&) = delete;

 private:
  CoreMemory* before_;
};

}  // namespace rodeo
