// SPDX-License-Identifier: Apache-2.0
// Whatever comes over the socket by which two processes connect their software HCAs. A message that is believed goes
// out again as the same octets; and a live listener, whatever its peer sends with whatever files, goes on serving and
// keeps neither connection nor file.
//
// Input: messages, each a type, the files that come along, and 16-bit length and octets, which replace those of a good
// message of that type from its start on (or, with a high bit in the type, are sent as they are).

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/soft/cm_message.h"
#include "dv/soft/host_device.h"
#include "dv/soft/listen_socket.h"

namespace rodeo::dv::soft {
namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: %s\n", what);
  std::abort();
}

/// Without pipes, of which the HCA has none: libFuzzer opens some to have a function's name looked up.
[[nodiscard]] std::size_t open_files() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string what = std::filesystem::read_symlink(entry.path(), gone).string();
    count += !gone && !what.starts_with("pipe:") ? 1 : 0;
  }
  return count;
}

/// A shared-memory file of a size that a peer might claim for it.
[[nodiscard]] File memory_file(std::uint32_t pages, bool sealed) {
  File file(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  check(ftruncate(file.get(), static_cast<off_t>(pages) * 4096) == 0, "no memory file");
  if (sealed) check(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0, "no seal");
  return file;
}

class World {
 public:
  World() {
    char folder[] = "/tmp/rodeo-fuzz-XXXXXX";
    check(::mkdtemp(folder) != nullptr, "no folder for the socket");
    ::setenv("RODEO_RUNTIME_DIR", folder, 1);
    folder_ = folder;
    device_ = std::move(*HostDevice::open({}));
    group_ = *device_->make_poll_group();
    check(device_->listen(address_).has_value(), "no listener");
    files_ = open_files();
  }
  ~World() {
    device_.reset();
    std::filesystem::remove_all(folder_);
  }
  World(const World&) = delete;
  World& operator=(const World&) = delete;

  void run(std::span<const std::uint8_t> input) {
    {
      File socket = dial();
      for (int i = 0; i < kMaxMessages && input.size() >= 4; ++i) send_next(socket, input);
    }
    for (int i = 0; i < 8; ++i) pump();
    for (const CmId id : ids_) device_->destroy(id);
    ids_.clear();
    pump();
    // What was closed at our end is found closed at the other within some turns.
    for (int i = 0; i < 200 && open_files() != files_; ++i) pump();
    check(open_files() == files_, "a file or socket was kept");
    check(device_->usage().queue_pairs == 0, "a QP was kept");
  }

 private:
  static constexpr int kMaxMessages = 6;

  [[nodiscard]] File dial() {
    sockaddr_un name{};
    check(fill_socket_address(address_.socket_path(), name).has_value(), "no socket address");
    File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    check(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0, "nobody listens");
    return socket;
  }

  void send_next(File& socket, std::span<const std::uint8_t>& input) {
    const std::uint8_t type = input[0];
    const std::uint8_t attached = input[1];
    std::size_t length = static_cast<std::size_t>(input[2]) << 8U | input[3];
    input = input.subspan(4);
    length = std::min(length, input.size());
    // As the library would send it, to have magic, version and sizes right.
    CmMessage good;
    good.type = static_cast<CmType>(type % 9);
    good.process[0] = 17;
    good.lane = 99;
    good.qp = {.index = 0, .qpn = 64, .receive_wqes = 64};
    std::vector<File> files;
    std::vector<int> numbers;
    for (std::uint32_t i = 0; i < attached % 4U; ++i) {
      files.push_back(memory_file(attached >> 3U, (attached & 4U) != 0));
      numbers.push_back(files.back().get());
      good.regions[i] = {.address = 0x10000, .length = 4096, .file_offset = 0, .key = (i + 1) << 8U, .access = 3};
    }
    good.region_count = static_cast<std::uint32_t>(files.size());
    int ends[2];
    check(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0, "no socket pair");
    const File near(ends[0]);
    const File far(ends[1]);
    check(send_message(near.get(), good, {}), "a good message cannot be sent");
    std::vector<std::uint8_t> octets(sizeof(CmMessage) + 64);
    const ssize_t whole = recv(far.get(), octets.data(), octets.size(), 0);
    check(whole > 0, "a good message does not arrive");
    if ((type & 0x80U) != 0) {
      octets.assign(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(length));
    } else {
      octets.resize(static_cast<std::size_t>(whole));
      std::copy_n(input.begin(), std::min(length, octets.size() - kPatchFrom),
                  octets.begin() + static_cast<std::ptrdiff_t>(kPatchFrom));
    }
    input = input.subspan(length);
    if (octets.empty()) return;
    check_decoding(near, far, octets, numbers);
    send_raw(socket.get(), octets, numbers);
    pump();
    CmReceived answer;
    while (receive_message(socket.get(), answer) == CmReceive::kMessage) {
    }
  }

  /// Believed: then the same octets again when it is sent.
  static void check_decoding(const File& near, const File& far, std::span<const std::uint8_t> octets,
                             std::span<const int> numbers) {
    send_raw(near.get(), octets, numbers);
    CmReceived received;
    const CmReceive outcome = receive_message(far.get(), received);
    check(outcome == CmReceive::kMessage || outcome == CmReceive::kGarbage, "a message is lost");
    if (outcome != CmReceive::kMessage) return;
    check(received.files.size() == numbers.size(), "files are lost");
    check(received.message.private_bytes().size() == received.message.private_length, "private data is cut");
    for (const char c : received.message.reason_text()) check(c >= ' ' && c <= '~', "a reason that harms a terminal");
    check(send_message(near.get(), received.message, numbers), "it cannot be sent again");
    std::vector<std::uint8_t> again(octets.size() + 64);
    const ssize_t size = recv(far.get(), again.data(), again.size(), 0);
    check(size == static_cast<ssize_t>(octets.size()) && std::memcmp(again.data(), octets.data(), octets.size()) == 0,
          "it encodes to other octets");
  }

  static void send_raw(int socket, std::span<const std::uint8_t> octets, std::span<const int> numbers) {
    std::vector<std::uint8_t> copy(octets.begin(), octets.end());
    iovec part{copy.data(), copy.size()};
    alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(4 * sizeof(int))> control{};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    if (!numbers.empty()) {
      header.msg_control = control.data();
      header.msg_controllen = CMSG_SPACE(numbers.size_bytes());
      cmsghdr* c = CMSG_FIRSTHDR(&header);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(numbers.size_bytes());
      std::memcpy(CMSG_DATA(c), numbers.data(), numbers.size_bytes());
    }
    static_cast<void>(sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT));
  }

  void pump() {
    for (int i = 0; i < 3; ++i) {
      while (auto event = device_->next_event()) {
        if (event->kind != CmEventKind::kConnectRequest) continue;
        ids_.push_back(event->id);
        if (device_->make_qp(event->id, {.send_depth = 16, .receive_depth = 16})) {
          static_cast<void>(device_->accept(event->id, {}));
        }
      }
      std::array<Completion, 4> batch;
      poll_into(*group_, batch);
    }
  }

  /// Behind magic, version and type.
  static constexpr std::size_t kPatchFrom = offsetof(CmMessage, process);
  Address address_{Address::Scheme::kSoft, "fuzz", 0};
  std::string folder_;
  std::unique_ptr<HostDevice> device_;
  mlx5::PollGroup* group_ = nullptr;
  std::vector<CmId> ids_;
  std::size_t files_ = 0;
};

}  // namespace
}  // namespace rodeo::dv::soft

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static rodeo::dv::soft::World world;
  world.run({data, size});
  return 0;
}
