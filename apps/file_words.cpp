// SPDX-License-Identifier: Apache-2.0
#include "apps/file_words.h"

#include <fmt/format.h>

#include <array>
#include <ctime>

namespace rodeo::apps {
namespace {

std::string formatted(nfs::NfsTime3 time, const char* format) {
  const auto seconds = static_cast<std::time_t>(time.seconds);
  std::tm local{};
  std::array<char, 64> text{};
  if (::localtime_r(&seconds, &local) == nullptr) return std::to_string(time.seconds);
  return {text.data(), std::strftime(text.data(), text.size(), format, &local)};
}

}  // namespace

std::string_view type_words(nfs::Ftype3 type) noexcept {
  switch (type) {
    case nfs::Ftype3::kReg:
      return "regular file";
    case nfs::Ftype3::kDir:
      return "directory";
    case nfs::Ftype3::kBlk:
      return "block device";
    case nfs::Ftype3::kChr:
      return "character device";
    case nfs::Ftype3::kLnk:
      return "symbolic link";
    case nfs::Ftype3::kSock:
      return "socket";
    case nfs::Ftype3::kFifo:
      return "fifo";
  }
  return "unknown";
}

std::string mode_words(nfs::Ftype3 type, std::uint32_t mode) {
  constexpr std::string_view kTypes = "?-dbclsp";  // by their numbers
  std::string text(1, kTypes[static_cast<std::size_t>(type) % kTypes.size()]);
  for (unsigned bit = 9; bit-- != 0;) text += ((mode >> bit) & 1U) != 0 ? "xwr"[bit % 3] : '-';
  constexpr struct {
    std::uint32_t bit;
    std::size_t at;
    char with;
    char without;
  } kSpecial[] = {{04000, 3, 's', 'S'}, {02000, 6, 's', 'S'}, {01000, 9, 't', 'T'}};
  for (const auto& special : kSpecial) {
    if ((mode & special.bit) != 0) text[special.at] = text[special.at] == 'x' ? special.with : special.without;
  }
  return text;
}

std::string minute_words(nfs::NfsTime3 time) { return formatted(time, "%Y-%m-%d %H:%M"); }

std::string time_words(nfs::NfsTime3 time) {
  return fmt::format("{}.{:09} {}", formatted(time, "%Y-%m-%d %H:%M:%S"), time.nseconds, formatted(time, "%z"));
}

std::string printable(std::string_view name) {
  std::string text(name);
  for (char& c : text) {
    const auto octet = static_cast<unsigned char>(c);
    if (octet < 0x20 || octet == 0x7f) c = '?';
  }
  return text;
}

}  // namespace rodeo::apps
