// SPDX-License-Identifier: Apache-2.0
#pragma once

// `rodeo ls`: what a directory of an NFS server holds.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "apps/nfs_options.h"

namespace rodeo::apps {

struct LsOptions {
  std::vector<std::string> locations{};
  bool long_form = false;
  bool all = false;
  bool directory_itself = false;
  NfsOptions nfs{};
};

void add_ls_options(CLI::App& app, LsOptions& options);
[[nodiscard]] int run_ls(const LsOptions& options);

}  // namespace rodeo::apps
