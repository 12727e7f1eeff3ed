// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/directory_listing.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <memory>
#include <new>

#include "apps/nfs/act_as.h"
#include "apps/nfs/permissions.h"

namespace rodeo::nfs {
namespace {

constexpr std::uint64_t kCookieOfSelf = 1;
constexpr std::uint64_t kCookieOfParent = 2;
constexpr std::uint64_t kCookieMask = ~std::uint64_t{0} >> 2U;  // positive for those who take it for a signed offset
constexpr std::uint32_t kSettledSeconds = 2;

struct CloseDirectory {
  void operator()(DIR* d) const noexcept { ::closedir(d); }
};

}  // namespace

bool DirectoryListings::read_into(Listing& listing, int directory) const {
  Descriptor open = DirectoryVolume::reopen(directory, O_RDONLY | O_DIRECTORY);
  if (!open) return false;
  const std::unique_ptr<DIR, CloseDirectory> stream(::fdopendir(::dup(open.get())));
  if (stream == nullptr) return false;
  errno = 0;
  while (const dirent* found = ::readdir(stream.get())) {
    const std::string_view name = found->d_name;
    if (name == "." || name == "..") continue;
    const std::uint64_t hash = sip_hash(volume_.key(), std::as_bytes(std::span(name))) & kCookieMask;
    listing.entries.push_back(
        {std::max(hash, kCookieOfParent + 1), found->d_ino, static_cast<std::uint32_t>(listing.names.size())});
    listing.names.append(name).push_back('\0');
  }
  if (errno != 0) return false;
  std::ranges::sort(listing.entries, {}, &Entry::cookie);
  return true;
}

const DirectoryListings::Listing* DirectoryListings::listing_of(int directory, const Fattr3& attributes) {
  const auto kept = std::ranges::find(kept_, attributes.fileid, &Listing::fileid);
  if (kept != kept_.end()) {
    if (kept->settled && kept->ctime == attributes.ctime) {
      kept_.splice(kept_.begin(), kept_, kept);
      return &kept_.front();
    }
    kept_.erase(kept);
  }
  Listing made;
  made.fileid = attributes.fileid;
  made.ctime = attributes.ctime;
  made.settled = ::time(nullptr) >= std::time_t{attributes.ctime.seconds} + kSettledSeconds;
  if (!read_into(made, directory)) return nullptr;
  if (kept_.size() == kKept) kept_.pop_back();
  kept_.push_front(std::move(made));
  return &kept_.front();
}

void DirectoryListings::describe(Entry3& entry, int directory, const char* name) const noexcept {
  const Descriptor object = DirectoryVolume::find_in(directory, name);
  Fattr3 attributes;
  if (!object || !DirectoryVolume::stat(object.get(), attributes)) return;  // gone meanwhile, or not to be searched
  entry.fileid = attributes.fileid;
  entry.name_attributes = attributes;
  if (!volume_.make_handle(object.get(), entry.name_handle.emplace())) entry.name_handle.reset();
}

NfsStat3 DirectoryListings::fill(Readdir& operation, int directory, const Fattr3& own) {
  const Listing* listing = listing_of(directory, own);
  if (listing == nullptr) return status_of_errno(errno);
  const bool is_root = volume_.is_root(operation.directory);
  // Names are looked at as whoever asks; handles are made all the same.
  const ActAs user(operation.credentials, volume_.switches_users());
  if (!user.ok()) return NfsStat3::kServerfault;
  const auto add = [&](std::uint64_t cookie, std::uint64_t fileid, std::string_view name, const char* path) {
    Entry3 entry;
    entry.fileid = fileid;
    entry.cookie = cookie;
    entry.name = name;
    if (operation.plus) describe(entry, directory, path);
    return operation.entries->add(entry);
  };
  if (operation.cookie < kCookieOfSelf && !add(kCookieOfSelf, own.fileid, ".", ".")) return NfsStat3::kOk;
  if (operation.cookie < kCookieOfParent) {
    const char* const parent_path = is_root ? "." : "..";
    Fattr3 parent = own;
    if (const Descriptor object = DirectoryVolume::find_in(directory, parent_path)) {
      (void)DirectoryVolume::stat(object.get(), parent);
    }
    if (!add(kCookieOfParent, parent.fileid, "..", parent_path)) return NfsStat3::kOk;
  }
  const std::uint64_t after = std::max(operation.cookie, kCookieOfParent);
  for (auto at = std::ranges::upper_bound(listing->entries, after, {}, &Entry::cookie); at != listing->entries.end();
       ++at) {
    const char* const name = listing->names.data() + at->name;
    if (!add(at->cookie, at->fileid, name, name)) return NfsStat3::kOk;
  }
  operation.eof = true;
  return NfsStat3::kOk;
}

NfsStat3 DirectoryListings::readdir(Readdir& operation) noexcept {
  NfsStat3 status{};
  const Descriptor directory = volume_.find(operation.directory, status);
  if (!directory) return status;
  Fattr3 attributes;
  if (!DirectoryVolume::stat(directory.get(), attributes)) return status_of_errno(errno);
  operation.attributes = attributes;
  if (attributes.type != Ftype3::kDir) return NfsStat3::kNotdir;
  if (operation.cookie != 0 && operation.asked_verifier != Verf3{}) return NfsStat3::kBadCookie;
  if (!may_list(attributes, operation.credentials)) return NfsStat3::kAcces;
  try {
    return fill(operation, directory.get(), attributes);
  } catch (const std::bad_alloc&) {
    return NfsStat3::kJukebox;
  }
}

}  // namespace rodeo::nfs
