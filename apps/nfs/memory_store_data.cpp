// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
// Contents of files. What moves them is RDMA; here it is settled from where and to where.

#include <algorithm>
#include <cstring>

#include "apps/nfs/memory_store_core.h"
#include "apps/nfs/permissions.h"

namespace rodeo::nfs {
namespace {

// Of Write::store_words.
constexpr std::size_t kWordIdentity = 0;   // the file's
constexpr std::size_t kWordCommitted = 1;  // whether the data belongs to it now

/// Calls each(stretch) for the pages that [offset, offset + length) touches, in order, while it returns true. Whether
/// it did to the end.
template <class F>
bool for_each_page(std::uint64_t offset, std::uint64_t length, F&& each) noexcept {
  while (length != 0) {
    const Stretch stretch = FilePages::stretch(offset, length);
    if (!each(stretch)) return false;
    offset += stretch.length;
    length -= stretch.length;
  }
  return true;
}

/// Calls each(page) for the pages that a READ's or WRITE's pieces lie in.
template <class F>
void for_each_held(const PagePool& pages, const Pieces& pieces, F&& each) noexcept {
  for (const RegisteredBytes& piece : pieces.all()) {
    const std::byte* const end = piece.data() + piece.size();
    for (const std::byte* at = piece.data(); at != end;) {
      const Page page = pages.page_at(at);
      const RegisteredBytes bytes = pages.bytes(page);
      const std::byte* const page_end = std::min<const std::byte*>(bytes.data() + bytes.size(), end);
      each(page, RegisteredBytes{const_cast<std::byte*>(at), static_cast<std::size_t>(page_end - at)});
      at = page_end;
    }
  }
}

void clear(RegisteredBytes bytes) noexcept {
  if (!bytes.empty()) std::memset(bytes.data(), 0, bytes.size());
}

NfsStat3 not_a_file(const MemoryInode& inode) noexcept {
  return inode.is_directory() ? NfsStat3::kIsdir : NfsStat3::kInval;
}

}  // namespace

void MemoryStore::read(Read& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_read(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_read(Read& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* inode = find(operation.object, status);
  if (inode == nullptr) return status;
  const Fattr3& attributes = inode->attributes;
  operation.attributes = attributes;
  if (!inode->is_file()) return not_a_file(*inode);
  if (!may_read(attributes, operation.credentials)) return NfsStat3::kAcces;
  note_access(*inode);
  if (operation.offset >= attributes.size) {
    operation.eof = true;
    return NfsStat3::kOk;
  }
  const std::uint64_t length = std::min<std::uint64_t>(operation.count, attributes.size - operation.offset);
  // Short, when there are too many pieces: the client asks for the rest.
  (void)for_each_page(operation.offset, length, [&](const Stretch& stretch) {
    const Page there = inode->pages.at(stretch.page_start);
    const Page page = there == kNoPage ? zeros_ : there;
    if (!operation.data.add(pages_.bytes(page).subspan(stretch.begin, stretch.length))) return false;
    pages_.hold(page);
    return true;
  });
  operation.eof = operation.offset + operation.data.bytes() == attributes.size;
  return NfsStat3::kOk;
}

void MemoryStore::end(Read& operation) noexcept {
  const Lock lock(lock_);
  for_each_held(pages_, operation.data, [&](Page page, RegisteredBytes) { pages_.release(page); });
}

void MemoryStore::prepare_write(Write& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_prepare_write(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_prepare_write(Write& operation) noexcept {
  NfsStat3 status{};
  const MemoryInode* inode = find(operation.object, status);
  if (inode == nullptr) return status;
  const Fattr3& attributes = inode->attributes;
  operation.wcc = {wcc_attr_of(attributes), attributes};
  if (!inode->is_file()) return not_a_file(*inode);
  if (!may_write(attributes, operation.credentials)) return NfsStat3::kAcces;
  operation.store_words[kWordIdentity] = identity_of(*inode);
  if (operation.offset > kMaxFileBytes || operation.count > kMaxFileBytes - operation.offset) return NfsStat3::kFbig;
  const bool all = for_each_page(operation.offset, operation.count, [&](const Stretch& stretch) {
    Page page = inode->pages.at(stretch.page_start);
    const bool missing = page == kNoPage;
    if (missing) page = pages_.take(stretch.page_size);
    if (page == kNoPage) {
      status = NfsStat3::kNospc;
      return false;
    }
    const RegisteredBytes bytes = pages_.bytes(page);
    if (missing) {
      clear(bytes.first(stretch.begin));
      clear(bytes.subspan(stretch.begin + stretch.length));
    } else {
      pages_.hold(page);
    }
    if (operation.data.add(bytes.subspan(stretch.begin, stretch.length))) return true;
    pages_.release(page);
    return false;  // short: the client writes the rest
  });
  if (all) return NfsStat3::kOk;
  // Some is written of what may be, as long as there is any.
  if (operation.data.bytes() == 0) return status == NfsStat3::kOk ? NfsStat3::kServerfault : status;
  operation.count = static_cast<std::uint32_t>(operation.data.bytes());
  return NfsStat3::kOk;
}

void MemoryStore::write(Write& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_write(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_write(Write& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* inode = find(operation.object, status);
  operation.wcc = {};
  if (inode == nullptr) return status;
  Fattr3& attributes = inode->attributes;
  operation.wcc = {wcc_attr_of(attributes), attributes};
  operation.verifier = verifier_;
  operation.committed = StableHow::kFileSync;
  std::uint64_t at = operation.offset;
  for_each_held(pages_, operation.data, [&](Page page, RegisteredBytes data) {
    if (status == NfsStat3::kOk) status = settle(*inode, FilePages::stretch(at, data.size()), page, data.data());
    if (status == NfsStat3::kOk) at += data.size();
  });
  operation.written = static_cast<std::uint32_t>(at - operation.offset);
  if (operation.written == 0 && status != NfsStat3::kOk) return status;
  operation.store_words[kWordCommitted] = 1;
  if (operation.written != 0) {
    attributes.size = std::max(attributes.size, at);
    attributes.mode = mode_after_write(attributes, operation.credentials);
    attributes.mtime = attributes.ctime = nfs_time_now();
  }
  operation.wcc.after = attributes;
  return NfsStat3::kOk;
}

NfsStat3 MemoryStore::settle(MemoryInode& file, const Stretch& stretch, Page from, const std::byte* data) noexcept {
  Page there = file.pages.at(stretch.page_start);
  if (there == from) return NfsStat3::kOk;
  if (there == kNoPage) {
    if (pages_.fresh(from)) {
      pages_.hold(from);
      attach(file, stretch.page_start, from);
      return NfsStat3::kOk;
    }
    // The file shrank meanwhile, and its old page still holds what was cut off.
    there = pages_.take(stretch.page_size);
    if (there == kNoPage) return NfsStat3::kNospc;
    clear(pages_.bytes(there));
    attach(file, stretch.page_start, there);
  }
  std::memcpy(pages_.bytes(there).data() + stretch.begin, data, stretch.length);
  return NfsStat3::kOk;
}

void MemoryStore::end(Write& operation) noexcept {
  const Lock lock(lock_);
  const MemoryInode* inode = find(operation.store_words[kWordIdentity]);
  const bool lost = operation.store_words[kWordCommitted] == 0;
  std::uint64_t at = operation.offset;
  for_each_held(pages_, operation.data, [&](Page page, RegisteredBytes data) {
    pages_.release(page);
    // A WRITE whose Call was lost leaves nothing beyond the end of the file.
    if (lost && inode != nullptr && inode->pages.at(FilePages::stretch(at, 1).page_start) == page &&
        pages_.sole(page) && at + data.size() > inode->attributes.size) {
      clear(data.subspan(at >= inode->attributes.size ? 0 : static_cast<std::size_t>(inode->attributes.size - at)));
    }
    at += data.size();
  });
}

void MemoryStore::attach(MemoryInode& file, std::uint64_t page_start, Page page) {
  pages_.set_used(page);
  file.attributes.used += pages_.bytes(page).size();
  file.pages.set(page_start, page);
}

NfsStat3 MemoryStore::resize(MemoryInode& file, std::uint64_t size) noexcept {
  if (size > kMaxFileBytes) return NfsStat3::kFbig;
  Fattr3& attributes = file.attributes;
  if (size < attributes.size) {
    const Stretch last = FilePages::stretch(size, UINT64_MAX);
    std::uint64_t cut_from = size;
    if (const Page page = file.pages.at(last.page_start); last.begin != 0) {
      cut_from = last.page_start + last.page_bytes;
      if (page != kNoPage && pages_.sole(page)) {
        clear(pages_.bytes(page).subspan(last.begin));
      } else if (page != kNoPage) {
        const Page copy = pages_.take(last.page_size);
        if (copy == kNoPage) return NfsStat3::kJukebox;
        const RegisteredBytes bytes = pages_.bytes(copy);
        std::memcpy(bytes.data(), pages_.bytes(page).data(), last.begin);
        clear(bytes.subspan(last.begin));
        pages_.set_used(copy);
        file.pages.set(last.page_start, copy);
        pages_.release(page);
      }
    }
    file.pages.cut(cut_from, [&](Page page) {
      attributes.used -= pages_.bytes(page).size();
      pages_.release(page);
    });
  }
  attributes.size = size;
  return NfsStat3::kOk;
}

void MemoryStore::commit(Commit& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    if (const MemoryInode* inode = find(operation.object, status)) {
      operation.wcc = {wcc_attr_of(inode->attributes), inode->attributes};
      operation.verifier = verifier_;
      if (!inode->is_file()) status = not_a_file(*inode);
    }
  }
  operation.complete(status);
}

}  // namespace rodeo::nfs
