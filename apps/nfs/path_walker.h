// SPDX-License-Identifier: Apache-2.0
#pragma once

// From a path in the server's own naming, "/export/dir/file", to what is there: the export that holds it, its handle
// by MOUNT, and then LOOKUP name by name with the rights of the caller. Symbolic links are followed as the server's
// paths, so a target that begins with a slash may lead into another export.
// Runs on: the client's thread.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/nfs/nfs_client.h"

namespace rodeo::nfs {

struct Place {
  FsLimits limits;               // of the export
  FileHandle parent;             // the export's root has itself
  std::string name{};            // in the parent; empty: the export's root
  std::optional<Found> found{};  // nothing there: it may be created, as the parent is
  [[nodiscard]] bool is_directory() const noexcept { return found && found->attributes.type == Ftype3::kDir; }
};

enum class LastLink : bool { kKeep, kFollow };  // where the path itself ends at a symbolic link

class PathWalker {
 public:
  explicit PathWalker(NfsClient& client) noexcept : client_(client) {}

  /// A slash at the end means a directory, and follows a link to it.
  [[nodiscard]] NfsResult<Place> walk(std::string_view path, LastLink last_link);

 private:
  struct Step {
    std::string name;
    Found found;
  };
  struct Walk {
    FsLimits limits;
    std::vector<Step> steps{};        // from the export's root on
    std::vector<std::string> rest{};  // what is still to walk, the next one last
    bool must_be_directory = false;
  };

  [[nodiscard]] NfsResult<void> enter(Walk& walk, std::string_view path);
  [[nodiscard]] NfsResult<void> follow(Walk& walk, const FileHandle& link);
  static void push_names(Walk& walk, std::string_view path);

  NfsClient& client_;
  std::optional<std::vector<std::string>> exports_{};
  struct Root {
    Found found;
    FsLimits limits;
  };
  std::map<std::string, Root> roots_{};  // by export
};

}  // namespace rodeo::nfs
