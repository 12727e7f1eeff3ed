// SPDX-License-Identifier: Apache-2.0
// Hot path, save for construction. Runs on: any, one at a time.
#include "apps/nfs/page_pool.h"

#include <bit>

namespace rodeo::nfs {

PagePool::PagePool(RegisteredBytes memory) : memory_(memory) {
  const auto count = static_cast<std::uint32_t>(memory.size() / kBlockBytes);
  blocks_.resize(count);
  units_.resize(std::size_t{count} * kSmallPerBlock);
  free_blocks_.reserve(count);
  // The lowest is on top, so that the pages of a file follow each other in memory as long as nothing was freed.
  for (std::uint32_t block = count; block-- != 0;) free_blocks_.push_back(block);
  free_units_ = units_.size();
}

Page PagePool::take(PageSize size) noexcept {
  const bool small = size == PageSize::kSmall;
  if (!small || with_free_pages_ == kNone) {
    if (free_blocks_.empty()) return kNoPage;
    const std::uint32_t block = free_blocks_.back();
    free_blocks_.pop_back();
    const Page first = block * kSmallPerBlock;
    if (!small) {
      units_[first] = {1, true};
      free_units_ -= kSmallPerBlock;
      return first;
    }
    blocks_[block].split = true;
    blocks_[block].free_pages = UINT16_MAX;
    link(block);
  }
  const std::uint32_t block = with_free_pages_;
  std::uint16_t& free_pages = blocks_[block].free_pages;
  const Page page = block * kSmallPerBlock + static_cast<Page>(std::countr_zero(free_pages));
  free_pages = static_cast<std::uint16_t>(free_pages & (free_pages - 1U));
  if (free_pages == 0) unlink(block);
  units_[page] = {1, true};
  --free_units_;
  return page;
}

void PagePool::free(Page page) noexcept {
  const std::uint32_t number = page / kSmallPerBlock;
  Block& block = blocks_[number];
  if (!block.split) {
    free_units_ += kSmallPerBlock;
    free_blocks_.push_back(number);
    return;
  }
  ++free_units_;
  if (block.free_pages == 0) link(number);
  block.free_pages = static_cast<std::uint16_t>(block.free_pages | (1U << (page % kSmallPerBlock)));
  if (block.free_pages != UINT16_MAX) return;
  unlink(number);
  block.split = false;
  free_blocks_.push_back(number);
}

void PagePool::link(std::uint32_t block) noexcept {
  blocks_[block].previous = kNone;
  blocks_[block].next = with_free_pages_;
  if (with_free_pages_ != kNone) blocks_[with_free_pages_].previous = block;
  with_free_pages_ = block;
}

void PagePool::unlink(std::uint32_t block) noexcept {
  const Block& gone = blocks_[block];
  (gone.previous == kNone ? with_free_pages_ : blocks_[gone.previous].next) = gone.next;
  if (gone.next != kNone) blocks_[gone.next].previous = gone.previous;
}

}  // namespace rodeo::nfs
