// SPDX-License-Identifier: Apache-2.0
#pragma once

// One contiguous mapping over one shareable memfd: what a device registers once and pools are carved from.
// Runs on: control thread; the memory itself is anyone's.

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "pools/result.h"

namespace rodeo::pools {

struct ArenaOptions {
  std::size_t bytes = 0;
  bool hugepages = true;
  int numa_node = -1;  ///< -1: wherever the kernel likes
  std::string name = "rodeo";
};

/// All pages are populated before create() returns, and the file cannot change its size afterwards (it is sealed), so
/// neither we nor a peer that maps it ever takes a SIGBUS. Without enough hugepages, ordinary pages serve and warning()
/// says what to do about it. The file has no name in any file system: it is gone with the last process that maps it.
class Arena {
 public:
  static Result<Arena> create(const ArenaOptions& options);

  Arena(Arena&& other) noexcept { swap(other); }
  Arena& operator=(Arena&& other) noexcept {
    Arena taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Arena();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }
  /// At least what was asked for, in whole pages.
  [[nodiscard]] std::size_t size() const noexcept { return bytes_.size(); }
  /// Stays ours; duplicate it to keep it.
  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] std::size_t page_bytes() const noexcept { return page_bytes_; }
  [[nodiscard]] bool hugepages() const noexcept { return hugepages_; }
  /// Why this arena is slower than it could be, with the command that mends it.
  [[nodiscard]] const std::optional<std::string>& warning() const noexcept { return warning_; }

 private:
  Arena() = default;
  void swap(Arena& other) noexcept;
  static Result<Arena> create_with_pages(const ArenaOptions& options, bool hugepages);

  std::span<std::byte> bytes_;
  int fd_ = -1;
  std::size_t page_bytes_ = 0;
  bool hugepages_ = false;
  std::optional<std::string> warning_;
};

}  // namespace rodeo::pools
