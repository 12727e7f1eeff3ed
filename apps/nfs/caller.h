// SPDX-License-Identifier: Apache-2.0
#pragma once

// As whom a client asks: what its AUTH_SYS credentials say (RFC 5531 appendix A).

#include <limits.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/rpc_message.h"

namespace rodeo::nfs {

struct Caller {
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  std::vector<std::uint32_t> gids{};  // further groups; the first 16 count
  std::string machine_name{};

  /// The user of this process, with the groups that fit.
  [[nodiscard]] static Caller of_process() {
    Caller caller{.uid = ::geteuid(), .gid = ::getegid()};
    std::array<gid_t, NGROUPS_MAX> groups{};
    const int count = ::getgroups(static_cast<int>(groups.size()), groups.data());
    for (int i = 0; i < count && caller.gids.size() < kMaxAuthSysGids; ++i) {
      if (groups[static_cast<std::size_t>(i)] != caller.gid) caller.gids.push_back(groups[static_cast<std::size_t>(i)]);
    }
    std::array<char, kMaxMachineName + 1> name{};
    if (::gethostname(name.data(), name.size() - 1) == 0) caller.machine_name = name.data();
    return caller;
  }

  /// Refers to this.
  [[nodiscard]] Credential credential() const noexcept {
    Credential out;
    out.flavor = AuthFlavor::kSys;
    out.sys.machine_name = machine_name;
    out.sys.uid = uid;
    out.sys.gid = gid;
    out.sys.gid_count = static_cast<std::uint32_t>(std::min(gids.size(), kMaxAuthSysGids));
    std::copy_n(gids.begin(), out.sys.gid_count, out.sys.gids.begin());
    return out;
  }
};

}  // namespace rodeo::nfs
