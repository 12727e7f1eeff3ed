// SPDX-License-Identifier: Apache-2.0
#pragma once

// Why something that was asked of an NFS server did not happen, for whoever typed the command.

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

#include "apps/nfs/nfs3.h"
#include "pools/result.h"

namespace rodeo::nfs {

struct NfsFailure {
  NfsStat3 status = NfsStat3::kOk;  // what the server answered; kOk: nothing that could be believed
  std::string what;
  std::string next{};

  /// "what; next". Which path it was about is for the caller to put in front.
  [[nodiscard]] std::string message() const { return next.empty() ? what : what + "; " + next; }
};

template <class T>
using NfsResult = tl::expected<T, NfsFailure>;

/// In words: "no such file or directory". Statuses of MOUNT have the same numbers (RFC 1813 appendix I).
[[nodiscard]] std::string_view words_of(NfsStat3 status) noexcept;
/// `step`: what was tried, such as "LOOKUP".
[[nodiscard]] NfsFailure answered(std::string_view step, NfsStat3 status);
/// Something that no status says.
[[nodiscard]] inline tl::unexpected<NfsFailure> give_up(std::string what, std::string next = {}) {
  return tl::unexpected<NfsFailure>(NfsFailure{NfsStat3::kOk, std::move(what), std::move(next)});
}
[[nodiscard]] inline tl::unexpected<NfsFailure> give_up(const Error& error) {
  return give_up(error.where.empty() ? error.what : error.where + ": " + error.what, error.next);
}

}  // namespace rodeo::nfs
