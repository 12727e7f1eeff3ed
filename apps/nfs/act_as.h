// SPDX-License-Identifier: Apache-2.0
#pragma once

// The calling thread asks the kernel for files as somebody else: user, group, supplementary groups and rights of the
// thread alone, by the system calls themselves, since the C library's functions change them for the whole process.
// Runs on: a store's own threads.

#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "apps/nfs/store.h"

namespace rodeo::nfs {

class ActAs {
 public:
  /// `possible`: this process is root's. If not, everything is done as its user, whoever asks.
  ActAs(const Credentials& who, bool possible) noexcept : switched_(possible) {
    if (!switched_) return;
    ok_ = ::syscall(SYS_capget, &kThread, rights_.data()) == 0;
    ok_ = ::syscall(SYS_setgroups, static_cast<std::size_t>(who.gid_count), who.gids.data()) == 0 && ok_;
    ok_ = set(SYS_setfsgid, who.gid) && ok_;
    ok_ = set(SYS_setfsuid, who.uid) && ok_;
    if (who.is_root()) return;
    // A user alone takes only those over files: the right to resources would give away the blocks reserved for root.
    Rights none = rights_;
    for (__user_cap_data_struct& word : none) word.effective = 0;
    ok_ = ::syscall(SYS_capset, &kThread, none.data()) == 0 && ok_;
  }
  ActAs(const ActAs&) = delete;
  ActAs& operator=(const ActAs&) = delete;
  ~ActAs() { back(); }

  /// False: the kernel refused, and nothing must be done.
  [[nodiscard]] bool ok() const noexcept { return ok_; }
  /// As the process itself again.
  void back() noexcept {
    if (!switched_) return;
    switched_ = false;
    (void)::syscall(SYS_capset, &kThread, rights_.data());
    (void)set(SYS_setfsuid, 0);
    (void)set(SYS_setfsgid, 0);
    (void)::syscall(SYS_setgroups, std::size_t{0}, nullptr);
    (void)::syscall(SYS_capset, &kThread, rights_.data());  // setfsuid has a say in them
  }

 private:
  using Rights = std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3>;
  static constexpr __user_cap_header_struct kThread{_LINUX_CAPABILITY_VERSION_3, 0};

  /// These calls return what was before, and an identity that cannot be is how one asks for it.
  [[nodiscard]] static bool set(long call, std::uint32_t id) noexcept {
    (void)::syscall(call, id);
    return static_cast<std::uint32_t>(::syscall(call, ~0U)) == id;
  }

  bool switched_;
  bool ok_ = true;
  Rights rights_{};
};

}  // namespace rodeo::nfs
