// SPDX-License-Identifier: Apache-2.0
#include "apps/copy_out.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <memory>

#include "apps/location.h"
#include "apps/sha256_stream.h"
#include "pools/errno_text.h"

namespace rodeo::apps {
namespace {

using nfs::NfsResult;

nfs::NfsTime3 nfs_time(const timespec& time) noexcept {
  constexpr std::int64_t kLast = std::numeric_limits<std::uint32_t>::max();
  const auto seconds = std::clamp<std::int64_t>(time.tv_sec, 0, kLast);
  return {static_cast<std::uint32_t>(seconds), static_cast<std::uint32_t>(time.tv_nsec)};
}

/// Names in an open directory, sorted, without "." and "..". Takes the descriptor.
NfsResult<std::vector<std::string>> names_in(int directory) {
  struct Close {
    void operator()(DIR* stream) const noexcept { ::closedir(stream); }
  };
  const std::unique_ptr<DIR, Close> stream(::fdopendir(directory));
  if (stream == nullptr) return tl::unexpected(system_failure("read the directory"));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  if (errno != 0) return tl::unexpected(system_failure("read the directory"));
  std::ranges::sort(names);
  return names;
}

/// Where something goes.
struct Target {
  nfs::FileHandle directory;
  std::string name{};
};

class CopyOut {
 public:
  CopyOut(CopyJob& job, const nfs::FsLimits& limits) noexcept : job_(job), limits_(limits) {}

  void copy(const LocalPlace& from, const Target& to, bool follow) {
    struct stat about = {};
    if (::fstatat(from.directory, from.name.c_str(), &about, follow ? 0 : AT_SYMLINK_NOFOLLOW) != 0) {
      return job_.failed(from.shown, system_failure("look at it"));
    }
    NfsResult<void> done;
    if (S_ISREG(about.st_mode)) {
      done = copy_file(from, to, follow);
    } else if (S_ISLNK(about.st_mode)) {
      done = copy_link(from, to);
    } else if (!S_ISDIR(about.st_mode)) {
      done = nfs::give_up("neither a file, a directory nor a symbolic link; it is left out");
    } else if (!job_.options.recursive) {
      done = nfs::give_up("is a directory", "-r copies it with what it holds");
    } else {
      done = copy_directory(from, to, about, follow);
    }
    if (!done) job_.failed(from.shown, done.error());
  }

  /// What the directory holds, into one that is there.
  void copy_contents(int directory, const std::string& shown, const nfs::FileHandle& into) {
    auto names = names_in(::dup(directory));
    if (!names) return job_.failed(shown, names.error());
    for (const std::string& name : *names) {
      if (!job_.goes_on()) return;
      copy({directory, name, path_below(shown, name)}, {into, name}, false);
    }
  }

 private:
  NfsResult<std::optional<nfs::Found>> existing(const Target& to) {
    auto found = job_.client.lookup(to.directory, to.name);
    if (found) return std::optional<nfs::Found>(std::move(*found));
    if (found.error().status == nfs::NfsStat3::kNoent) return std::optional<nfs::Found>();
    return tl::unexpected(found.error());
  }

  NfsResult<void> copy_file(const LocalPlace& from, const Target& to, bool follow) {
    const Descriptor file(
        ::openat(from.directory, from.name.c_str(), O_RDONLY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW)));
    struct stat about = {};
    if (!file || ::fstat(file.number(), &about) != 0) return tl::unexpected(system_failure("open it"));
    (void)::posix_fadvise(file.number(), 0, 0, POSIX_FADV_SEQUENTIAL);
    const auto before = existing(to);
    if (!before) return tl::unexpected(before.error());
    if (*before && (*before)->attributes.type == nfs::Ftype3::kDir) {
      return tl::unexpected(nfs::answered("LOOKUP", nfs::NfsStat3::kIsdir));
    }
    const bool keeps_mode = *before && (*before)->attributes.type == nfs::Ftype3::kReg && !job_.options.preserve;
    nfs::Sattr3 wanted;
    wanted.mode = keeps_mode ? (*before)->attributes.mode : job_.mode_for(about.st_mode);
    if (job_.options.preserve) set_times(wanted, about);
    return complete(to, [&](const std::string& name) -> NfsResult<void> {
      nfs::Sattr3 ours;
      ours.mode = 0600;
      const auto made = job_.client.create(to.directory, name, ours);
      if (!made) return tl::unexpected(made.error());
      if (auto sent = send(file.number(), made->handle, static_cast<std::uint64_t>(about.st_size), from.shown); !sent) {
        return sent;
      }
      return job_.client.setattr(made->handle, wanted);
    });
  }

