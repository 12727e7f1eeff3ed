// SPDX-License-Identifier: Apache-2.0
#pragma once

// The file system behind a directory store: file handles, objects by handle, attributes. Runs on: any thread.
//
// A handle holds the file system's own handle (name_to_handle_at), which stays good across restarts and renames, and a
// keyed hash of it: the file system would open any object of its own, also outside of the exported directory, for
// whoever makes up a handle. The key follows from the host's machine-id and the directory, so it needs no file of ours.

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <string_view>
#include <utility>

#include "apps/nfs/sip_hash.h"
#include "apps/nfs/store.h"
#include "pools/result.h"

namespace rodeo::nfs {

/// A file descriptor, owned.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Descriptor() { reset(); }
  [[nodiscard]] explicit operator bool() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int get() const noexcept { return fd_; }
  void reset() noexcept {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }

 private:
  int fd_ = -1;
};

[[nodiscard]] Fattr3 fattr_of(const struct statx& from) noexcept;

class DirectoryVolume {
 public:
  [[nodiscard]] static Result<DirectoryVolume> open(const std::string& path);

  [[nodiscard]] const FileHandle& root() const noexcept { return root_handle_; }
  [[nodiscard]] const Verf3& verifier() const noexcept { return verifier_; }
  [[nodiscard]] const SipKey& key() const noexcept { return key_; }
  /// This process is root's, and does what each Call asks as its user.
  [[nodiscard]] bool switches_users() const noexcept { return switches_users_; }

  /// The object (O_PATH). Empty, and why.
  [[nodiscard]] Descriptor find(HandleView handle, NfsStat3& status) const noexcept;
  [[nodiscard]] bool is_root(HandleView handle) const noexcept;
  /// `name` in `directory` (O_PATH), never through a symbolic link or into another file system. Empty: errno says why.
  [[nodiscard]] static Descriptor find_in(int directory, const char* name) noexcept;
  /// The same object with other flags than O_PATH. Empty: errno says why.
  [[nodiscard]] static Descriptor reopen(int object, int flags) noexcept;
  /// False: errno says why.
  [[nodiscard]] bool make_handle(int object, FileHandle& handle) const noexcept;
  [[nodiscard]] static bool stat(int object, Fattr3& attributes) noexcept;

  /// "/proc/self/fd/N", for system calls that take no O_PATH descriptor.
  class Path {
   public:
    explicit Path(int object) noexcept;
    [[nodiscard]] const char* c_str() const noexcept { return text_; }

   private:
    char text_[32];
  };

 private:
  [[nodiscard]] std::uint64_t seal(std::span<const std::byte> body) const noexcept { return sip_hash(key_, body); }

  Descriptor root_;
  FileHandle root_handle_;
  SipKey key_{};
  Verf3 verifier_{};
  bool switches_users_ = false;
};

}  // namespace rodeo::nfs
