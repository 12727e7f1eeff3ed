// SPDX-License-Identifier: Apache-2.0
#pragma once

// --export and --exports-file: what is exported, as people write it.
//
//   PATH=memory,size=BYTES[,OPTION...]     files in memory
//   PATH=/DIRECTORY[,OPTION...]            a directory of this host
//
// and the options of apps/export_options.cpp.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "apps/nfs/exports.h"
#include "apps/nfs/memory_store.h"
#include "engine/rodeo.h"

namespace rodeo::apps {

struct ExportSpec {
  std::string path;
  std::string directory;  // empty: in memory
  std::uint64_t memory_bytes = 0;
  nfs::MemoryStoreOptions memory;
  nfs::ExportOptions options;
};

/// A paragraph for --help.
extern const char* const kExportHelp;

[[nodiscard]] Result<ExportSpec> parse_export(std::string_view text);
/// One export a line; what follows a # and empty lines do not count.
[[nodiscard]] Result<std::vector<ExportSpec>> read_exports_file(const std::string& name);

/// Octets of application memory that these need.
[[nodiscard]] std::size_t export_memory_bytes(const std::vector<ExportSpec>& specs) noexcept;

/// The stores of the exports, and the exports. `memory`: at least export_memory_bytes().
struct OpenExports {
  std::vector<std::unique_ptr<nfs::Store>> stores;
  std::vector<nfs::Export> exports;
};
[[nodiscard]] Result<OpenExports> open_exports(const std::vector<ExportSpec>& specs, RegisteredBytes memory);

}  // namespace rodeo::apps
