// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the slow path reports failure. The hot path uses outcome enums and counters instead.

#include <string>
#include <tl/expected.hpp>
#include <utility>

namespace rodeo {

/// What was wrong (with the value), where it was found, and what the user can do next. One sentence each.
struct Error {
  std::string what;
  std::string where;
  std::string next;

  /// One line for a terminal: "where: what; next".
  [[nodiscard]] std::string message() const {
    std::string line = where.empty() ? what : where + ": " + what;
    if (!next.empty()) line += "; " + next;
    return line;
  }
};

template <class T>
using Result = tl::expected<T, Error>;

/// Builds the unexpected value of any Result.
[[nodiscard]] inline tl::unexpected<Error> fail(std::string where, std::string what, std::string next = {}) {
  return tl::unexpected<Error>(Error{std::move(what), std::move(where), std::move(next)});
}

}  // namespace rodeo
