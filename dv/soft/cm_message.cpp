// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/cm_message.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace rodeo::dv::soft {

namespace {

constexpr std::uint64_t kMessageMagic = 0x6f6465'6f726d31;
constexpr std::size_t kMaxFiles = kRegionSlots + 1;
constexpr std::size_t kControlBytes = CMSG_SPACE(kMaxFiles * sizeof(int));

std::size_t size_with(std::uint32_t regions) { return offsetof(CmMessage, regions) + regions * sizeof(RegionRecord); }

/// Takes ownership of every descriptor that came along, whatever becomes of the message.
void take_files(msghdr& header, std::vector<File>& out) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      out.emplace_back(fd);
    }
  }
}

bool consistent(const CmMessage& message, std::size_t bytes, std::size_t files) {
  if (bytes < size_with(0) || message.magic != kMessageMagic || message.abi != kAbiVersion) return false;
  if (message.region_count > kRegionSlots || bytes != size_with(message.region_count)) return false;
  if (message.private_length > kMaxReplyData || message.reason_length > kMaxReason || message.has_segment > 1) {
    return false;
  }
  return files == message.region_count + message.has_segment && message.segment_bytes == kSegmentBytes;
}

}  // namespace

void CmMessage::set_private_data(std::span<const std::byte> data) noexcept {
  private_length = static_cast<std::uint32_t>(std::min(data.size(), private_data.size()));
  std::copy_n(data.begin(), private_length, private_data.begin());
}

void CmMessage::set_reason(const std::string& text) noexcept {
  reason_length = static_cast<std::uint32_t>(std::min(text.size(), reason.size()));
  std::copy_n(text.begin(), reason_length, reason.begin());
}

std::vector<std::byte> CmMessage::private_bytes() const {
  return {private_data.begin(), private_data.begin() + std::min<std::ptrdiff_t>(private_length, kMaxReplyData)};
}

std::string CmMessage::reason_text() const {
  std::string text(reason.data(), std::min<std::size_t>(reason_length, kMaxReason));
  // It ends up on a terminal.
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

bool send_message(int socket, CmMessage& message, std::span<const int> files) noexcept {
  message.magic = kMessageMagic;
  message.abi = kAbiVersion;
  message.segment_bytes = kSegmentBytes;
  iovec part{&message, size_with(message.region_count)};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!files.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    if (c == nullptr) return false;
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(c), files.data(), files.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(part.iov_len);
}

CmReceive receive_message(int socket, CmReceived& out) {
  out.files.clear();
  out.message = CmMessage{};
  iovec part{&out.message, sizeof out.message};
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    got = recvmsg(socket, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return errno == EAGAIN || errno == EWOULDBLOCK ? CmReceive::kNothing : CmReceive::kClosed;
  take_files(header, out.files);
  if (got == 0) return CmReceive::kClosed;
  // The kernel cuts off what the limit leaves no number for, too; then fewer came than there was room for.
  if ((header.msg_flags & MSG_CTRUNC) != 0 && out.files.size() < kMaxFiles) return CmReceive::kNoDescriptors;
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 ||
      !consistent(out.message, static_cast<std::size_t>(got), out.files.size())) {
    return CmReceive::kGarbage;
  }
  return CmReceive::kMessage;
}

}  // namespace rodeo::dv::soft
