// SPDX-License-Identifier: Apache-2.0
#pragma once

// The least that a storage backend is, to begin one's own from: a read-only directory with a few files whose contents
// are strings. No memory of its own, so READ copies into the server's buffer; everything completes at once.

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "apps/nfs/store.h"

namespace rodeo::nfs {

class ExampleStore final : public Store {
 public:
  using File = std::pair<std::string, std::string>;  // name and contents
  explicit ExampleStore(std::vector<File> files) : files_(std::move(files)) {}

  [[nodiscard]] StoreTraits traits() const noexcept override { return {}; }
  [[nodiscard]] FileHandle root() const noexcept override { return handle_of(kRoot); }

  void getattr(Getattr& operation) noexcept override {
    const std::size_t object = find(operation.object);
    if (object == kNothing) return operation.complete(NfsStat3::kBadhandle);
    operation.attributes = attributes_of(object);
    operation.complete(NfsStat3::kOk);
  }

  void lookup(Lookup& operation) noexcept override {
    if (find(operation.directory) != kRoot) return operation.complete(NfsStat3::kNotdir);
    operation.directory_attributes = attributes_of(kRoot);
    std::size_t object = kRoot;  // "." and, since it is the root, ".."
    if (operation.name != "." && operation.name != "..") {
      const auto file = std::ranges::find(files_, operation.name, &File::first);
      if (file == files_.end()) return operation.complete(NfsStat3::kNoent);
      object = static_cast<std::size_t>(file - files_.begin()) + 1;
    }
    operation.object = handle_of(object);
    operation.attributes = attributes_of(object);
    operation.complete(NfsStat3::kOk);
  }

  void read(Read& operation) noexcept override {
    const std::size_t object = find(operation.object);
    if (object == kNothing) return operation.complete(NfsStat3::kBadhandle);
    if (object == kRoot) return operation.complete(NfsStat3::kIsdir);
    const std::string& contents = files_[object - 1].second;
    const std::uint64_t offset = std::min<std::uint64_t>(operation.offset, contents.size());
    const std::size_t length = std::min<std::size_t>(operation.count, contents.size() - offset);
    if (length != 0) std::memcpy(operation.buffer.data(), contents.data() + offset, length);
    (void)operation.data.add(operation.buffer.first(length));
    operation.eof = offset + length == contents.size();
    operation.attributes = attributes_of(object);
    operation.complete(NfsStat3::kOk);
  }

  /// Entry n has cookie n + 1: ".", "..", and the files.
  void readdir(Readdir& operation) noexcept override {
    if (find(operation.directory) != kRoot) return operation.complete(NfsStat3::kNotdir);
    operation.attributes = attributes_of(kRoot);
    const std::size_t count = files_.size() + 2;
    std::uint64_t at = std::min<std::uint64_t>(operation.cookie, count);
    for (; at < count; ++at) {
      const std::size_t object = at < 2 ? kRoot : at - 1;
      Entry3 entry;
      entry.fileid = object + 1;
      entry.name = at == 0 ? "." : at == 1 ? ".." : std::string_view(files_[object - 1].first);
      entry.cookie = at + 1;
      if (operation.plus) {
        entry.name_attributes = attributes_of(object);
        entry.name_handle = handle_of(object);
      }
      if (!operation.entries->add(entry)) break;
    }
    operation.eof = at == count;
    operation.complete(NfsStat3::kOk);
  }

 private:
  static constexpr std::size_t kRoot = 0;  // files are 1 and up
  static constexpr std::size_t kNothing = SIZE_MAX;

  static FileHandle handle_of(std::size_t object) noexcept {
    return FileHandle(std::as_bytes(std::span<const std::size_t>{&object, 1}));
  }
  /// Handles come from peers: what is not ours is nothing.
  [[nodiscard]] std::size_t find(HandleView handle) const noexcept {
    std::size_t object = kNothing;
    if (handle.size() == sizeof object) std::memcpy(&object, handle.data(), sizeof object);
    return object <= files_.size() ? object : kNothing;
  }
  [[nodiscard]] Fattr3 attributes_of(std::size_t object) const noexcept {
    Fattr3 attributes;
    attributes.type = object == kRoot ? Ftype3::kDir : Ftype3::kReg;
    attributes.mode = object == kRoot ? 0555 : 0444;
    attributes.nlink = object == kRoot ? 2 : 1;
    attributes.size = attributes.used = object == kRoot ? 0 : files_[object - 1].second.size();
    attributes.fileid = object + 1;
    return attributes;
  }

  std::vector<File> files_;
};

}  // namespace rodeo::nfs
