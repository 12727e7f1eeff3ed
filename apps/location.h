// SPDX-License-Identifier: Apache-2.0
#pragma once

// Where a file is, as people write it for `rodeo ls`, `cp` and `stat`:
//
//   rdma://HOST[:PORT]/EXPORT/PATH     on an NFS server
//   soft:NAME/EXPORT/PATH              on a rodeod of this host
//   PATH                               here; ./PATH for a name that would be one of the above

#include <string>
#include <string_view>

#include "pools/result.h"

namespace rodeo::apps {

struct Location {
  std::string address{};  // of the server; empty: here
  std::string path{};     // on the server it begins with a slash
  [[nodiscard]] bool remote() const noexcept { return !address.empty(); }
  [[nodiscard]] std::string text() const { return address + path; }
};

[[nodiscard]] Location parse_location(std::string_view text);
/// The same, but an Error where it is not on a server.
[[nodiscard]] Result<Location> parse_remote_location(std::string_view text);

/// `name` beneath `directory`.
[[nodiscard]] std::string path_below(std::string_view directory, std::string_view name);
/// The last name of a path: "b" of "a/b/"; empty of "/", "." and "..".
[[nodiscard]] std::string last_name(std::string_view path);

}  // namespace rodeo::apps
