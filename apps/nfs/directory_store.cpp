// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/directory_store.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "apps/nfs/directory_volume.h"
#include "apps/nfs/io_thread.h"

namespace rodeo::nfs {
namespace {

/// Hands every operation to the thread of its object, so that those of one object follow each other.
class DirectoryStore final : public Store {
 public:
  explicit DirectoryStore(DirectoryVolume volume) : volume_(std::move(volume)) {}

  [[nodiscard]] Result<void> start(const DirectoryStoreOptions& options) {
    for (unsigned i = 0; i < std::max(1U, options.threads); ++i) {
      auto thread = IoThread::start(volume_, std::max(1U, options.depth));
      if (!thread) return tl::unexpected(thread.error());
      threads_.push_back(std::move(*thread));
    }
    return {};
  }

  [[nodiscard]] StoreTraits traits() const noexcept override { return {}; }
  [[nodiscard]] FileHandle root() const noexcept override { return volume_.root(); }

  void getattr(Getattr& operation) noexcept override { pass(operation, operation.object, StoreCall::kGetattr); }
  void setattr(Setattr& operation) noexcept override { pass(operation, operation.object, StoreCall::kSetattr); }
  void lookup(Lookup& operation) noexcept override { pass(operation, operation.directory, StoreCall::kLookup); }
  void readlink(Readlink& operation) noexcept override { pass(operation, operation.object, StoreCall::kReadlink); }
  void read(Read& operation) noexcept override { pass(operation, operation.object, StoreCall::kRead); }
  void write(Write& operation) noexcept override { pass(operation, operation.object, StoreCall::kWrite); }
  void create(Create& operation) noexcept override { pass(operation, operation.directory, StoreCall::kCreate); }
  void remove(Remove& operation) noexcept override { pass(operation, operation.directory, StoreCall::kRemove); }
  void rename(Rename& operation) noexcept override { pass(operation, operation.from_directory, StoreCall::kRename); }
  void link(Link& operation) noexcept override { pass(operation, operation.directory, StoreCall::kLink); }
  void readdir(Readdir& operation) noexcept override { pass(operation, operation.directory, StoreCall::kReaddir); }
  void fsstat(Fsstat& operation) noexcept override { pass(operation, operation.object, StoreCall::kFsstat); }
  void commit(Commit& operation) noexcept override { pass(operation, operation.object, StoreCall::kCommit); }

 private:
  void pass(Operation& operation, HandleView handle, StoreCall what) noexcept {
    threads_[sip_hash(volume_.key(), handle) % threads_.size()]->hand_over(operation, what);
  }

  const DirectoryVolume volume_;
  std::vector<std::unique_ptr<IoThread>> threads_;  // go first
};

}  // namespace

Result<std::unique_ptr<Store>> make_directory_store(const std::string& path, const DirectoryStoreOptions& options) {
  auto volume = DirectoryVolume::open(path);
  if (!volume) return tl::unexpected(volume.error());
  auto store = std::make_unique<DirectoryStore>(std::move(*volume));
  if (auto started = store->start(options); !started) return tl::unexpected(started.error());
  return store;
}

}  // namespace rodeo::nfs
