// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: one core writes a block, any thread reads it.
// A counter's owner declares an enum whose last enumerator is kCount, and beside it, found by argument-dependent
// lookup,
//   constexpr std::array<CounterInfo, N> counter_table(MyCounter) { return {{{"calls", "Calls decoded"}, …}}; }
// in the enum's order. A new enumerator without its row does not compile.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "pools/sanitizers.h"

namespace rodeo::pools {

struct CounterInfo {
  std::string_view name;
  std::string_view help;
};

template <std::size_t N>
[[nodiscard]] constexpr bool counter_table_is_complete(const std::array<CounterInfo, N>& table,
                                                       std::size_t counters) noexcept {
  if (N != counters) return false;
  for (std::size_t i = 0; i < N; ++i) {
    if (table[i].name.empty() || table[i].help.empty()) return false;
    for (std::size_t j = 0; j < i; ++j) {
      if (table[i].name == table[j].name) return false;
    }
  }
  return true;
}

template <class Enum>
class alignas(64) CounterBlock {
 public:
  static constexpr std::size_t kSize = static_cast<std::size_t>(Enum::kCount);
  static_assert(counter_table_is_complete(counter_table(Enum{}), kSize),
                "counter_table needs one row, with a name of its own and a help text, for each enumerator");

  [[nodiscard]] static constexpr CounterInfo info(Enum counter) noexcept {
    return counter_table(Enum{})[static_cast<std::size_t>(counter)];
  }

  /// Only the owning core may call this: one writer needs no locked instruction.
  [[gnu::always_inline]] void add(Enum counter, std::uint64_t n = 1) noexcept {
    std::uint64_t& value = values_[static_cast<std::size_t>(counter)];
    // A counter orders nothing else; readers only need to see whole words.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
    // What a relaxed load, an addition and a relaxed store are in one instruction; compilers make three.
    asm("addq %1, %0" : "+m"(value) : "er"(n));
#else
    // A builtin, since compilers make a call of atomic_ref where they think that code is rare.
    __atomic_store_n(&value, __atomic_load_n(&value, __ATOMIC_RELAXED) + n, __ATOMIC_RELAXED);
#endif
  }

  [[nodiscard]] std::uint64_t read(Enum counter) const noexcept { return load(static_cast<std::size_t>(counter)); }

  /// Calls f(info, value) for each counter in the enum's order.
  template <class F>
  void for_each(F&& f) const {
    constexpr auto kTable = counter_table(Enum{});
    for (std::size_t i = 0; i < kSize; ++i) f(kTable[i], load(i));
  }

 private:
  [[nodiscard]] std::uint64_t load(std::size_t index) const noexcept {
    // atomic_ref of a const object comes with C++26 only; a load does not write.
    auto& value = const_cast<std::uint64_t&>(values_[index]);
    return std::atomic_ref<std::uint64_t>(value).load(std::memory_order_relaxed);
  }

  std::array<std::uint64_t, kSize> values_{};
};

}  // namespace rodeo::pools
