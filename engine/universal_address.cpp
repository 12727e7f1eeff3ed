// SPDX-License-Identifier: Apache-2.0
#include "engine/universal_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <cstring>

#include "dv/resolved.h"

namespace rodeo {

namespace {

constexpr std::string_view kRdma = "rdma";
constexpr std::string_view kRdma6 = "rdma6";

std::optional<UniversalAddress> made(std::string_view netid, int family, const void* octets, in_port_t port) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (inet_ntop(family, octets, text.data(), text.size()) == nullptr) return std::nullopt;
  const unsigned number = ntohs(port);
  return UniversalAddress{std::string(netid), std::string(text.data()) + "." + std::to_string(number >> 8U) + "." +
                                                  std::to_string(number & 0xffU)};
}

/// Takes the decimal octet behind the last dot off.
std::optional<std::uint8_t> take_octet(std::string_view& text) {
  const std::size_t dot = text.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(dot + 1);
  std::uint8_t octet = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), octet);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  text = text.substr(0, dot);
  return octet;
}

}  // namespace

std::optional<UniversalAddress> UniversalAddress::of(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return made(kRdma, AF_INET, &in.sin_addr, in.sin_port);
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, &address, sizeof in);
  return made(kRdma6, AF_INET6, &in.sin6_addr, in.sin6_port);
}

Result<UniversalAddress> UniversalAddress::of(std::string_view address) {
  const auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  if (parsed->scheme != dv::Address::Scheme::kRdma) {
    return fail(std::string(address), "it has no universal address", "only rdma:// addresses have one");
  }
  const auto resolved = dv::Resolved::of(*parsed, true);
  if (!resolved) return tl::unexpected(resolved.error());
  auto found = of(*resolved->first());
  if (!found) return fail(std::string(address), "it is neither IPv4 nor IPv6", "choose such an address");
  return std::move(*found);
}

std::optional<sockaddr_storage> UniversalAddress::parse() const {
  std::string_view rest = text;
  const auto low = take_octet(rest);
  const auto high = low ? take_octet(rest) : std::nullopt;
  if (!high) return std::nullopt;
  const in_port_t port = htons(static_cast<std::uint16_t>((*high << 8U) | *low));
  sockaddr_storage out{};
  const std::string host(rest);
  if (netid == kRdma) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = port;
    if (inet_pton(AF_INET, host.c_str(), &in.sin_addr) != 1) return std::nullopt;
    std::memcpy(&out, &in, sizeof in);
  } else if (netid == kRdma6) {
    sockaddr_in6 in{};
    in.sin6_family = AF_INET6;
    in.sin6_port = port;
    if (inet_pton(AF_INET6, host.c_str(), &in.sin6_addr) != 1) return std::nullopt;
    std::memcpy(&out, &in, sizeof in);
  } else {
    return std::nullopt;
  }
  return out;
}

}  // namespace rodeo
