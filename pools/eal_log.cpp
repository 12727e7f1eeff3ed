// SPDX-License-Identifier: Apache-2.0
#include "pools/eal_log.h"

#include <rte_log.h>
#include <unistd.h>

#include <cstdio>
#include <mutex>
#include <string_view>

namespace rodeo::pools {
namespace {

/// Leaked on purpose: DPDK's threads may log until the very end of the process.
struct Captured {
  std::mutex mutex;
  std::string line;       // being written
  std::string last_line;  // complete
};
Captured& captured() {
  static auto* the_one = new Captured;
  return *the_one;
}

void keep_line(Captured& log) {
  std::string_view line = log.line;
  if (line.starts_with("EAL: ")) line.remove_prefix(5);
  // rte_eal_init ends each failure with such a line of its own; the reason stands before it.
  const bool is_summary = line.starts_with("FATAL: ") || line.starts_with("Cannot init") || line.empty();
  if (!is_summary || log.last_line.empty()) log.last_line = line;
  log.line.clear();
}

ssize_t write_log(void*, const char* bytes, std::size_t size) {
  constexpr std::size_t kLongestLine = 512;
  const std::string_view text(bytes, size);
  if (text.find("PANIC in ") != std::string_view::npos) {
    if (::write(STDERR_FILENO, bytes, size) < 0) return 0;
  }
  Captured& log = captured();
  const std::scoped_lock lock(log.mutex);
  for (const char c : text) {
    if (c == '\n') {
      keep_line(log);
    } else if (log.line.size() < kLongestLine) {
      log.line += c;
    }
  }
  return static_cast<ssize_t>(size);
}

}  // namespace

void capture_eal_log() {
  static std::FILE* const stream = [] {
    std::FILE* opened =
        fopencookie(nullptr, "w", {.read = nullptr, .write = write_log, .seek = nullptr, .close = nullptr});
    if (opened != nullptr) setvbuf(opened, nullptr, _IOLBF, BUFSIZ);
    return opened;
  }();
  if (stream != nullptr) rte_openlog_stream(stream);
}

std::string last_eal_log_line() {
  Captured& log = captured();
  const std::scoped_lock lock(log.mutex);
  return log.last_line;
}

}  // namespace rodeo::pools
