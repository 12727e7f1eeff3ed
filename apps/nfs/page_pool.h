// SPDX-License-Identifier: Apache-2.0
#pragma once

// The registered memory of a memory store, in pages of two sizes: small ones of 4 KiB, for the beginnings of files, and
// blocks of 64 KiB. A block that is not in use may be split into small pages, and is whole again when all are free.
//
// Pages are counted references: one by the file that a page belongs to, one by each READ or WRITE under way that RDMA
// may still touch it for. A page that leaves its file meanwhile is free when the last of those is over.
// Hot path. Runs on: any, one at a time (the store's lock).

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/buffer.h"

namespace rodeo::nfs {

/// Names a page by its first 4 KiB within the pool.
using Page = std::uint32_t;
inline constexpr Page kNoPage = UINT32_MAX;

enum class PageSize : std::uint8_t { kSmall, kBlock };

class PagePool {
 public:
  static constexpr std::size_t kSmallBytes = 4096;
  static constexpr std::size_t kBlockBytes = 65536;
  static constexpr std::uint32_t kSmallPerBlock = kBlockBytes / kSmallBytes;

  /// Over the whole blocks of `memory`.
  explicit PagePool(RegisteredBytes memory);
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;

  /// A page with one reference, whose content is whatever it was; kNoPage when there is none. Fresh until it is told
  /// otherwise.
  [[nodiscard]] Page take(PageSize size) noexcept;
  void hold(Page page) noexcept { ++units_[page].references; }
  void release(Page page) noexcept {
    if (--units_[page].references == 0) free(page);
  }
  /// Whether nobody else has a reference.
  [[nodiscard]] bool sole(Page page) const noexcept { return units_[page].references == 1; }

  /// A fresh page has never belonged to a file.
  [[nodiscard]] bool fresh(Page page) const noexcept { return units_[page].fresh; }
  void set_used(Page page) noexcept { units_[page].fresh = false; }

  [[nodiscard]] RegisteredBytes bytes(Page page) const noexcept {
    return memory_.subspan(page * kSmallBytes, bytes_of(page));
  }
  /// The page that a byte of the pool lies in.
  [[nodiscard]] Page page_at(const std::byte* byte) const noexcept {
    const auto unit = static_cast<Page>(static_cast<std::size_t>(byte - memory_.data()) / kSmallBytes);
    return blocks_[unit / kSmallPerBlock].split ? unit : unit - unit % kSmallPerBlock;
  }

  [[nodiscard]] std::size_t total_bytes() const noexcept { return blocks_.size() * kBlockBytes; }
  [[nodiscard]] std::size_t free_bytes() const noexcept { return free_units_ * kSmallBytes; }

 private:
  static constexpr std::uint32_t kNone = UINT32_MAX;
  struct Unit {
    std::uint32_t references = 0;
    bool fresh = false;
  };
  struct Block {
    std::uint32_t previous = kNone;  // among the split blocks that have free pages
    std::uint32_t next = kNone;
    std::uint16_t free_pages = 0;  // of a split block, one bit each
    bool split = false;
  };

  [[nodiscard]] std::size_t bytes_of(Page page) const noexcept {
    return blocks_[page / kSmallPerBlock].split ? kSmallBytes : kBlockBytes;
  }
  void free(Page page) noexcept;
  void link(std::uint32_t block) noexcept;
  void unlink(std::uint32_t block) noexcept;

  RegisteredBytes memory_;
  std::vector<Unit> units_;
  std::vector<Block> blocks_;
  std::vector<std::uint32_t> free_blocks_;  // a stack, with room for all
  std::uint32_t with_free_pages_ = kNone;   // the first such block
  std::size_t free_units_ = 0;
};

}  // namespace rodeo::nfs
