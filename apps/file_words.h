// SPDX-License-Identifier: Apache-2.0
#pragma once

// Attributes of files as `rodeo ls` and `rodeo stat` show them.

#include <cstdint>
#include <string>
#include <string_view>

#include "apps/nfs/nfs3.h"

namespace rodeo::apps {

/// "regular file".
[[nodiscard]] std::string_view type_words(nfs::Ftype3 type) noexcept;
/// "drwxr-xr-x", with set-id and sticky bits as ls shows them.
[[nodiscard]] std::string mode_words(nfs::Ftype3 type, std::uint32_t mode);
/// Local time: "2026-12-03 04:05".
[[nodiscard]] std::string minute_words(nfs::NfsTime3 time);
/// Local time: "2026-12-03 04:05:06.000000789 +0000".
[[nodiscard]] std::string time_words(nfs::NfsTime3 time);
/// A name that does a terminal no harm: control characters become '?'.
[[nodiscard]] std::string printable(std::string_view name);

}  // namespace rodeo::apps
