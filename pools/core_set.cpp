// SPDX-License-Identifier: Apache-2.0
#include "pools/core_set.h"

#include <algorithm>
#include <charconv>
#include <optional>

namespace rodeo::pools {
namespace {

constexpr const char* kWhere = "core set";
constexpr const char* kAllowed = "write a mask such as 0x5 or a list such as 0,2-3, with cores from 0 to 1023";

std::string quoted(std::string_view text) { return std::string("\"").append(text).append("\""); }

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::optional<unsigned> number(std::string_view text) {
  unsigned value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// Adds the cores of the hexadecimal digits of a mask, lowest digit last.
Result<void> add_mask(std::string_view digits, std::vector<unsigned>& cores) {
  if (digits.empty()) return fail(kWhere, "the mask \"0x\" has no digits", kAllowed);
  for (std::size_t i = 0; i < digits.size(); ++i) {
    const char c = digits[digits.size() - 1 - i];
    const int digit = hex_digit(c);
    if (digit < 0) {
      return fail(kWhere, "\"0x" + std::string(digits) + "\" is not a mask: '" + c + "' is not a hexadecimal digit",
                  kAllowed);
    }
    for (unsigned bit = 0; bit < 4; ++bit) {
      if ((static_cast<unsigned>(digit) >> bit & 1U) == 0) continue;
      const std::size_t core = i * 4 + bit;
      if (core >= CoreSet::kMaxCores) {
        return fail(kWhere, "the mask names core " + std::to_string(core) + ", which is too large", kAllowed);
      }
      cores.push_back(static_cast<unsigned>(core));
    }
  }
  if (cores.empty()) return fail(kWhere, "the mask \"0x" + std::string(digits) + "\" names no core", kAllowed);
  return {};
}

/// Adds one number or range of a list.
Result<void> add_item(std::string_view item, std::vector<unsigned>& cores) {
  if (item.empty()) return fail(kWhere, "the list has an empty item", kAllowed);
  const std::size_t dash = item.find('-');
  const auto first = number(trimmed(item.substr(0, dash)));
  const auto last = dash == std::string_view::npos ? first : number(trimmed(item.substr(dash + 1)));
  if (!first || !last) return fail(kWhere, quoted(item) + " is neither a core number nor a range", kAllowed);
  if (*first > *last) {
    return fail(kWhere, "the range " + quoted(item) + " runs backwards", "write the smaller core first");
  }
  if (*last >= CoreSet::kMaxCores) return fail(kWhere, "the core in " + quoted(item) + " is too large", kAllowed);
  for (unsigned core = *first; core <= *last; ++core) cores.push_back(core);
  return {};
}

}  // namespace

Result<CoreSet> CoreSet::parse(std::string_view text) {
  text = trimmed(text);
  if (text.empty()) return fail(kWhere, "no core is named", kAllowed);
  CoreSet set;
  if (text.starts_with("0x") || text.starts_with("0X")) {
    if (auto added = add_mask(text.substr(2), set.cores_); !added) return tl::unexpected(added.error());
  } else {
    for (std::string_view rest = text;;) {
      const std::size_t comma = rest.find(',');
      if (auto added = add_item(trimmed(rest.substr(0, comma)), set.cores_); !added) {
        return tl::unexpected(added.error());
      }
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  }
  std::sort(set.cores_.begin(), set.cores_.end());
  set.cores_.erase(std::unique(set.cores_.begin(), set.cores_.end()), set.cores_.end());
  return set;
}

bool CoreSet::contains(unsigned core) const { return std::binary_search(cores_.begin(), cores_.end(), core); }

std::string CoreSet::to_string() const { return core_list_text(cores_); }

std::string core_list_text(std::span<const unsigned> cores) {
  if (cores.empty()) return "none";
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t end = i + 1;
    while (end < cores.size() && cores[end] == cores[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[i]);
    if (end - i > 1) text.append("-").append(std::to_string(cores[end - 1]));
    i = end;
  }
  return text;
}

}  // namespace rodeo::pools
