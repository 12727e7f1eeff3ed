// SPDX-License-Identifier: Apache-2.0
#include "apps/export_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <optional>

#include "apps/command_line.h"
#include "apps/nfs/directory_store.h"

namespace rodeo::apps {

const char* const kExportHelp =
    R"(Exports are written PATH=memory,OPTION,... for files in memory, or PATH=/DIRECTORY,OPTION,... for a directory of this
host (as root), with PATH as clients mount it and these options:
  ro                read-only
  client=ADDRESS    an address or range that may use it, as 192.0.2.0/24, or local for processes of this host over
                    soft: addresses; may be repeated. Default: everyone
  no_root_squash    root of a client is root here. Default: root becomes nobody
  all_squash        everyone becomes nobody
  anonuid=N         the user and group that nobody is. Default: 65534
  anongid=N
and, in memory:
  size=BYTES        memory for file contents, such as 512M or 4G; must be said
  mode=OCTAL        permissions of the root directory. Default: 1777, so that everyone may make files
  uid=N  gid=N      its owner and group. Default: 0
  files=N           files and directories at most. Default: 1048576
--exports-file names a file with one export a line, in which # begins a comment.)";

namespace {

constexpr const char* kWhere = "export";
/// Whole blocks, so that the next store begins at one, too.
constexpr std::uint64_t kMemoryStep = 65'536;

std::optional<std::uint32_t> parse_u32(std::string_view text, int base = 10) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// A number goes where the option says.
Result<void> set_number(std::string_view option, std::string_view value, std::uint32_t& target, int base = 10) {
  const auto number = parse_u32(value, base);
  if (!number) {
    return fail(kWhere, "\"" + std::string(value) + "\" is no " + (base == 8 ? "octal " : "") + "number",
                "write " + std::string(option) + (base == 8 ? "=0755" : "=1000"));
  }
  target = *number;
  return {};
}

Result<void> take_option(std::string_view option, ExportSpec& spec) {
  const std::size_t equals = option.find('=');
  const std::string_view name = option.substr(0, equals);
  constexpr std::array<std::string_view, 5> kOfMemory{"size", "mode", "uid", "gid", "files"};
  if (!spec.directory.empty() && std::ranges::find(kOfMemory, name) != kOfMemory.end()) {
    return fail(kWhere, "a directory has a " + std::string(name) + " already", "leave the option out");
  }
  const std::string_view value = equals == std::string_view::npos ? std::string_view{} : option.substr(equals + 1);
  nfs::ExportOptions& options = spec.options;
  if (option == "ro" || option == "rw") {
    options.read_only = option == "ro";
  } else if (option == "root_squash") {
    options.squash = nfs::Squash::kRoot;
  } else if (option == "no_root_squash") {
    options.squash = nfs::Squash::kNone;
  } else if (option == "all_squash") {
    options.squash = nfs::Squash::kAll;
  } else if (name == "size") {
    const auto bytes = parse_bytes(value);
    if (!bytes || *bytes < nfs::kLeastMemoryStoreBytes) {
      return fail(kWhere, "size \"" + std::string(value) + "\" is no number of bytes from 1M up", "write size=512M");
    }
    spec.memory_bytes = *bytes / kMemoryStep * kMemoryStep;
  } else if (name == "client") {
    auto range = nfs::AddressRange::parse(value);
    if (!range) return tl::unexpected(range.error());
    options.clients.push_back(std::move(*range));
  } else if (name == "anonuid") {
    return set_number(name, value, options.anonymous_uid);
  } else if (name == "anongid") {
    return set_number(name, value, options.anonymous_gid);
  } else if (name == "mode") {
    return set_number(name, value, spec.memory.mode, 8);
  } else if (name == "uid") {
    return set_number(name, value, spec.memory.uid);
  } else if (name == "gid") {
    return set_number(name, value, spec.memory.gid);
  } else if (name == "files") {
    return set_number(name, value, spec.memory.max_files);
  } else {
    return fail(kWhere, "there is no option \"" + std::string(option) + "\"", "rodeod --help lists them");
  }
  return {};
}

}  // namespace

Result<ExportSpec> parse_export(std::string_view text) {
  const std::size_t equals = text.find('=');
  ExportSpec spec;
  spec.path = text.substr(0, equals);
  if (!spec.path.starts_with('/') || equals == std::string_view::npos) {
    return fail(kWhere, "\"" + std::string(text) + "\" is not of the form PATH=memory,size=BYTES or PATH=/DIRECTORY",
                "write --export /data=memory,size=1G");
  }
  std::string_view rest = text.substr(equals + 1);
  const std::string_view source = rest.substr(0, rest.find(','));
  if (source.starts_with('/')) {
    spec.directory = source;
  } else if (source != "memory") {
    return fail(kWhere, "\"" + std::string(source) + "\" is nothing that can be exported",
                "write " + spec.path + "=memory or " + spec.path + "=/DIRECTORY");
  }
  rest.remove_prefix(source.size());
  while (!rest.empty()) {
    rest.remove_prefix(1);  // the comma
    const std::string_view option = rest.substr(0, rest.find(','));
    if (auto taken = take_option(option, spec); !taken) return tl::unexpected(taken.error());
    rest.remove_prefix(option.size());
  }
  if (spec.directory.empty() && spec.memory_bytes == 0) {
    return fail(kWhere, spec.path + " has no size", "write " + spec.path + "=memory,size=1G");
  }
  return spec;
}

Result<std::vector<ExportSpec>> read_exports_file(const std::string& name) {
  std::ifstream file(name);
  if (!file) return fail("exports file", name + " cannot be read", "does it exist?");
  std::vector<ExportSpec> specs;
  int number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    line.resize(std::min(line.size(), line.find('#')));
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    const std::size_t end = line.find_last_not_of(" \t\r");
    auto spec = parse_export(std::string_view(line).substr(begin, end - begin + 1));
    if (!spec) return fail(name + " line " + std::to_string(number), spec.error().what, spec.error().next);
    specs.push_back(std::move(*spec));
  }
  return specs;
}

std::size_t export_memory_bytes(const std::vector<ExportSpec>& specs) noexcept {
  std::size_t bytes = 0;
  for (const ExportSpec& spec : specs) bytes += spec.memory_bytes;
  return bytes;
}

Result<OpenExports> open_exports(const std::vector<ExportSpec>& specs, RegisteredBytes memory) {
  OpenExports out;
  for (const ExportSpec& spec : specs) {
    auto store = spec.directory.empty() ? nfs::make_memory_store(memory.first(spec.memory_bytes), spec.memory)
                                        : nfs::make_directory_store(spec.directory);
    if (!store) return tl::unexpected(store.error());
    memory = memory.subspan(spec.memory_bytes);
    out.exports.push_back({spec.path, store->get(), spec.options});
    out.stores.push_back(std::move(*store));
  }
  return out;
}

}  // namespace rodeo::apps
