// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/path_walker.h"

#include <algorithm>
#include <utility>

namespace rodeo::nfs {
namespace {

constexpr int kMostLinks = 40;

/// Octets of `path` that name the export; nothing when it does not hold the path.
std::optional<std::size_t> prefix_of(std::string_view exported, std::string_view path) noexcept {
  while (exported.ends_with('/')) exported.remove_suffix(1);
  if (!path.starts_with(exported)) return std::nullopt;
  if (path.size() != exported.size() && path[exported.size()] != '/') return std::nullopt;
  return exported.size();
}

}  // namespace

/// Starts at the export that holds `path`, with its names before what is still to walk.
NfsResult<void> PathWalker::enter(Walk& walk, std::string_view path) {
  if (!exports_) {
    auto exports = client_.exports();
    if (!exports) return tl::unexpected(exports.error());
    exports_ = std::move(*exports);
  }
  const std::string* best = nullptr;
  std::size_t prefix = 0;
  for (const std::string& exported : *exports_) {
    const auto length = prefix_of(exported, path);
    if (!length || (best != nullptr && *length <= prefix)) continue;
    best = &exported;
    prefix = *length;
  }
  if (best == nullptr) {
    std::string list;
    for (const std::string& exported : *exports_) list += (list.empty() ? "" : ", ") + exported;
    return give_up("no export of the server holds it", list.empty() ? "it exports nothing" : "it exports " + list);
  }
  auto known = roots_.find(*best);
  if (known == roots_.end()) {
    const auto handle = client_.mount(*best);
    if (!handle) return tl::unexpected(handle.error());
    const auto attributes = client_.getattr(*handle);
    if (!attributes) return tl::unexpected(attributes.error());
    const auto limits = client_.limits(*handle);
    if (!limits) return tl::unexpected(limits.error());
    known = roots_.emplace(*best, Root{{*handle, *attributes}, *limits}).first;
  }
  walk.limits = known->second.limits;
  walk.steps.assign(1, {"", known->second.found});
  push_names(walk, path.substr(prefix));
  return {};
}

void PathWalker::push_names(Walk& walk, std::string_view path) {
  if (walk.rest.empty()) walk.must_be_directory = walk.must_be_directory || path.ends_with('/');
  std::vector<std::string> names;
  while (!path.empty()) {
    const std::size_t length = std::min(path.find('/'), path.size());
    if (length != 0) names.emplace_back(path.substr(0, length));
    path.remove_prefix(std::min(length + 1, path.size()));
  }
  walk.rest.insert(walk.rest.end(), std::make_move_iterator(names.rbegin()), std::make_move_iterator(names.rend()));
}

NfsResult<void> PathWalker::follow(Walk& walk, const FileHandle& link) {
  const auto text = client_.readlink(link);
  if (!text) return tl::unexpected(text.error());
  if (text->starts_with('/')) return enter(walk, *text);
  push_names(walk, *text);
  return {};
}

NfsResult<Place> PathWalker::walk(std::string_view path, LastLink last_link) {
  Walk walk;
  if (auto entered = enter(walk, path); !entered) return tl::unexpected(entered.error());
  for (int links = 0; !walk.rest.empty();) {
    const std::string name = std::move(walk.rest.back());
    walk.rest.pop_back();
    const Found& at = walk.steps.back().found;
    if (at.attributes.type != Ftype3::kDir) return tl::unexpected(answered("LOOKUP", NfsStat3::kNotdir));
    if (name == ".") continue;
    if (name == "..") {  // above its root an export has nothing
      if (walk.steps.size() > 1) walk.steps.pop_back();
      continue;
    }
    auto found = client_.lookup(at.handle, name);
    if (!found && found.error().status == NfsStat3::kNoent && walk.rest.empty()) {
      return Place{walk.limits, at.handle, name, std::nullopt};
    }
    if (!found) return tl::unexpected(found.error());
    const bool passing = !walk.rest.empty() || walk.must_be_directory || last_link == LastLink::kFollow;
    if (found->attributes.type != Ftype3::kLnk || !passing) {
      walk.steps.push_back({name, std::move(*found)});
    } else if (++links > kMostLinks) {
      return give_up("too many symbolic links, one leading to the next");
    } else if (auto followed = follow(walk, found->handle); !followed) {
      return tl::unexpected(followed.error());
    }
  }
  Step& last = walk.steps.back();
  if (walk.must_be_directory && last.found.attributes.type != Ftype3::kDir) {
    return tl::unexpected(answered("LOOKUP", NfsStat3::kNotdir));
  }
  const Step& above = walk.steps[walk.steps.size() > 1 ? walk.steps.size() - 2 : 0];
  return Place{walk.limits, above.found.handle, std::move(last.name), std::move(last.found)};
}

}  // namespace rodeo::nfs