  NfsResult<void> send(int file, const nfs::FileHandle& to, std::uint64_t expected_bytes, const std::string& shown) {
    Sha256Stream sum;
    const auto source = [&](std::uint64_t offset, RegisteredBytes into) -> Result<std::size_t> {
      if (offset == 0) sum.restart();
      ssize_t length = 0;
      do {
        length = ::pread(file, into.data(), into.size(), static_cast<off_t>(offset));
      } while (length < 0 && errno == EINTR);
      if (length < 0) return fail("", "cannot read it: " + errno_text());
      const auto octets = static_cast<std::size_t>(length);
      if (job_.options.checksum) sum.update(into.first(octets));
      return octets;
    };
    const auto written = job_.write(to, expected_bytes, limits_, source, shown);
    if (!written) return tl::unexpected(written.error());
    if (!job_.options.checksum) return {};
    Sha256Stream back;
    const auto sink = [&](std::span<const std::byte> data) -> Result<void> {
      back.update(data);
      return {};
    };
    const auto read = job_.read(to, *written, limits_, sink, shown);
    if (!read) return tl::unexpected(read.error());
    return job_.compare_sums(sum.hex(), back.hex(), shown);
  }

  NfsResult<void> copy_link(const LocalPlace& from, const Target& to) {
    std::string text(nfs::kMaxPathBytes, '\0');
    const ssize_t length = ::readlinkat(from.directory, from.name.c_str(), text.data(), text.size());
    if (length < 0) return tl::unexpected(system_failure("read the link"));
    text.resize(static_cast<std::size_t>(length));
    return complete(to, [&](const std::string& name) -> NfsResult<void> {
      return job_.client.symlink(to.directory, name, text).map([](const nfs::Found&) {});
    });
  }

  NfsResult<void> copy_directory(const LocalPlace& from, const Target& to, const struct stat& about, bool follow) {
    const Descriptor directory(
        ::openat(from.directory, from.name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | (follow ? 0 : O_NOFOLLOW)));
    if (!directory) return tl::unexpected(system_failure("open it"));
    auto into = existing(to);
    if (!into) return tl::unexpected(into.error());
    const bool was_there = into->has_value();
    if (!was_there) {
      nfs::Sattr3 ours;
      ours.mode = 0700;  // until all is in it
      auto made = job_.client.mkdir(to.directory, to.name, ours);
      if (!made) return tl::unexpected(made.error());
      *into = std::move(*made);
    } else if ((*into)->attributes.type != nfs::Ftype3::kDir) {
      return tl::unexpected(nfs::answered("LOOKUP", nfs::NfsStat3::kNotdir));
    }
    copy_contents(directory.number(), from.shown, (*into)->handle);
    if (was_there && !job_.options.preserve) return {};
    if (!job_.goes_on()) return {};  // it has been said why
    nfs::Sattr3 wanted;
    wanted.mode = job_.mode_for(about.st_mode);
    if (job_.options.preserve) set_times(wanted, about);
    return job_.client.setattr((*into)->handle, wanted);
  }

  /// Has `make` make it under another name, and gives it its own.
  template <class Make>
  NfsResult<void> complete(const Target& to, const Make& make) {
    const std::string name = temporary_name();
    NfsResult<void> done = make(name);
    if (done) done = job_.client.rename(to.directory, name, to.name);
    if (!done && job_.client.usable()) (void)job_.client.remove(to.directory, name);
    return done;
  }

  static void set_times(nfs::Sattr3& attributes, const struct stat& about) {
    attributes.atime = {nfs::TimeHow::kSetToClientTime, nfs_time(about.st_atim)};
    attributes.mtime = {nfs::TimeHow::kSetToClientTime, nfs_time(about.st_mtim)};
  }

  CopyJob& job_;
  const nfs::FsLimits limits_;
};

}  // namespace

void copy_out(CopyJob& job, const std::vector<std::string>& sources, const std::string& destination) {
  const auto place = job.walker.walk(parse_location(destination).path, nfs::LastLink::kFollow);
  if (!place) return job.failed(destination, place.error());
  const bool directory_named = destination.ends_with('/') && !job.options.recursive;
  if (!place->is_directory() && directory_named) {
    return job.failed(destination, {nfs::NfsStat3::kNotdir, "there is no such directory for it to go into"});
  }
  if (!place->is_directory() && sources.size() > 1) {
    return job.failed(destination, {nfs::NfsStat3::kNotdir, "several files only go into a directory, and it is none"});
  }
  CopyOut copier(job, place->limits);
  const bool follow = !job.options.recursive;
  for (const std::string& source : sources) {
    if (!job.goes_on()) return;
    const LocalPlace from{AT_FDCWD, source, source};
    const std::string name = last_name(source);
    if (!place->is_directory()) {
      copier.copy(from, {place->parent, place->name}, follow);
    } else if (!name.empty()) {
      copier.copy(from, {place->found->handle, name}, follow);
    } else if (const Descriptor directory(::open(source.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)); !directory) {
      job.failed(source, system_failure("open it"));
    } else if (!job.options.recursive) {
      job.failed(source, {nfs::NfsStat3::kIsdir, "is a directory", "-r copies what it holds"});
    } else {  // "dir/." means what it holds
      copier.copy_contents(directory.number(), source, place->found->handle);
    }
  }
}

}  // namespace rodeo::apps
