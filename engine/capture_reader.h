// SPDX-License-Identifier: Apache-2.0
#pragma once

// Reads recorded RoCEv2 traffic (classic pcap, Ethernet, IPv4) for tests and for the benchmarks' traffic mix. It knows
// just enough of InfiniBand to join the packets of one Send and to tell connection management from data; packets it
// does not understand are passed over. Runs on: any, slow path.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "pools/byte_order.h"
#include "pools/result.h"

namespace rodeo::capture {

/// Where a message went: a queue pair of a host, from another host.
struct Route {
  std::uint32_t source = 0;  // IPv4 addresses
  std::uint32_t destination = 0;
  std::uint32_t queue_pair = 0;
  auto operator<=>(const Route&) const = default;
};

/// A whole Send on a connection, or one management datagram.
struct Message {
  Route route;
  bool management = false;      // a MAD to queue pair 1
  bool retransmission = false;  // a Send of one packet that was there before
  std::vector<std::byte> octets;
};

/// The private data of a connection request or of its acceptance, as the connection manager carries it.
struct ConnectionData {
  bool request = false;
  std::vector<std::byte> octets;
};

namespace detail {

using Octets = std::span<const std::byte>;

constexpr std::size_t kEthernetBytes = 14;
constexpr std::size_t kUdpBytes = 8;
constexpr std::size_t kBthBytes = 12;
constexpr std::size_t kDethBytes = 8;
constexpr std::size_t kIcrcBytes = 4;
constexpr std::uint32_t kRocePort = 4791;
constexpr std::uint32_t kManagementQueuePair = 1;

inline std::uint32_t be16(Octets p, std::size_t at) {
  return std::to_integer<std::uint32_t>(p[at]) << 8 | std::to_integer<std::uint32_t>(p[at + 1]);
}
inline std::uint32_t be24(Octets p, std::size_t at) { return load_be32(p.data() + at) & 0xffffffU; }
inline std::uint32_t le32(Octets p, std::size_t at) { return byte_swap(load_be32(p.data() + at)); }

/// What an opcode of the base transport header says about a Send, or nothing if it is no Send.
struct SendPart {
  bool first;
  bool last;
  std::size_t extension_bytes;  // between the base transport header and the payload
  bool datagram;
};
inline std::optional<SendPart> send_part(std::uint32_t opcode) {
  switch (opcode) {
    case 0x00:
      return SendPart{true, false, 0, false};  // RC SEND first
    case 0x01:
      return SendPart{false, false, 0, false};  // middle
    case 0x02:
      return SendPart{false, true, 0, false};  // last
    case 0x03:
      return SendPart{false, true, 4, false};  // last with immediate
    case 0x04:
      return SendPart{true, true, 0, false};  // only
    case 0x05:
      return SendPart{true, true, 4, false};  // only with immediate
    case 0x16:
      return SendPart{false, true, 4, false};  // last with invalidate
    case 0x17:
      return SendPart{true, true, 4, false};  // only with invalidate
    case 0x64:
      return SendPart{true, true, kDethBytes, true};  // UD SEND only
    default:
      return std::nullopt;
  }
}

/// One RoCEv2 packet without its outer headers and check sum.
struct Packet {
  Route route;
  std::uint32_t opcode = 0;
  std::uint32_t psn = 0;
  Octets rest;  // after the base transport header, pad removed
};
inline std::optional<Packet> roce_packet(Octets frame) {
  if (frame.size() < kEthernetBytes + 20 || be16(frame, 12) != 0x0800) return std::nullopt;
  const Octets ip = frame.subspan(kEthernetBytes);
  const std::size_t ip_header = (std::to_integer<std::size_t>(ip[0]) & 0xf) * 4;
  const std::size_t ip_total = be16(ip, 2);
  if (ip_header < 20 || ip[9] != std::byte{17} || ip_total > ip.size()) return std::nullopt;
  if (ip_total < ip_header + kUdpBytes + kBthBytes + kIcrcBytes) return std::nullopt;
  const Octets udp = ip.subspan(ip_header, ip_total - ip_header);
  if (be16(udp, 2) != kRocePort) return std::nullopt;
  const Octets bth = udp.subspan(kUdpBytes, udp.size() - kUdpBytes - kIcrcBytes);
  const std::size_t pad = std::to_integer<std::size_t>(bth[1]) >> 4 & 3;
  if (bth.size() < kBthBytes + pad) return std::nullopt;
  return Packet{{load_be32(ip.data() + 12), load_be32(ip.data() + 16), be24(bth, 4)},
                std::to_integer<std::uint32_t>(bth[0]),
                be24(bth, 8),
                bth.subspan(kBthBytes, bth.size() - kBthBytes - pad)};
}

/// Joins packets to messages. Retransmitted packets are recognised by their sequence number; those that are whole
/// messages are kept and marked, as a count of what was on the wire includes them.
class Joiner {
 public:
  void take(const Packet& packet, std::vector<Message>& out) {
    const auto part = send_part(packet.opcode);
    if (!part || packet.rest.size() < part->extension_bytes) return;
    const bool management = packet.route.queue_pair == kManagementQueuePair;
    if (part->datagram != management) return;
    const bool again = !management && !seen_.emplace(packet.route, packet.psn).second;
    if (again && !(part->first && part->last)) return;
    auto& partial = partial_[packet.route];
    if (part->first) partial.clear();
    const Octets payload = packet.rest.subspan(part->extension_bytes);
    partial.insert(partial.end(), payload.begin(), payload.end());
    if (part->last) out.push_back({packet.route, management, again, std::exchange(partial, {})});
  }

