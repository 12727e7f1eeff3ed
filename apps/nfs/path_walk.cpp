// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/path_walk.h"

#include <semaphore>

namespace rodeo::nfs {
namespace {

/// Lets a thread wait for an operation.
struct Waiter {
  std::binary_semaphore done{0};
  NfsStat3 status = NfsStat3::kOk;

  static void completed(Operation& operation, NfsStat3 status) noexcept {
    auto& self = *static_cast<Waiter*>(operation.context());
    self.status = status;
    self.done.release();
  }
};

/// What of `path` is left behind the path of an export; nothing when it is not beneath it.
std::optional<std::string_view> rest_behind(std::string_view path, std::string_view exported) noexcept {
  while (exported.ends_with('/')) exported.remove_suffix(1);
  if (!path.starts_with(exported)) return std::nullopt;
  path.remove_prefix(exported.size());
  if (!path.empty() && path.front() != '/') return std::nullopt;
  return path;
}

}  // namespace

WalkedPath walk_path(const std::vector<Export>& exports, std::string_view path, const Peer& client) {
  WalkedPath out;
  std::string_view rest;
  for (const Export& exported : exports) {
    const auto behind = rest_behind(path, exported.path);
    if (!behind || (out.exported != nullptr && out.exported->path.size() > exported.path.size())) continue;
    out.exported = &exported;
    rest = *behind;
  }
  if (out.exported == nullptr) return out;
  out.status = NfsStat3::kAcces;
  if (!admits(out.exported->options, client)) return out;
  out.status = NfsStat3::kOk;
  out.object = out.exported->store->root();
  while (out.status == NfsStat3::kOk) {
    while (rest.starts_with('/')) rest.remove_prefix(1);
    if (rest.empty()) break;
    const std::string_view name = rest.substr(0, rest.find('/'));
    rest.remove_prefix(name.size());
    if (name == "..") {
      out.status = NfsStat3::kAcces;
    } else if (name.size() > kMaxNameBytes) {
      out.status = NfsStat3::kNametoolong;
    } else {
      Waiter waiter;
      Lookup lookup(&Waiter::completed, &waiter);
      lookup.credentials.uid = lookup.credentials.gid = 0;
      const FileHandle directory = out.object;
      lookup.directory = directory.bytes();
      lookup.name = name;
      out.exported->store->lookup(lookup);
      waiter.done.acquire();
      out.status = waiter.status;
      out.object = lookup.object;
    }
  }
  return out;
}

}  // namespace rodeo::nfs
