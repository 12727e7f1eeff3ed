// SPDX-License-Identifier: Apache-2.0
#pragma once

// The messages by which two processes of one host connect their software HCAs, over a SOCK_SEQPACKET Unix socket per
// connection. They mirror the exchange of the InfiniBand connection manager, with file descriptors of shared memory
// beside them:
//
//   client: kClientHello {who}            server: kServerHello {who, poll group, regions + files}
//   client: kRequest {lane, QP, regions + files unless sent before, private data}
//   server: kReply {QP, segment file unless sent before, private data} | kReject {private data, reason}
//   client: kReady
//   either: kLeave, answered by kLeft
//
// Runs on: control thread.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dv/soft/file.h"
#include "dv/soft/hca.h"
#include "pools/result.h"

namespace rodeo::dv::soft {

/// Octets of a sentence that says what went wrong and what helps.
inline constexpr std::size_t kMaxReason = 248;

enum class CmType : std::uint32_t {
  kClientHello = 1,
  kServerHello,
  kRequest,
  kReply,
  kReject,
  kReady,
  kLeave,
  kLeft,
};

struct RegionRecord {
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t file_offset = 0;
  std::uint32_t key = 0;
  std::uint32_t access = 0;
};

/// Same host and same ABI version, so the struct is the format. Only the first `region_count` records are sent.
struct CmMessage {
  std::uint64_t magic = 0;
  std::uint32_t abi = 0;
  CmType type{};
  std::uint64_t process[2] = {0, 0};
  std::uint64_t segment_bytes = 0;
  std::uint64_t lane = 0;
  std::uint32_t group = 0;
  QpAddress qp;
  std::uint32_t has_segment = 0;  // the last file is the sender's control segment
  std::uint32_t private_length = 0;
  std::uint32_t reason_length = 0;
  std::uint32_t region_count = 0;
  std::array<std::byte, kMaxReplyData> private_data{};
  std::array<char, kMaxReason> reason{};
  std::array<RegionRecord, kRegionSlots> regions{};

  void set_private_data(std::span<const std::byte> data) noexcept;
  void set_reason(const std::string& text) noexcept;
  [[nodiscard]] std::vector<std::byte> private_bytes() const;
  [[nodiscard]] std::string reason_text() const;
};

/// A message as it arrived. The files are the receiver's.
struct CmReceived {
  CmMessage message;
  std::vector<File> files;
};

enum class CmReceive : std::uint8_t { kMessage, kNothing, kClosed, kGarbage, kNoDescriptors };

/// Fills in magic and version and sends at once. False: the peer is gone, or its socket buffer is full, which a peer
/// that follows the protocol never lets happen.
[[nodiscard]] bool send_message(int socket, CmMessage& message, std::span<const int> files) noexcept;

/// The next message, if there is one. kGarbage: truncated, oversized, another version, or inconsistent in itself.
/// kNoDescriptors: this process may not open as many files as came with it.
[[nodiscard]] CmReceive receive_message(int socket, CmReceived& out);

}  // namespace rodeo::dv::soft
