// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a QP number to its connection. Runs on: poll core. Lookups are a probe or two in an open-addressed table that is
// never more than half full; inserting may grow it, and belongs to the slow path.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rodeo {

template <class T>
class QpnTable {
 public:
  QpnTable() : entries_(kFirstSize) {}

  [[nodiscard, gnu::always_inline]] T* find(std::uint32_t qpn) const noexcept {
    for (std::size_t i = qpn & mask();; i = (i + 1) & mask()) {
      if (entries_[i].value == nullptr) return nullptr;
      if (entries_[i].qpn == qpn) return entries_[i].value;
    }
  }

  void insert(std::uint32_t qpn, T* value) {
    if (2 * (count_ + 1) > entries_.size()) grow();
    place(qpn, value);
    ++count_;
  }

  /// Closes the gap, so that probes of others still meet no hole.
  void erase(std::uint32_t qpn) noexcept {
    std::size_t at = qpn & mask();
    while (entries_[at].value != nullptr && entries_[at].qpn != qpn) at = (at + 1) & mask();
    if (entries_[at].value == nullptr) return;
    --count_;
    for (std::size_t i = (at + 1) & mask(); entries_[i].value != nullptr; i = (i + 1) & mask()) {
      const std::size_t home = entries_[i].qpn & mask();
      // Only an entry whose home is not between the gap and itself may move into the gap.
      if (((i - home) & mask()) < ((i - at) & mask())) continue;
      entries_[at] = entries_[i];
      at = i;
    }
    entries_[at] = {};
  }

  [[nodiscard]] std::size_t size() const noexcept { return count_; }

 private:
  static constexpr std::size_t kFirstSize = 64;
  struct Entry {
    T* value = nullptr;
    std::uint32_t qpn = 0;
  };

  [[nodiscard]] std::size_t mask() const noexcept { return entries_.size() - 1; }
  void place(std::uint32_t qpn, T* value) noexcept {
    std::size_t i = qpn & mask();
    while (entries_[i].value != nullptr) i = (i + 1) & mask();
    entries_[i] = {value, qpn};
  }
  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    for (const Entry& entry : old) {
      if (entry.value != nullptr) place(entry.qpn, entry.value);
    }
  }

  std::vector<Entry> entries_;
  std::size_t count_ = 0;
};

}  // namespace rodeo
