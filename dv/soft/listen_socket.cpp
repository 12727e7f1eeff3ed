// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/listen_socket.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>

#include "pools/errno_text.h"

namespace rodeo::dv::soft {

namespace {

/// Makes or checks the folder, and returns it open and locked: two engines that start at once take turns.
Result<File> lock_folder(const std::string& where, const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return fail(where, "the folder " + folder + " cannot be made: " + errno_text(),
                "set RODEO_RUNTIME_DIR to a folder of yours");
  }
  File file(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!file) {
    return fail(where, "the folder " + folder + " cannot be opened: " + errno_text(),
                "set RODEO_RUNTIME_DIR to a folder of yours");
  }
  struct stat status {};
  if (fstat(file.get(), &status) != 0 || status.st_uid != geteuid()) {
    return fail(where, "the folder " + folder + " belongs to another user",
                "set RODEO_RUNTIME_DIR to a folder of yours");
  }
  if (flock(file.get(), LOCK_EX) != 0) return fail(where, "the folder cannot be locked: " + errno_text());
  return file;
}

/// Whether a process listens there; a dead one's socket refuses.
bool is_alive(const sockaddr_un& name) {
  const File probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  return probe && (::connect(probe.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 ||
                   errno == EAGAIN || errno == EPROTOTYPE);
}

}  // namespace

Result<void> fill_socket_address(const std::string& path, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  if (path.size() >= sizeof out.sun_path) {
    return fail("socket " + path,
                "the path has " + std::to_string(path.size()) + " bytes, and a socket's may have " +
                    std::to_string(sizeof out.sun_path - 1),
                "set RODEO_RUNTIME_DIR to a shorter folder, or choose a shorter name");
  }
  std::memcpy(out.sun_path, path.c_str(), path.size() + 1);
  return {};
}

Result<ListenSocket> make_listen_socket(const Address& address) {
  const std::string where = "listen on " + address.to_string();
  const std::string path = address.socket_path();
  sockaddr_un name{};
  if (auto good = fill_socket_address(path, name); !good) return tl::unexpected(good.error());
  const auto lock = lock_folder(where, path.substr(0, path.rfind('/')));
  if (!lock) return tl::unexpected(lock.error());

  ListenSocket result{File(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)), path};
  if (!result.socket) return fail(where, "no socket: " + errno_text(), "raise the limit on open files (`ulimit -n`)");
  const auto bind_it = [&] {
    return ::bind(result.socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0;
  };
  if (!bind_it()) {
    if (errno != EADDRINUSE) {
      return fail(where, path + " cannot be made: " + errno_text(), "set RODEO_RUNTIME_DIR to a folder of yours");
    }
    if (is_alive(name)) {
      return fail(where, "another engine listens on " + path, "stop it or choose another name");
    }
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) {
      return fail(where, path + " exists and is not a socket", "remove it or choose another name");
    }
    unlink(path.c_str());
    if (!bind_it()) {
      return fail(where, "the stale " + path + " cannot be replaced: " + errno_text(), "remove it by hand");
    }
  }
  if (::listen(result.socket.get(), SOMAXCONN) != 0) return fail(where, "listen failed: " + errno_text());
  return result;
}

}  // namespace rodeo::dv::soft
