// SPDX-License-Identifier: Apache-2.0
#include "apps/copy_in.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>

#include "apps/sha256_stream.h"
#include "pools/errno_text.h"

namespace rodeo::apps {
namespace {

using nfs::NfsResult;

timespec local_time(const nfs::NfsTime3& time) noexcept {
  return {static_cast<time_t>(time.seconds), static_cast<long>(std::min(time.nseconds, 999'999'999U))};
}

Result<void> write_all(int file, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t length = ::write(file, data.data(), data.size());
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return fail("", "cannot write it: " + errno_text());
    data = data.subspan(static_cast<std::size_t>(length));
  }
  return {};
}

NfsResult<std::string> sum_of(int file) {
  Sha256Stream sum;
  std::vector<std::byte> block(std::size_t{1} << 18U);
  for (off_t offset = 0;;) {
    const ssize_t length = ::pread(file, block.data(), block.size(), offset);
    if (length < 0 && errno == EINTR) continue;
    if (length < 0) return tl::unexpected(system_failure("read it again"));
    if (length == 0) return sum.hex();
    sum.update(std::span(block).first(static_cast<std::size_t>(length)));
    offset += length;
  }
}

/// Whether it names something in a directory, and nothing else.
bool is_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

class CopyIn {
 public:
  CopyIn(CopyJob& job, const nfs::FsLimits& limits) noexcept : job_(job), limits_(limits) {}

  /// `shown`: where it is on the server.
  void copy(const nfs::Found& from, const std::string& shown, const LocalPlace& to) {
    NfsResult<void> done;
    switch (from.attributes.type) {
      case nfs::Ftype3::kReg:
        done = copy_file(from, to);
        break;
      case nfs::Ftype3::kLnk:
        done = copy_link(from, to);
        break;
      case nfs::Ftype3::kDir:
        done = job_.options.recursive ? copy_directory(from, shown, to)
                                      : nfs::give_up("is a directory", "-r copies it with what it holds");
        break;
      default:
        done = nfs::give_up("neither a file, a directory nor a symbolic link; it is left out");
    }
    if (!done) job_.failed(shown, done.error());
  }

  /// What the directory holds, into one that is open.
  void copy_contents(const nfs::FileHandle& from, const std::string& shown, int into, const std::string& into_shown) {
    auto entries = job_.client.list(from, limits_.directory_bytes);
    if (!entries) return job_.failed(shown, entries.error());
    std::ranges::sort(*entries, {}, &nfs::Listed::name);
    for (const nfs::Listed& entry : *entries) {
      if (entry.name == "." || entry.name == "..") continue;
      if (!job_.goes_on()) return;
      const std::string path = path_below(shown, entry.name);
      if (!is_name(entry.name)) {
        job_.failed(path, {nfs::NfsStat3::kOk, "the server lists something that is no name; it is left out"});
        continue;
      }
      NfsResult<nfs::Found> found;
      if (entry.handle && entry.attributes) {
        found = nfs::Found{*entry.handle, *entry.attributes};
      } else {
        found = job_.client.lookup(from, entry.name);
      }
      if (found) {
        copy(*found, path, {into, entry.name, path_below(into_shown, entry.name)});
      } else {
        job_.failed(path, found.error());
      }
    }
  }

