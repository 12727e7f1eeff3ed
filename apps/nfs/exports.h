// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is exported, how, and to whom.

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/nfs/store.h"
#include "engine/call.h"
#include "pools/result.h"

namespace rodeo::nfs {

/// A range of IPv4 or IPv6 addresses: 192.0.2.7, 192.0.2.0/24, fd00:db8::/32. IPv4-mapped IPv6 addresses count as IPv4.
/// Or "local": processes of this host, over the software HCA.
class AddressRange {
 public:
  [[nodiscard]] static Result<AddressRange> parse(std::string_view text);
  [[nodiscard]] bool contains(const Peer& client) const noexcept;
  /// As it was written.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
  std::array<std::uint8_t, 16> prefix_{};  // IPv4 as IPv4-mapped
  unsigned bits_ = 0;
  Peer::Kind kind_ = Peer::Kind::kAddress;
};

/// Whose requests run as the anonymous user.
enum class Squash : std::uint8_t { kNone, kRoot, kAll };

struct ExportOptions {
  bool read_only = false;
  Squash squash = Squash::kRoot;
  std::uint32_t anonymous_uid = 65'534;
  std::uint32_t anonymous_gid = 65'534;
  std::vector<AddressRange> clients;  // empty: everyone
};

/// Whether this client may use the export: by MOUNT, and by each Call of NFS.
[[nodiscard]] bool admits(const ExportOptions& options, const Peer& client) noexcept;

/// A store under the path by which clients mount it. The store outlives the server.
struct Export {
  std::string path;
  Store* store = nullptr;
  ExportOptions options;
};

/// The name that handles of an export carry, the same at every start.
[[nodiscard]] std::uint32_t export_id(std::string_view path) noexcept;

}  // namespace rodeo::nfs
