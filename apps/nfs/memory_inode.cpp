// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any, one at a time.
#include "apps/nfs/memory_inode.h"

namespace rodeo::nfs {

void FilePages::set(std::uint64_t page_start, Page page) {
  if (page_start < kSmallEnd) {
    small_[page_start / PagePool::kSmallBytes] = page;
    return;
  }
  std::unique_ptr<Leaf>& leaf = leaves_[page_start / kLeafBytes];
  if (leaf == nullptr) leaf = std::make_unique<Leaf>();
  Page& slot = leaf->pages[page_start % kLeafBytes / PagePool::kBlockBytes];
  if (slot == kNoPage) ++leaf->used;
  slot = page;
}

void DirectoryEntries::add(std::string_view name, MemoryInode* inode) {
  const auto added = in_order_.emplace(next_cookie_++, Entry{std::string(name), inode}).first;
  by_name_.emplace(added->second.name, added);
}

void DirectoryEntries::remove(std::string_view name) {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return;
  const auto entry = found->second;
  by_name_.erase(found);
  in_order_.erase(entry);
}

}  // namespace rodeo::nfs
