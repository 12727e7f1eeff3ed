// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path (all but create). Typed burst rings over rte_ring; the type's name says who may push and who may pop.
//
// Spsc: one pushing and one popping thread.  Mpsc: any may push, one pops.  Mpmc: any may push and pop.
//
// The "any" sides use rte_ring's relaxed tail (RTS). In the classic mode a pusher that is preempted between taking its
// slots and publishing them makes every later pusher spin until it runs again: a whole time slice where cores are
// shared. The serialised mode (HTS) stalls them even earlier. With RTS the later ones return at once, and whoever
// finishes last publishes for all; what such a preemption costs is that those items appear late. The distance that RTS
// allows between head and tail is set to the whole ring, so that its own limiter never makes anyone wait either.
//
// The memory is ours and the EAL need not run: rings serve tests, tools and embedders alike.
// Who waits for nobody: push and pop return how many they took, which is fewer when the ring is full or empty.

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <type_traits>

#include "pools/result.h"
#include "pools/sanitizers.h"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace rodeo::pools {

enum class RingSide : bool { kOne, kAny };

template <class T, RingSide Producers, RingSide Consumers>
class Ring {
  static_assert(std::is_trivially_copyable_v<T>);
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "the sizes that rte_ring copies by whole words");

 public:
  static constexpr std::size_t kMaxCapacity = std::size_t{1} << 30;

  /// A ring that holds exactly `capacity` items. Its memory is touched here, so that no push faults.
  static Result<std::unique_ptr<Ring>> create(std::size_t capacity) {
    if (capacity == 0 || capacity > kMaxCapacity) {
      return fail("ring", "a capacity of " + std::to_string(capacity) + " items is out of range",
                  "choose from 1 to " + std::to_string(kMaxCapacity));
    }
    const auto slots = static_cast<unsigned>(std::bit_ceil(capacity + 1));
    const auto bytes = static_cast<std::size_t>(rte_ring_get_memsize_elem(sizeof(T), slots));
    Memory memory(static_cast<rte_ring*>(::operator new(bytes, kAlignment, std::nothrow)));
    if (memory == nullptr) {
      return fail("ring", std::to_string(bytes) + " bytes of memory are not to be had", "choose a smaller ring");
    }
    std::memset(static_cast<void*>(memory.get()), 0, bytes);
    constexpr unsigned kFlags = (Producers == RingSide::kOne ? RING_F_SP_ENQ : RING_F_MP_RTS_ENQ) |
                                (Consumers == RingSide::kOne ? RING_F_SC_DEQ : RING_F_MC_RTS_DEQ) | RING_F_EXACT_SZ;
    if (rte_ring_init(memory.get(), "rodeo", static_cast<unsigned>(capacity), kFlags) != 0) {
      return fail("ring", "rte_ring refused " + std::to_string(capacity) + " items", "choose another capacity");
    }
    if constexpr (Producers == RingSide::kAny) rte_ring_set_prod_htd_max(memory.get(), slots);
    if constexpr (Consumers == RingSide::kAny) rte_ring_set_cons_htd_max(memory.get(), slots);
    return std::unique_ptr<Ring>(new Ring(std::move(memory)));
  }

  // ThreadSanitizer cannot follow rte_ring: RTS writes a tail as one word of 64 bits and reads it as half of one. It
  // does not look into push and pop, and is told instead what they promise: a pop sees what came before the push.

  /// Copies in the leading items that fit, in order, and returns how many.
  [[gnu::no_sanitize_thread]] std::size_t push(std::span<const T> items) noexcept {
    tell_checker_released();
    const T* words = as_words(items.data());
    const auto n = static_cast<unsigned>(items.size());
    if constexpr (Producers == RingSide::kOne) {
      return rte_ring_sp_enqueue_burst_elem(ring_.get(), words, sizeof(T), n, nullptr);
    } else {
      return rte_ring_mp_rts_enqueue_burst_elem(ring_.get(), words, sizeof(T), n, nullptr);
    }
  }

  /// Copies out the oldest items, at most as many as there is room for, and returns how many.
  [[gnu::no_sanitize_thread]] std::size_t pop(std::span<T> items) noexcept {
    T* words = as_words(items.data());
    const auto room = static_cast<unsigned>(items.size());
    unsigned n = 0;
    if constexpr (Consumers == RingSide::kOne) {
      n = rte_ring_sc_dequeue_burst_elem(ring_.get(), words, sizeof(T), room, nullptr);
    } else {
      n = rte_ring_mc_rts_dequeue_burst_elem(ring_.get(), words, sizeof(T), room, nullptr);
    }
    (void)as_words(words);
    tell_checker_acquired();
    return n;
  }

  [[nodiscard]] bool push(T item) noexcept { return push(std::span<const T>(&item, 1)) == 1; }
  [[nodiscard]] bool pop(T& item) noexcept { return pop(std::span<T>(&item, 1)) == 1; }

  /// A snapshot when others push or pop meanwhile; never more than the capacity.
  [[nodiscard]] [[gnu::no_sanitize_thread]] std::size_t count() const noexcept {
    // relaxed: it only counts; pop orders what it returns by itself.
    const unsigned taken = __atomic_load_n(&ring_->cons.tail, __ATOMIC_RELAXED);
    const unsigned filled = __atomic_load_n(&ring_->prod.tail, __ATOMIC_RELAXED);
    return std::min<std::size_t>((filled - taken) & ring_->mask, ring_->capacity);
  }
  [[nodiscard]] bool empty() const noexcept { return count() == 0; }
  [[nodiscard]] std::size_t capacity() const noexcept { return rte_ring_get_capacity(ring_.get()); }

 private:
  /// Two lines: producer and consumer fields are laid out line by line, and prefetchers fetch pairs.
  static constexpr std::align_val_t kAlignment{128};
  struct Free {
    void operator()(rte_ring* memory) const noexcept { ::operator delete(memory, kAlignment); }
  };
  using Memory = std::unique_ptr<rte_ring, Free>;

  explicit Ring(Memory memory) noexcept : ring_(std::move(memory)) {}

  /// rte_ring copies items as integers, by fours where there are as many. This hides from the compiler what the address
  /// points to, so that it neither moves accesses to the T's across that copy on the ground that the types differ nor
  /// warns of fours in a single item. It emits nothing.
  template <class Item>
  [[nodiscard]] static Item* as_words(Item* items) noexcept {
    asm volatile("" : "+r"(items) : : "memory");
    return items;
  }

  void tell_checker_released() noexcept {
#ifdef __SANITIZE_THREAD__
    __tsan_release(ring_.get());
#endif
  }
  void tell_checker_acquired() noexcept {
#ifdef __SANITIZE_THREAD__
    __tsan_acquire(ring_.get());
#endif
  }

  Memory ring_;
};

template <class T>
using SpscRing = Ring<T, RingSide::kOne, RingSide::kOne>;
template <class T>
using MpscRing = Ring<T, RingSide::kAny, RingSide::kOne>;
template <class T>
using MpmcRing = Ring<T, RingSide::kAny, RingSide::kAny>;

}  // namespace rodeo::pools
