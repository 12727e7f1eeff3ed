// SPDX-License-Identifier: Apache-2.0
#pragma once

// A memory store's inside. Objects and names (memory_store_names.cpp) and contents (memory_store_data.cpp) are under
// one lock, held for each operation and never while data moves.
//
// What a WRITE brings lands in a file's page by RDMA before the store hears of it, so:
//   * a page that the file lacked is taken for the WRITE alone and becomes the file's when the data is there; nobody
//     sees what the page held before;
//   * a page that left the file meanwhile, or was taken while another WRITE filled the same hole, is copied from: the
//     only case in which data is copied;
//   * a page whose file shrinks into it while others still touch it is left to them, and the file gets a copy.
// In a file's pages all octets beyond its end are zero, but for those of WRITEs under way.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "apps/nfs/memory_inode.h"
#include "apps/nfs/memory_store.h"
#include "apps/nfs/page_pool.h"
#include "apps/nfs/spin_lock.h"

namespace rodeo::nfs {

class MemoryStore final : public Store {
 public:
  MemoryStore(RegisteredBytes memory, const MemoryStoreOptions& options, std::uint64_t instance);
  ~MemoryStore() override;

  [[nodiscard]] StoreTraits traits() const noexcept override;
  [[nodiscard]] FileHandle root() const noexcept override;

  void getattr(Getattr& operation) noexcept override;
  void setattr(Setattr& operation) noexcept override;
  void lookup(Lookup& operation) noexcept override;
  void readlink(Readlink& operation) noexcept override;
  void read(Read& operation) noexcept override;
  void prepare_write(Write& operation) noexcept override;
  void write(Write& operation) noexcept override;
  void create(Create& operation) noexcept override;
  void remove(Remove& operation) noexcept override;
  void rename(Rename& operation) noexcept override;
  void link(Link& operation) noexcept override;
  void readdir(Readdir& operation) noexcept override;
  void fsstat(Fsstat& operation) noexcept override;
  void commit(Commit& operation) noexcept override;
  void end(Read& operation) noexcept override;
  void end(Write& operation) noexcept override;

 private:
  using Lock = std::scoped_lock<SpinLock>;
  static constexpr std::uint32_t kLinkMax = 65'000;
  static constexpr std::uint64_t kMaxFileBytes = INT64_MAX;

  /// What each operation does under the lock.
  [[nodiscard]] NfsStat3 do_setattr(Setattr& operation) noexcept;
  [[nodiscard]] NfsStat3 do_lookup(Lookup& operation) noexcept;
  [[nodiscard]] NfsStat3 do_read(Read& operation) noexcept;
  [[nodiscard]] NfsStat3 do_prepare_write(Write& operation) noexcept;
  [[nodiscard]] NfsStat3 do_write(Write& operation) noexcept;
  [[nodiscard]] NfsStat3 do_create(Create& operation) noexcept;
  [[nodiscard]] NfsStat3 do_remove(Remove& operation) noexcept;
  [[nodiscard]] NfsStat3 do_rename(Rename& operation) noexcept;
  [[nodiscard]] NfsStat3 do_link(Link& operation) noexcept;
  [[nodiscard]] NfsStat3 do_readdir(Readdir& operation) noexcept;

  /// nullptr, and why.
  [[nodiscard]] MemoryInode* find(HandleView handle, NfsStat3& status) const noexcept;
  /// An object's name within the store, never again another's; and the object, nullptr when it is gone.
  [[nodiscard]] static std::uint64_t identity_of(const MemoryInode& inode) noexcept {
    return (std::uint64_t{inode.index} << 32U) | inode.generation;
  }
  [[nodiscard]] MemoryInode* find(std::uint64_t identity) const noexcept;
  /// Access times follow changes and no more, so that reading a file does not change it each time.
  static void note_access(MemoryInode& inode) noexcept;
  /// The same, of a directory.
  [[nodiscard]] MemoryInode* find_directory(HandleView handle, NfsStat3& status) const noexcept;
  [[nodiscard]] FileHandle handle_of(const MemoryInode& inode) const noexcept;

  /// nullptr when there are as many as there may be.
  [[nodiscard]] MemoryInode* make_inode(Ftype3 type);
  /// One name less; the last one's object goes.
  void unlink_inode(MemoryInode& inode) noexcept;
  void destroy(MemoryInode& inode) noexcept;
  void put_into(MemoryInode& directory, std::string_view name, MemoryInode& inode);
  static void take_from(MemoryInode& directory, std::string_view name, const MemoryInode& inode) noexcept;

  /// Changes a file's size. NFS3_OK, NFS3ERR_FBIG, or NFS3ERR_JUKEBOX when there is no page to copy to.
  [[nodiscard]] NfsStat3 resize(MemoryInode& file, std::uint64_t size) noexcept;
  void attach(MemoryInode& file, std::uint64_t page_start, Page page);
  [[nodiscard]] static NfsStat3 check_create(const MemoryInode& directory, const Create& operation) noexcept;
  [[nodiscard]] NfsStat3 found_in_create(MemoryInode& existing, Create& operation) noexcept;
  /// Makes the page of `stretch` hold what a WRITE brought to `data`, which lies in `from`.
  [[nodiscard]] NfsStat3 settle(MemoryInode& file, const Stretch& stretch, Page from, const std::byte* data) noexcept;

  mutable SpinLock lock_;
  PagePool pages_;
  Page zeros_ = kNoPage;  // a block of them, for what files lack
  std::uint64_t instance_;
  std::uint32_t max_files_;
  std::vector<std::unique_ptr<MemoryInode>> inodes_;
  std::vector<std::uint32_t> free_inodes_;
  std::vector<std::uint32_t> generations_;
  MemoryInode* root_ = nullptr;
  Verf3 verifier_{};
};

/// The time now, as attributes have it.
[[nodiscard]] NfsTime3 nfs_time_now() noexcept;

}  // namespace rodeo::nfs
