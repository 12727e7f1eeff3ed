// SPDX-License-Identifier: Apache-2.0
// Runs on: any.
#include "apps/nfs/memory_store.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <random>
#include <string>

#include "apps/nfs/memory_store_core.h"
#include "apps/nfs/permissions.h"
#include "pools/byte_order.h"

namespace rodeo::nfs {
namespace {

constexpr std::uint32_t kHandleBytes = 16;  // instance and identity

bool before(const NfsTime3& a, const NfsTime3& b) noexcept {
  return a.seconds != b.seconds ? a.seconds < b.seconds : a.nseconds < b.nseconds;
}

}  // namespace

NfsTime3 nfs_time_now() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return {static_cast<std::uint32_t>(now.tv_sec), static_cast<std::uint32_t>(now.tv_nsec)};
}

Result<std::unique_ptr<Store>> make_memory_store(RegisteredBytes memory, const MemoryStoreOptions& options) {
  if (memory.size() < kLeastMemoryStoreBytes) {
    return fail("memory store",
                "it has " + std::to_string(memory.size()) + " bytes of memory and needs " +
                    std::to_string(kLeastMemoryStoreBytes),
                "give it more");
  }
  std::random_device random;
  const std::uint64_t instance = (std::uint64_t{random()} << 32U) | random();
  return std::make_unique<MemoryStore>(memory, options, instance);
}

MemoryStore::MemoryStore(RegisteredBytes memory, const MemoryStoreOptions& options, std::uint64_t instance)
    : pages_(memory), instance_(instance), max_files_(std::max(options.max_files, 1U)) {
  store_be64(verifier_.data(), instance);
  zeros_ = pages_.take(PageSize::kBlock);
  std::ranges::fill(pages_.bytes(zeros_), std::byte{0});
  root_ = make_inode(Ftype3::kDir);
  root_->parent = root_;
  root_->attributes.mode = options.mode & kModeAll;
  root_->attributes.uid = options.uid;
  root_->attributes.gid = options.gid;
}

MemoryStore::~MemoryStore() = default;

StoreTraits MemoryStore::traits() const noexcept {
  StoreTraits traits;
  traits.own_memory = true;
  traits.max_file_bytes = kMaxFileBytes;
  traits.link_max = kLinkMax;
  return traits;
}

FileHandle MemoryStore::root() const noexcept { return handle_of(*root_); }

MemoryInode* MemoryStore::find(HandleView handle, NfsStat3& status) const noexcept {
  if (handle.size() != kHandleBytes) {
    status = NfsStat3::kBadhandle;
    return nullptr;
  }
  MemoryInode* inode = load_be64(handle.data()) == instance_ ? find(load_be64(handle.data() + 8)) : nullptr;
  status = inode == nullptr ? NfsStat3::kStale : NfsStat3::kOk;
  return inode;
}

MemoryInode* MemoryStore::find(std::uint64_t identity) const noexcept {
  const std::uint64_t index = identity >> 32U;
  if (index >= inodes_.size()) return nullptr;
  MemoryInode* inode = inodes_[index].get();
  return inode != nullptr && inode->generation == static_cast<std::uint32_t>(identity) ? inode : nullptr;
}

MemoryInode* MemoryStore::find_directory(HandleView handle, NfsStat3& status) const noexcept {
  MemoryInode* inode = find(handle, status);
  if (inode == nullptr || inode->is_directory()) return inode;
  status = NfsStat3::kNotdir;
  return nullptr;
}

FileHandle MemoryStore::handle_of(const MemoryInode& inode) const noexcept {
  FileHandle handle;
  handle.size = kHandleBytes;
  store_be64(handle.octets.data(), instance_);
  store_be64(handle.octets.data() + 8, identity_of(inode));
  return handle;
}

void MemoryStore::note_access(MemoryInode& inode) noexcept {
  Fattr3& attributes = inode.attributes;
  if (!before(attributes.mtime, attributes.atime) && !before(attributes.ctime, attributes.atime)) {
    attributes.atime = nfs_time_now();
  }
}

