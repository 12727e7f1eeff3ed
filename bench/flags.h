// SPDX-License-Identifier: Apache-2.0
#pragma once

// Command lines of the small programs here: every flag takes a number.

#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>

namespace rodeo::bench {

struct Flag {
  const char* name;
  double* value;
  double lowest;
  double highest;
};

/// Fills the values. The exit status when there is nothing left to do: after --help, or wrong input.
[[nodiscard]] inline std::optional<int> parse_flags(int argc, char** argv, std::initializer_list<Flag> flags) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const Flag* known = nullptr;
    for (const Flag& flag : flags) {
      if (word == flag.name) known = &flag;
    }
    if (known == nullptr) {
      std::FILE* out = word == "--help" ? stdout : stderr;
      std::fprintf(out, "usage: %s", argv[0]);
      for (const Flag& flag : flags) std::fprintf(out, " [%s %g..%g]", flag.name, flag.lowest, flag.highest);
      std::fprintf(out, "\n");
      return word == "--help" ? 0 : 2;
    }
    char* end = nullptr;
    const char* text = i + 1 < argc ? argv[++i] : "";
    *known->value = std::strtod(text, &end);
    if (end == text || *end != '\0' || !(*known->value >= known->lowest && *known->value <= known->highest)) {
      std::fprintf(stderr, "%s: %s takes a number from %g to %g\n", argv[0], known->name, known->lowest,
                   known->highest);
      return 2;
    }
  }
  return std::nullopt;
}

}  // namespace rodeo::bench
