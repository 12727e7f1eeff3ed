// SPDX-License-Identifier: Apache-2.0
#pragma once

// The objects of a memory store: where a file's pages are, what a directory holds.
// Hot path. Runs on: any, one at a time (the store's lock).

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "apps/nfs/nfs3.h"
#include "apps/nfs/page_pool.h"

namespace rodeo::nfs {

struct MemoryInode;

/// A stretch of a file within one page.
struct Stretch {
  std::uint64_t page_start = 0;  // offset in the file
  PageSize page_size = PageSize::kSmall;
  std::size_t page_bytes = 0;
  std::size_t begin = 0;  // in the page
  std::size_t length = 0;
};

/// The pages of a file: small ones up to 64 KiB, blocks from there on. What is not there reads as zeros.
class FilePages {
 public:
  static constexpr std::uint64_t kSmallEnd = PagePool::kBlockBytes;

  FilePages() noexcept { small_.fill(kNoPage); }

  /// The page that holds offset `at`, and as much of [at, at + length) as it holds.
  [[nodiscard]] static Stretch stretch(std::uint64_t at, std::uint64_t length) noexcept {
    const bool small = at < kSmallEnd;
    const std::size_t page_bytes = small ? PagePool::kSmallBytes : PagePool::kBlockBytes;
    const auto begin = static_cast<std::size_t>(at % page_bytes);
    return {at - begin, small ? PageSize::kSmall : PageSize::kBlock, page_bytes, begin,
            static_cast<std::size_t>(std::min<std::uint64_t>(length, page_bytes - begin))};
  }

  [[nodiscard]] Page at(std::uint64_t page_start) const noexcept {
    if (page_start < kSmallEnd) return small_[page_start / PagePool::kSmallBytes];
    const auto found = leaves_.find(page_start / kLeafBytes);
    return found == leaves_.end() ? kNoPage : found->second->pages[page_start % kLeafBytes / PagePool::kBlockBytes];
  }
  void set(std::uint64_t page_start, Page page);

  /// Takes the pages that begin at or after `from` out, and calls each(page) for them.
  template <class F>
  void cut(std::uint64_t from, F&& each) {
    for (std::uint64_t start = from; start < kSmallEnd; start += PagePool::kSmallBytes) {
      Page& page = small_[start / PagePool::kSmallBytes];
      if (page != kNoPage) each(std::exchange(page, kNoPage));
    }
    const std::uint64_t first = std::max(from, kSmallEnd);
    for (auto leaf = leaves_.lower_bound(first / kLeafBytes); leaf != leaves_.end();) {
      const std::uint64_t leaf_start = leaf->first * kLeafBytes;
      for (std::size_t i = 0; i < kLeafPages; ++i) {
        Page& page = leaf->second->pages[i];
        if (page == kNoPage || leaf_start + i * PagePool::kBlockBytes < first) continue;
        each(std::exchange(page, kNoPage));
        --leaf->second->used;
      }
      leaf = leaf->second->used == 0 ? leaves_.erase(leaf) : std::next(leaf);
    }
  }

 private:
  static constexpr std::size_t kLeafPages = 256;
  static constexpr std::uint64_t kLeafBytes = kLeafPages * PagePool::kBlockBytes;
  struct Leaf {
    std::array<Page, kLeafPages> pages;
    std::size_t used = 0;
    Leaf() noexcept { pages.fill(kNoPage); }
  };

  std::array<Page, kSmallEnd / PagePool::kSmallBytes> small_;
  std::map<std::uint64_t, std::unique_ptr<Leaf>> leaves_;  // those that hold a page
};

/// Entries by name, and in the order in which they were made. That order is their cookie, for good.
class DirectoryEntries {
 public:
  static constexpr std::uint64_t kCookieOfSelf = 1;
  static constexpr std::uint64_t kCookieOfParent = 2;
  struct Entry {
    std::string name;
    MemoryInode* inode;
  };
  using InOrder = std::map<std::uint64_t, Entry>;

  [[nodiscard]] MemoryInode* find(std::string_view name) const noexcept {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : found->second->second.inode;
  }
  void add(std::string_view name, MemoryInode* inode);
  /// Precondition: it is there.
  void remove(std::string_view name);

  [[nodiscard]] bool empty() const noexcept { return in_order_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return in_order_.size(); }
  /// From the first entry behind `cookie` on.
  [[nodiscard]] InOrder::const_iterator after(std::uint64_t cookie) const { return in_order_.upper_bound(cookie); }
  [[nodiscard]] InOrder::const_iterator end() const noexcept { return in_order_.end(); }

 private:
  InOrder in_order_;
  std::unordered_map<std::string_view, InOrder::iterator> by_name_;  // the names are those of the entries
  std::uint64_t next_cookie_ = kCookieOfParent + 1;
};

struct MemoryInode {
  Fattr3 attributes;
  std::uint32_t index = 0;
  std::uint32_t generation = 0;
  FilePages pages;                              // kReg
  std::optional<Verf3> verifier;                // kReg made by an exclusive CREATE
  std::unique_ptr<DirectoryEntries> directory;  // kDir
  MemoryInode* parent = nullptr;                // kDir; the root's is itself
  std::string target;                           // kLnk

  [[nodiscard]] bool is_directory() const noexcept { return attributes.type == Ftype3::kDir; }
  [[nodiscard]] bool is_file() const noexcept { return attributes.type == Ftype3::kReg; }
};

}  // namespace rodeo::nfs