 private:
  NfsResult<void> copy_file(const nfs::Found& from, const LocalPlace& to) {
    struct stat before = {};
    const bool there = ::fstatat(to.directory, to.name.c_str(), &before, AT_SYMLINK_NOFOLLOW) == 0;
    const std::uint32_t mode = there && S_ISREG(before.st_mode) && !job_.options.preserve
                                   ? before.st_mode & 0777U
                                   : job_.mode_for(from.attributes.mode);
    return complete(to, [&](const std::string& name) -> NfsResult<void> {
      const Descriptor file(::openat(to.directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
      if (!file) return tl::unexpected(system_failure("create " + to.shown));
      if (auto received = receive(from, file.number(), to.shown); !received) return received;
      if (::fchmod(file.number(), mode) != 0) return tl::unexpected(system_failure("set the mode of " + to.shown));
      return set_times(file.number(), from.attributes, to.shown);
    });
  }

  NfsResult<void> receive(const nfs::Found& from, int file, const std::string& shown) {
    Sha256Stream sum;
    const auto sink = [&](std::span<const std::byte> data) -> Result<void> {
      if (job_.options.checksum) sum.update(data);
      return write_all(file, data);
    };
    const auto read = job_.read(from.handle, from.attributes.size, limits_, sink, shown);
    if (!read) return tl::unexpected(read.error());
    if (!job_.options.checksum) return {};
    const auto arrived = sum_of(file);
    if (!arrived) return tl::unexpected(arrived.error());
    return job_.compare_sums(sum.hex(), *arrived, shown);
  }

  NfsResult<void> copy_link(const nfs::Found& from, const LocalPlace& to) {
    const auto text = job_.client.readlink(from.handle);
    if (!text) return tl::unexpected(text.error());
    return complete(to, [&](const std::string& name) -> NfsResult<void> {
      if (::symlinkat(text->c_str(), to.directory, name.c_str()) == 0) return {};
      return tl::unexpected(system_failure("create " + to.shown));
    });
  }

  NfsResult<void> copy_directory(const nfs::Found& from, const std::string& shown, const LocalPlace& to) {
    const bool made = ::mkdirat(to.directory, to.name.c_str(), 0700) == 0;
    if (!made && errno != EEXIST) return tl::unexpected(system_failure("create " + to.shown));
    const Descriptor directory(
        ::openat(to.directory, to.name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory) return tl::unexpected(system_failure("open " + to.shown));
    copy_contents(from.handle, shown, directory.number(), to.shown);
    if (!made && !job_.options.preserve) return {};
    if (::fchmod(directory.number(), job_.mode_for(from.attributes.mode)) != 0) {
      return tl::unexpected(system_failure("set the mode of " + to.shown));
    }
    return set_times(directory.number(), from.attributes, to.shown);
  }

  NfsResult<void> set_times(int file, const nfs::Fattr3& attributes, const std::string& shown) const {
    if (!job_.options.preserve) return {};
    const std::array<timespec, 2> times{local_time(attributes.atime), local_time(attributes.mtime)};
    if (::futimens(file, times.data()) == 0) return {};
    return tl::unexpected(system_failure("set the times of " + shown));
  }

  /// Has `make` make it under another name, and gives it its own.
  template <class Make>
  NfsResult<void> complete(const LocalPlace& to, const Make& make) {
    const std::string name = temporary_name();
    NfsResult<void> done = make(name);
    if (done && ::renameat(to.directory, name.c_str(), to.directory, to.name.c_str()) != 0) {
      done = tl::unexpected(system_failure("call it " + to.shown));
    }
    if (!done) (void)::unlinkat(to.directory, name.c_str(), 0);
    return done;
  }

  CopyJob& job_;
  const nfs::FsLimits limits_;
};

/// The directory of what has no directory yet, and the name in it.
std::pair<std::string, std::string> split(const std::string& path) {
  std::string name = last_name(path);
  std::string above = path;
  while (above.size() > 1 && above.ends_with('/')) above.pop_back();
  above.resize(above.size() - name.size());
  return {above.empty() ? "." : above, std::move(name)};
}

}  // namespace

void copy_in(CopyJob& job, const std::vector<Location>& sources, const std::string& destination) {
  struct stat about = {};
  const bool into = ::stat(destination.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
  if (!into && (sources.size() > 1 || (destination.ends_with('/') && !job.options.recursive))) {
    return job.failed(destination, {nfs::NfsStat3::kNotdir, "there is no such directory for it to go into"});
  }
  const auto [above, new_name] = split(destination);
  const std::string& folder = into ? destination : above;
  const Descriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return job.failed(folder, system_failure("open it"));
  for (const Location& source : sources) {
    if (!job.goes_on()) return;
    const auto place =
        job.walker.walk(source.path, job.options.recursive ? nfs::LastLink::kKeep : nfs::LastLink::kFollow);
    if (!place) {
      job.failed(source.text(), place.error());
      continue;
    }
    if (!place->found) {
      job.failed(source.text(), nfs::answered("LOOKUP", nfs::NfsStat3::kNoent));
      continue;
    }
    CopyIn copier(job, place->limits);
    const std::string name = into ? last_name(source.path) : new_name;
    if (!name.empty()) {
      copier.copy(*place->found, source.text(),
                  {directory.number(), name, path_below(into ? destination : "", into ? name : destination)});
    } else if (job.options.recursive && place->is_directory()) {  // "dir/." means what it holds
      copier.copy_contents(place->found->handle, source.text(), directory.number(), destination);
    } else {
      job.failed(source.text(), {nfs::NfsStat3::kIsdir, "is a directory", "-r copies what it holds"});
    }
  }
}

}  // namespace rodeo::apps
