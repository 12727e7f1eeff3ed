// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/exports.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace rodeo::nfs {
namespace {

constexpr std::array<std::uint8_t, 12> kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr unsigned kMappedBits = 96;
using Octets = std::array<std::uint8_t, 16>;

Octets mapped(const void* ipv4) noexcept {
  Octets out{};
  std::ranges::copy(kMapped, out.begin());
  std::memcpy(out.data() + kMapped.size(), ipv4, 4);
  return out;
}

std::optional<Octets> octets_of(const sockaddr& address) noexcept {
  if (address.sa_family == AF_INET) {
    sockaddr_in in{};
    std::memcpy(&in, &address, sizeof in);
    return mapped(&in.sin_addr);
  }
  if (address.sa_family != AF_INET6) return std::nullopt;
  sockaddr_in6 in{};
  std::memcpy(&in, &address, sizeof in);
  Octets out{};
  std::memcpy(out.data(), &in.sin6_addr, out.size());
  return out;
}

}  // namespace

Result<AddressRange> AddressRange::parse(std::string_view text) {
  const auto wrong = [&] {
    return fail("client", "\"" + std::string(text) + "\" is no address",
                "write an IPv4 or IPv6 address, or such an address and /BITS, as 192.0.2.0/24 or fd00:db8::/32");
  };
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  AddressRange range;
  range.text_ = text;
  unsigned widest = 128;
  in_addr ipv4{};
  if (::inet_pton(AF_INET, address.c_str(), &ipv4) == 1) {
    range.prefix_ = mapped(&ipv4);
    widest = 32;
  } else if (::inet_pton(AF_INET6, address.c_str(), range.prefix_.data()) != 1) {
    return wrong();
  }
  range.bits_ = widest;
  if (slash != std::string_view::npos) {
    const std::string_view digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), range.bits_);
    if (error != std::errc{} || end != digits.data() + digits.size() || range.bits_ > widest) return wrong();
  }
  if (widest == 32) range.bits_ += kMappedBits;
  return range;
}

bool AddressRange::contains(const sockaddr& address) const noexcept {
  const auto octets = octets_of(address);
  if (!octets) return false;
  const std::size_t whole = bits_ / 8;
  if (!std::equal(prefix_.begin(), prefix_.begin() + static_cast<std::ptrdiff_t>(whole), octets->begin())) return false;
  const unsigned rest = bits_ % 8;
  return rest == 0 || ((prefix_[whole] ^ (*octets)[whole]) >> (8 - rest)) == 0;
}

bool admits(const ExportOptions& options, const sockaddr& client) noexcept {
  return options.clients.empty() ||
         std::ranges::any_of(options.clients, [&](const AddressRange& range) { return range.contains(client); });
}

std::uint32_t export_id(std::string_view path) noexcept {
  std::uint32_t hash = 2'166'136'261U;  // FNV-1a
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return hash;
}

}  // namespace rodeo::nfs