MemoryInode* MemoryStore::make_inode(Ftype3 type) {
  std::uint32_t index = 0;
  if (!free_inodes_.empty()) {
    index = free_inodes_.back();
    free_inodes_.pop_back();
  } else {
    if (inodes_.size() == max_files_) return nullptr;
    index = static_cast<std::uint32_t>(inodes_.size());
    inodes_.emplace_back();
    generations_.push_back(0);
  }
  inodes_[index] = std::make_unique<MemoryInode>();
  MemoryInode& inode = *inodes_[index];
  inode.index = index;
  inode.generation = ++generations_[index];
  Fattr3& attributes = inode.attributes;
  attributes.type = type;
  attributes.nlink = type == Ftype3::kDir ? 2 : 1;
  attributes.fsid = instance_;
  // Not the same again for another object: clients remember.
  attributes.fileid = (std::uint64_t{inode.generation} << 32U) | (index + 1U);
  attributes.atime = attributes.mtime = attributes.ctime = nfs_time_now();
  if (type == Ftype3::kDir) {
    inode.directory = std::make_unique<DirectoryEntries>();
    attributes.size = PagePool::kSmallBytes;
  }
  return &inode;
}

void MemoryStore::unlink_inode(MemoryInode& inode) noexcept {
  if (inode.is_directory()) return destroy(inode);
  inode.attributes.ctime = nfs_time_now();
  if (--inode.attributes.nlink == 0) destroy(inode);
}

void MemoryStore::destroy(MemoryInode& inode) noexcept {
  inode.pages.cut(0, [this](Page page) { pages_.release(page); });
  const std::uint32_t index = inode.index;
  inodes_[index].reset();
  free_inodes_.push_back(index);
}

void MemoryStore::getattr(Getattr& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    if (const MemoryInode* inode = find(operation.object, status)) operation.attributes = inode->attributes;
  }
  operation.complete(status);
}

void MemoryStore::setattr(Setattr& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_setattr(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_setattr(Setattr& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* inode = find(operation.object, status);
  if (inode == nullptr) return status;
  Fattr3& attributes = inode->attributes;
  const Sattr3& wanted = operation.new_attributes;
  operation.wcc = {wcc_attr_of(attributes), attributes};
  if (operation.guard && *operation.guard != attributes.ctime) return NfsStat3::kNotSync;
  status = may_set(attributes, operation.credentials, wanted);
  if (status != NfsStat3::kOk) return status;
  const std::uint32_t mode = mode_after(attributes, operation.credentials, wanted);
  const NfsTime3 now = nfs_time_now();
  if (wanted.size) {
    if (!inode->is_file()) return inode->is_directory() ? NfsStat3::kIsdir : NfsStat3::kInval;
    status = resize(*inode, *wanted.size);
    if (status != NfsStat3::kOk) return status;
    attributes.mtime = now;
  }
  attributes.mode = mode;
  attributes.uid = wanted.uid.value_or(attributes.uid);
  attributes.gid = wanted.gid.value_or(attributes.gid);
  const auto set = [&](NfsTime3& time, const SetTime& to) {
    if (to.how != TimeHow::kDontChange) time = to.how == TimeHow::kSetToClientTime ? to.time : now;
  };
  set(attributes.atime, wanted.atime);
  set(attributes.mtime, wanted.mtime);
  attributes.ctime = now;
  operation.wcc.after = attributes;
  return NfsStat3::kOk;
}

void MemoryStore::fsstat(Fsstat& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    if (const MemoryInode* inode = find(operation.object, status)) operation.attributes = inode->attributes;
    operation.total_bytes = pages_.total_bytes();
    operation.free_bytes = operation.available_bytes = pages_.free_bytes();
    operation.total_files = max_files_;
    operation.free_files = operation.available_files = max_files_ - inodes_.size() + free_inodes_.size();
  }
  operation.complete(status);
}

void MemoryStore::readlink(Readlink& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    if (const MemoryInode* inode = find(operation.object, status)) {
      operation.attributes = inode->attributes;
      if (inode->attributes.type == Ftype3::kLnk) {
        operation.length = static_cast<std::uint32_t>(inode->target.size());
        std::memcpy(operation.buffer.data(), inode->target.data(), inode->target.size());
      } else {
        status = NfsStat3::kInval;
      }
    }
  }
  operation.complete(status);
}

}  // namespace rodeo::nfs
