// SPDX-License-Identifier: Apache-2.0
// Runs on: any.
// Names: finding, making, moving and removing them.

#include <algorithm>

#include "apps/nfs/memory_store_core.h"
#include "apps/nfs/permissions.h"

namespace rodeo::nfs {
namespace {

/// Whether `inode` is `directory` or somewhere beneath it.
bool is_within(const MemoryInode& directory, const MemoryInode& inode) noexcept {
  for (const MemoryInode* at = &inode;; at = at->parent) {
    if (at == &directory) return true;
    if (at->parent == at) return false;
  }
}

/// What an operation on a directory tells of it, from now until the operation is over.
class Wcc {
 public:
  Wcc(WccData& data, const MemoryInode& directory) noexcept : data_(data), directory_(directory) {
    data_.before = wcc_attr_of(directory.attributes);
  }
  Wcc(const Wcc&) = delete;
  Wcc& operator=(const Wcc&) = delete;
  ~Wcc() { data_.after = directory_.attributes; }

 private:
  WccData& data_;
  const MemoryInode& directory_;
};

}  // namespace

void MemoryStore::put_into(MemoryInode& directory, std::string_view name, MemoryInode& inode) {
  directory.directory->add(name, &inode);
  directory.attributes.mtime = directory.attributes.ctime = nfs_time_now();
  if (!inode.is_directory()) return;
  inode.parent = &directory;
  ++directory.attributes.nlink;
}

void MemoryStore::take_from(MemoryInode& directory, std::string_view name, const MemoryInode& inode) noexcept {
  if (inode.is_directory()) --directory.attributes.nlink;
  directory.directory->remove(name);
  directory.attributes.mtime = directory.attributes.ctime = nfs_time_now();
}

void MemoryStore::lookup(Lookup& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_lookup(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_lookup(Lookup& operation) noexcept {
  NfsStat3 status{};
  const MemoryInode* directory = find_directory(operation.directory, status);
  if (directory == nullptr) return status;
  operation.directory_attributes = directory->attributes;
  if (!may_search(directory->attributes, operation.credentials)) return NfsStat3::kAcces;
  const MemoryInode* found = nullptr;
  if (operation.name == ".") {
    found = directory;
  } else if (operation.name == "..") {
    found = directory->parent;
  } else {
    found = directory->directory->find(operation.name);
  }
  if (found == nullptr) return NfsStat3::kNoent;
  operation.object = handle_of(*found);
  operation.attributes = found->attributes;
  return NfsStat3::kOk;
}

void MemoryStore::create(Create& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_create(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::check_create(const MemoryInode& directory, const Create& operation) noexcept {
  if (!may_add(directory.attributes, operation.credentials)) return NfsStat3::kAcces;
  const bool device = operation.type == Ftype3::kBlk || operation.type == Ftype3::kChr;
  if (device && !operation.credentials.is_root()) return NfsStat3::kPerm;
  if (operation.type == Ftype3::kDir && directory.attributes.nlink >= kLinkMax) return NfsStat3::kMlink;
  if (operation.new_attributes.size.value_or(0) > kMaxFileBytes) return NfsStat3::kFbig;
  return NfsStat3::kOk;
}

NfsStat3 MemoryStore::do_create(Create& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* directory = find_directory(operation.directory, status);
  if (directory == nullptr) return status;
  const Wcc wcc(operation.directory_wcc, *directory);
  if (!may_search(directory->attributes, operation.credentials)) return NfsStat3::kAcces;
  if (MemoryInode* existing = directory->directory->find(operation.name)) return found_in_create(*existing, operation);
  status = check_create(*directory, operation);
  if (status != NfsStat3::kOk) return status;
  MemoryInode* inode = make_inode(operation.type);
  if (inode == nullptr) return NfsStat3::kNospc;
  Fattr3& attributes = inode->attributes;
  const Sattr3& wanted = operation.new_attributes;
  const NewOwnership ownership =
      ownership_of_new(directory->attributes, operation.type, wanted, 0, operation.credentials);
  attributes.uid = ownership.uid;
  attributes.gid = ownership.gid;
  attributes.mode = ownership.mode;
  if (wanted.atime.how == TimeHow::kSetToClientTime) attributes.atime = wanted.atime.time;
  if (wanted.mtime.how == TimeHow::kSetToClientTime) attributes.mtime = wanted.mtime.time;
  if (operation.type == Ftype3::kReg) {
    attributes.size = wanted.size.value_or(0);
    if (operation.mode == CreateMode3::kExclusive) inode->verifier = operation.verifier;
  } else if (operation.type == Ftype3::kLnk) {
    inode->target = operation.target;
    attributes.size = operation.target.size();
    attributes.mode = 0777;
  } else if (operation.type == Ftype3::kBlk || operation.type == Ftype3::kChr) {
    attributes.rdev = operation.rdev;
  }
  put_into(*directory, operation.name, *inode);
  operation.object = handle_of(*inode);
  operation.attributes = attributes;
  return NfsStat3::kOk;
}

/// RFC 1813 §3.3.8: UNCHECKED takes a file that is there, EXCLUSIVE the one that the same request made before.
NfsStat3 MemoryStore::found_in_create(MemoryInode& existing, Create& operation) noexcept {
  if (operation.mode == CreateMode3::kGuarded || !existing.is_file()) return NfsStat3::kExist;
  if (operation.mode == CreateMode3::kExclusive) {
    if (existing.verifier != operation.verifier) return NfsStat3::kExist;
  } else if (operation.new_attributes.size) {
    Fattr3& attributes = existing.attributes;
    if (!may_write(attributes, operation.credentials)) return NfsStat3::kAcces;
    const NfsStat3 status = resize(existing, *operation.new_attributes.size);
    if (status != NfsStat3::kOk) return status;
    attributes.mode = mode_after_write(attributes, operation.credentials);
    attributes.mtime = attributes.ctime = nfs_time_now();
  }
  operation.object = handle_of(existing);
  operation.attributes = existing.attributes;
  return NfsStat3::kOk;
}

void MemoryStore::remove(Remove& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_remove(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_remove(Remove& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* directory = find_directory(operation.directory, status);
  if (directory == nullptr) return status;
  const Wcc wcc(operation.directory_wcc, *directory);
  if (!may_search(directory->attributes, operation.credentials)) return NfsStat3::kAcces;
  MemoryInode* inode = directory->directory->find(operation.name);
  if (inode == nullptr) return NfsStat3::kNoent;
  if (!may_take_away(directory->attributes, inode->attributes, operation.credentials)) return NfsStat3::kAcces;
  if (operation.is_rmdir) {
    if (!inode->is_directory()) return NfsStat3::kNotdir;
    if (!inode->directory->empty()) return NfsStat3::kNotempty;
  } else if (inode->is_directory()) {
    return NfsStat3::kIsdir;
  }
  take_from(*directory, operation.name, *inode);
  unlink_inode(*inode);
  return NfsStat3::kOk;
}

void MemoryStore::rename(Rename& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_rename(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_rename(Rename& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* from = find_directory(operation.from_directory, status);
  if (from == nullptr) return status;
  const Wcc from_wcc(operation.from_wcc, *from);
  MemoryInode* to = find_directory(operation.to_directory, status);
  if (to == nullptr) return status;
  const Wcc to_wcc(operation.to_wcc, *to);
  const Credentials& who = operation.credentials;
  if (!may_search(from->attributes, who) || !may_search(to->attributes, who)) return NfsStat3::kAcces;
  MemoryInode* inode = from->directory->find(operation.from_name);
  if (inode == nullptr) return NfsStat3::kNoent;
  MemoryInode* replaced = to->directory->find(operation.to_name);
  if (!may_take_away(from->attributes, inode->attributes, who) || !may_add(to->attributes, who)) {
    return NfsStat3::kAcces;
  }
  if (replaced == inode) return NfsStat3::kOk;  // two names of one object, or none changed
  if (inode->is_directory()) {
    if (is_within(*inode, *to)) return NfsStat3::kInval;
    // A directory that moves to another changes its "..".
    if (from != to && (granted(inode->attributes, who) & kMayWrite) == 0) return NfsStat3::kAcces;
    if (from != to && replaced == nullptr && to->attributes.nlink >= kLinkMax) return NfsStat3::kMlink;
  }
  if (replaced != nullptr) {
    if (!may_take_away(to->attributes, replaced->attributes, who)) return NfsStat3::kAcces;
    if (inode->is_directory() && !replaced->is_directory()) return NfsStat3::kNotdir;
    if (!inode->is_directory() && replaced->is_directory()) return NfsStat3::kIsdir;
    if (replaced->is_directory() && !replaced->directory->empty()) return NfsStat3::kNotempty;
    take_from(*to, operation.to_name, *replaced);
    unlink_inode(*replaced);
  }
  take_from(*from, operation.from_name, *inode);
  put_into(*to, operation.to_name, *inode);
  inode->attributes.ctime = nfs_time_now();
  return NfsStat3::kOk;
}

void MemoryStore::link(Link& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_link(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_link(Link& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* inode = find(operation.object, status);
  if (inode == nullptr) return status;
  operation.attributes = inode->attributes;
  MemoryInode* directory = find_directory(operation.directory, status);
  if (directory == nullptr) return status;
  const Wcc wcc(operation.directory_wcc, *directory);
  if (inode->is_directory()) return NfsStat3::kPerm;
  if (!may_search(directory->attributes, operation.credentials)) return NfsStat3::kAcces;
  if (directory->directory->find(operation.name) != nullptr) return NfsStat3::kExist;
  if (!may_add(directory->attributes, operation.credentials)) return NfsStat3::kAcces;
  if (inode->attributes.nlink >= kLinkMax) return NfsStat3::kMlink;
  ++inode->attributes.nlink;
  inode->attributes.ctime = nfs_time_now();
  put_into(*directory, operation.name, *inode);
  operation.attributes = inode->attributes;
  return NfsStat3::kOk;
}

void MemoryStore::readdir(Readdir& operation) noexcept {
  NfsStat3 status{};
  {
    const Lock lock(lock_);
    status = do_readdir(operation);
  }
  operation.complete(status);
}

NfsStat3 MemoryStore::do_readdir(Readdir& operation) noexcept {
  NfsStat3 status{};
  MemoryInode* directory = find_directory(operation.directory, status);
  if (directory == nullptr) return status;
  operation.attributes = directory->attributes;
  if (!may_list(directory->attributes, operation.credentials)) return NfsStat3::kAcces;
  note_access(*directory);
  const auto add = [&](std::uint64_t cookie, std::string_view name, const MemoryInode& inode) {
    Entry3 entry;
    entry.fileid = inode.attributes.fileid;
    entry.name = name;
    entry.cookie = cookie;
    if (operation.plus) {
      entry.name_attributes = inode.attributes;
      entry.name_handle = handle_of(inode);
    }
    return operation.entries->add(entry);
  };
  using Entries = DirectoryEntries;
  if (operation.cookie < Entries::kCookieOfSelf && !add(Entries::kCookieOfSelf, ".", *directory)) return status;
  if (operation.cookie < Entries::kCookieOfParent && !add(Entries::kCookieOfParent, "..", *directory->parent)) {
    return status;
  }
  const Entries& entries = *directory->directory;
  for (auto entry = entries.after(std::max(operation.cookie, Entries::kCookieOfParent)); entry != entries.end();
       ++entry) {
    if (!add(entry->first, entry->second.name, *entry->second.inode)) return status;
  }
  operation.eof = true;
  return status;
}

}  // namespace rodeo::nfs
