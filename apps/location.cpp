// SPDX-License-Identifier: Apache-2.0
#include "apps/location.h"

#include <algorithm>

namespace rodeo::apps {

Location parse_location(std::string_view text) {
  for (const std::string_view scheme : {"rdma://", "soft:"}) {
    if (!text.starts_with(scheme)) continue;
    const std::size_t slash = std::min(text.find('/', scheme.size()), text.size());
    const std::string_view path = text.substr(slash);
    return {std::string(text.substr(0, slash)), path.empty() ? "/" : std::string(path)};
  }
  return {{}, std::string(text)};
}

Result<Location> parse_remote_location(std::string_view text) {
  Location location = parse_location(text);
  if (location.remote()) return location;
  return fail("", "\"" + std::string(text) + "\" is not on a server",
              "write rdma://HOST[:PORT]/EXPORT/PATH, or soft:NAME/EXPORT/PATH");
}

std::string path_below(std::string_view directory, std::string_view name) {
  std::string path(directory);
  if (!path.empty() && !path.ends_with('/')) path += '/';
  return path.append(name);
}

std::string last_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  if (path == "/") return {};
  path.remove_prefix(path.rfind('/') + 1);  // npos + 1 is 0
  return path == "." || path == ".." ? std::string() : std::string(path);
}

}  // namespace rodeo::apps
