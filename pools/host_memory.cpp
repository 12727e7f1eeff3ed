// SPDX-License-Identifier: Apache-2.0
#include "pools/host_memory.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

namespace rodeo::pools {
namespace {

std::string read_file(const std::string& path) {
  std::string text;
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return text;
  std::array<char, 4096> part;
  while (const std::size_t n = std::fread(part.data(), 1, part.size(), file)) text.append(part.data(), n);
  std::fclose(file);
  return text;
}

/// The leading number of a text, after blanks.
std::optional<std::uint64_t> leading_number(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  std::uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{}) return std::nullopt;
  return value;
}

std::uint64_t hugepage_figure(const char* name) {
  return leading_number(read_file(std::string("/sys/kernel/mm/hugepages/hugepages-2048kB/") + name)).value_or(0);
}

/// What follows `key` in one of the lines of a text.
std::optional<std::uint64_t> line_number(std::string_view text, std::string_view key) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string_view line = text.substr(at, end - at);
    if (line.starts_with(key)) return leading_number(line.substr(key.size()));
    at = end + 1;
  }
  return std::nullopt;
}

/// What the memory limits of our cgroup and its ancestors leave. Clean file cache counts as left: it is given back
/// first.
std::uint64_t cgroup_available_bytes() {
  std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
  const std::string groups = read_file("/proc/self/cgroup");
  const std::size_t at = groups.find("0::/");
  if (at == std::string::npos) return least;
  const std::size_t start = at + 3;
  std::string path = groups.substr(start, std::min(groups.find('\n', start), groups.size()) - start);
  for (;;) {
    const std::string folder = "/sys/fs/cgroup" + path;
    const auto limit = leading_number(read_file(folder + "/memory.max"));  // "max" is no number: no limit
    const auto used = leading_number(read_file(folder + "/memory.current"));
    if (limit && used) {
      const std::uint64_t cache = line_number(read_file(folder + "/memory.stat"), "inactive_file").value_or(0);
      const std::uint64_t held = *used - std::min(*used, cache);
      least = std::min(least, *limit - std::min(*limit, held));
    }
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return least;
    path.resize(slash);
  }
}

}  // namespace

Hugepages host_hugepages() {
  const std::uint64_t free = hugepage_figure("free_hugepages");
  const std::uint64_t promised = hugepage_figure("resv_hugepages");
  return {.reserved = hugepage_figure("nr_hugepages"), .free = free - std::min(free, promised)};
}

std::uint64_t kib_line(std::string_view text, std::string_view name) {
  const auto kib = line_number(text, std::string(name) + ":").value_or(0);
  return kib > std::numeric_limits<std::uint64_t>::max() / 1024 ? 0 : kib * 1024;
}

std::uint64_t host_available_bytes() {
  return std::min(kib_line(read_file("/proc/meminfo"), "MemAvailable"), cgroup_available_bytes());
}

}  // namespace rodeo::pools
