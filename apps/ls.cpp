// SPDX-License-Identifier: Apache-2.0
#include "apps/ls.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

#include "apps/command_line.h"
#include "apps/file_words.h"
#include "apps/location.h"
#include "apps/nfs_servers.h"

namespace rodeo::apps {
namespace {

constexpr const char* kName = "rodeo ls";

constexpr const char* kFooter = R"(
Examples:
  rodeo ls rdma://server/export                  the names in it, sorted by their octets
  rodeo ls -la rdma://[fd00::1]:20049/export/dir all of them with their attributes
  rodeo ls rdma://server                         what the server exports
  rodeo ls soft:rodeo/data                       an export of a rodeod of this host

The exit status is 1 when something could not be listed.
)";

/// A line of the listing.
struct Row {
  std::string name{};
  nfs::Found found{};
};

class Lister {
 public:
  explicit Lister(const LsOptions& options)
      : options_(options), terminal_(isatty(STDOUT_FILENO) == 1), servers_(nfs_client_options(options.nfs)) {}

  bool list(const Location& location, bool headed) {
    auto listed = try_list(location, headed);
    if (!listed) complain(kName, location.text() + ": " + listed.error().message());
    return listed.has_value();
  }

 private:
  nfs::NfsResult<void> try_list(const Location& location, bool headed) {
    const auto server = servers_.at(location.address);
    if (!server) return tl::unexpected(server.error());
    nfs::NfsClient& client = *(*server)->client;
    if (location.path == "/") {
      const auto exports = client.exports();
      if (!exports) return tl::unexpected(exports.error());
      if (std::ranges::find(*exports, "/") == exports->end()) return print_exports(*exports);
    }
    const bool itself = options_.directory_itself;
    const auto link = itself || options_.long_form ? nfs::LastLink::kKeep : nfs::LastLink::kFollow;
    auto place = (*server)->walker.walk(location.path, link);
    if (!place) return tl::unexpected(place.error());
    if (!place->found) return tl::unexpected(nfs::answered("LOOKUP", nfs::NfsStat3::kNoent));
    std::vector<Row> rows;
    if (itself || !place->is_directory()) {
      rows.push_back({location.path, *place->found});
    } else if (auto read = read_directory(client, *place, rows); !read) {
      return read;
    }
    if (headed) {
      fmt::print("{}{}:\n", std::exchange(separate_, true) ? "\n" : "", location.text());
    }
    return options_.long_form ? print_long(client, rows) : print_names(rows);
  }

  nfs::NfsResult<void> read_directory(nfs::NfsClient& client, const nfs::Place& place, std::vector<Row>& rows) {
    auto entries = client.list(place.found->handle, place.limits.directory_bytes, !options_.long_form);
    if (!entries) return tl::unexpected(entries.error());
    std::ranges::sort(*entries, {}, &nfs::Listed::name);
    for (nfs::Listed& entry : *entries) {
      if (entry.name.starts_with('.') && !options_.all) continue;
      Row row{std::move(entry.name)};
      if (options_.long_form && (!entry.attributes || !entry.handle)) {
        auto asked = client.lookup(place.found->handle, row.name);
        if (!asked && asked.error().status == nfs::NfsStat3::kNoent) continue;  // gone meanwhile
        if (!asked) return tl::unexpected(asked.error());
        row.found = *asked;
      } else if (options_.long_form) {
        row.found = {*entry.handle, *entry.attributes};
      }
      rows.push_back(std::move(row));
    }
    return {};
  }

  static nfs::NfsResult<void> print_exports(const std::vector<std::string>& exports) {
    for (const std::string& path : exports) fmt::print("{}\n", path);
    return {};
  }

  nfs::NfsResult<void> print_names(const std::vector<Row>& rows) const {
    for (const Row& row : rows) fmt::print("{}\n", shown(row.name));
    return {};
  }

  nfs::NfsResult<void> print_long(nfs::NfsClient& client, const std::vector<Row>& rows) const {
    std::vector<std::array<std::string, 4>> cells;  // links, uid, gid, size
    std::array<std::size_t, 4> widths{};
    for (const Row& row : rows) {
      const nfs::Fattr3& about = row.found.attributes;
      const bool device = about.type == nfs::Ftype3::kBlk || about.type == nfs::Ftype3::kChr;
      cells.push_back(
          {std::to_string(about.nlink), std::to_string(about.uid), std::to_string(about.gid),
           device ? fmt::format("{}, {}", about.rdev.specdata1, about.rdev.specdata2) : std::to_string(about.size)});
      for (std::size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], cells.back()[i].size());
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const nfs::Fattr3& about = rows[i].found.attributes;
      std::string target;
      if (about.type == nfs::Ftype3::kLnk) {
        const auto text = client.readlink(rows[i].found.handle);
        target = " -> " + (text ? shown(*text) : "? (" + text.error().message() + ")");
      }
      fmt::print("{} {:>{}} {:>{}} {:>{}} {:>{}} {} {}{}\n", mode_words(about.type, about.mode), cells[i][0], widths[0],
                 cells[i][1], widths[1], cells[i][2], widths[2], cells[i][3], widths[3], minute_words(about.mtime),
                 shown(rows[i].name), target);
    }
    return {};
  }

  [[nodiscard]] std::string shown(const std::string& name) const { return terminal_ ? printable(name) : name; }

  const LsOptions& options_;
  bool terminal_;
  bool separate_ = false;
  NfsServers servers_;
};

}  // namespace

void add_ls_options(CLI::App& app, LsOptions& options) {
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  app.add_option("locations", options.locations, "What to list, as rdma://HOST[:PORT]/EXPORT/PATH")
      ->required()
      ->type_name("LOCATION");
  app.add_flag("-l", options.long_form, "Type, mode, links, uid, gid, size and time of each; links with their targets");
  app.add_flag("-a", options.all, "Names that begin with a dot, too");
  app.add_flag("-d", options.directory_itself, "Directories themselves instead of what they hold");
  add_nfs_options(app, options.nfs);
}

int run_ls(const LsOptions& options) {
  std::vector<Location> locations;
  for (const std::string& text : options.locations) {
    auto location = parse_remote_location(text);
    if (!location) {
      complain(kName, location.error().message());
      return kExitUsage;
    }
    locations.push_back(std::move(*location));
  }
  Lister lister(options);
  bool all_well = true;
  for (const Location& location : locations) all_well = lister.list(location, locations.size() > 1) && all_well;
  if (std::fflush(stdout) != 0) all_well = false;
  return all_well ? kExitOk : kExitFailure;
}

}  // namespace rodeo::apps
