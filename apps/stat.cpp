// SPDX-License-Identifier: Apache-2.0
#include "apps/stat.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/command_line.h"
#include "apps/file_words.h"
#include "apps/location.h"
#include "apps/nfs_servers.h"

namespace rodeo::apps {
namespace {

constexpr const char* kName = "rodeo stat";

constexpr const char* kFooter = R"(
Examples:
  rodeo stat rdma://server/export/file
  rodeo stat --json soft:rodeo/data/a soft:rodeo/data/b     one JSON object a line

Sizes are octets, times local ones; JSON has them as seconds and nanoseconds. The exit status is 1 when something could
not be found.
)";

nfs::NfsResult<FileReport> report_on(NfsServers& servers, const Location& location, bool follow) {
  const auto server = servers.at(location.address);
  if (!server) return tl::unexpected(server.error());
  const auto place = (*server)->walker.walk(location.path, follow ? nfs::LastLink::kFollow : nfs::LastLink::kKeep);
  if (!place) return tl::unexpected(place.error());
  if (!place->found) return tl::unexpected(nfs::answered("LOOKUP", nfs::NfsStat3::kNoent));
  FileReport report{location.text(), place->found->attributes};
  for (const std::byte octet : place->found->handle.bytes()) {
    report.handle_hex += fmt::format("{:02x}", std::to_integer<unsigned>(octet));
  }
  if (report.attributes.type == nfs::Ftype3::kLnk) {
    auto target = (*server)->client->readlink(place->found->handle);
    if (!target) return tl::unexpected(target.error());
    report.target = std::move(*target);
  }
  return report;
}

}  // namespace

std::string stat_text(const FileReport& report) {
  const nfs::Fattr3& about = report.attributes;
  std::string text = fmt::format("  File: {}", printable(report.location));
  if (report.target) text += " -> " + printable(*report.target);
  text += fmt::format("\n  Type: {}\n  Size: {}\n  Used: {}\n  Mode: {:04o} ({})\n Links: {}\n   Uid: {}\n   Gid: {}\n",
                      type_words(about.type), about.size, about.used, about.mode, mode_words(about.type, about.mode),
                      about.nlink, about.uid, about.gid);
  text += fmt::format("Device: {}, {}\n  Fsid: {:#x}\nFileid: {}\nHandle: {}\n", about.rdev.specdata1,
                      about.rdev.specdata2, about.fsid, about.fileid, report.handle_hex);
  text += fmt::format("Access: {}\nModify: {}\nChange: {}\n", time_words(about.atime), time_words(about.mtime),
                      time_words(about.ctime));
  return text;
}

std::string stat_json(const FileReport& report) {
  using Json = nlohmann::ordered_json;
  const nfs::Fattr3& about = report.attributes;
  const auto time = [](nfs::NfsTime3 from) { return Json{{"seconds", from.seconds}, {"nseconds", from.nseconds}}; };
  Json out{{"location", report.location},
           {"type", type_words(about.type)},
           {"mode", fmt::format("{:04o}", about.mode)},
           {"nlink", about.nlink},
           {"uid", about.uid},
           {"gid", about.gid},
           {"size", about.size},
           {"used", about.used},
           {"rdev", {about.rdev.specdata1, about.rdev.specdata2}},
           {"fsid", about.fsid},
           {"fileid", about.fileid},
           {"atime", time(about.atime)},
           {"mtime", time(about.mtime)},
           {"ctime", time(about.ctime)},
           {"handle", report.handle_hex}};
  if (report.target) out["target"] = *report.target;
  return out.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

void add_stat_options(CLI::App& app, StatOptions& options) {
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  app.add_option("locations", options.locations, "Files, as rdma://HOST[:PORT]/EXPORT/PATH")
      ->required()
      ->type_name("LOCATION");
  app.add_flag("-L", options.follow, "Of a symbolic link, what it leads to");
  app.add_flag("--json", options.json, "One JSON object a file");
  add_nfs_options(app, options.nfs);
}

int run_stat(const StatOptions& options) {
  NfsServers servers(nfs_client_options(options.nfs));
  bool all_well = true;
  for (const std::string& text : options.locations) {
    const auto location = parse_remote_location(text);
    if (!location) {
      complain(kName, location.error().message());
      return kExitUsage;
    }
    const auto report = report_on(servers, *location, options.follow);
    if (!report) {
      complain(kName, location->text() + ": " + report.error().message());
      all_well = false;
      continue;
    }
    fmt::print("{}", options.json ? stat_json(*report) : stat_text(*report));
  }
  if (std::fflush(stdout) != 0) all_well = false;
  return all_well ? kExitOk : kExitFailure;
}

}  // namespace rodeo::apps