 private:
  std::set<std::pair<Route, std::uint32_t>> seen_;
  std::map<Route, std::vector<std::byte>> partial_;
};

}  // namespace detail

/// All Sends and management datagrams of a file, in the order in which they were complete.
inline Result<std::vector<Message>> read_messages(const std::filesystem::path& path) {
  constexpr std::size_t kFileHeaderBytes = 24;
  constexpr std::size_t kRecordHeaderBytes = 16;
  std::error_code unreadable;
  const std::uintmax_t size = std::filesystem::file_size(path, unreadable);
  std::string content(unreadable ? 0 : size, '\0');
  std::ifstream file{path, std::ios::binary};
  if (content.empty() || !file.read(content.data(), static_cast<std::streamsize>(content.size()))) {
    return fail(path.string(), "the capture cannot be read", "check the path and that the file is not empty");
  }
  detail::Octets left = std::as_bytes(std::span{content});
  const bool classic =
      left.size() >= kFileHeaderBytes && (detail::le32(left, 0) == 0xa1b2c3d4 || detail::le32(left, 0) == 0xa1b23c4d);
  if (!classic || detail::le32(left, 20) != 1) {
    return fail(path.string(), "this is not a little-endian pcap file of Ethernet frames",
                "convert it to classic pcap first");
  }
  std::vector<Message> messages;
  detail::Joiner joiner;
  for (left = left.subspan(kFileHeaderBytes); left.size() >= kRecordHeaderBytes;) {
    const std::size_t captured = detail::le32(left, 8);
    left = left.subspan(kRecordHeaderBytes);
    if (captured > left.size()) break;
    if (const auto packet = detail::roce_packet(left.first(captured))) joiner.take(*packet, messages);
    left = left.subspan(captured);
  }
  return messages;
}

/// The private data inside a management datagram, when it is a connection request or reply.
inline std::optional<ConnectionData> connection_data(const Message& message) {
  constexpr std::size_t kMadBytes = 256;
  constexpr std::size_t kMadHeaderBytes = 24;
  constexpr std::byte kConnectionManagement{0x07};
  if (!message.management || message.octets.size() < kMadBytes) return std::nullopt;
  const detail::Octets mad{message.octets};
  if (mad[1] != kConnectionManagement) return std::nullopt;
  const auto from = [&mad](std::size_t at) {
    return std::vector<std::byte>(mad.begin() + static_cast<std::ptrdiff_t>(at), mad.end());
  };
  switch (detail::be16(mad, 16)) {
    case 0x0010:
      return ConnectionData{true, from(kMadHeaderBytes + 140)};
    case 0x0013:
      return ConnectionData{false, from(kMadHeaderBytes + 36)};
    default:
      return std::nullopt;
  }
}

}  // namespace rodeo::capture
