// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/exports.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <charconv>

namespace rodeo::nfs {
namespace {

constexpr unsigned kMappedBits = 96;

}  // namespace

Result<AddressRange> AddressRange::parse(std::string_view text) {
  const auto wrong = [&] {
    return fail(
        "client", "\"" + std::string(text) + "\" is no address",
        "write an IPv4 or IPv6 address, or such an address and /BITS, as 192.0.2.0/24 or fd00:db8::/32, or local");
  };
  const std::size_t slash = text.find('/');
  const std::string address(text.substr(0, slash));
  AddressRange range;
  range.text_ = text;
  if (text == "local") {
    range.kind_ = Peer::Kind::kProcess;
    return range;
  }
  unsigned widest = 128;
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  if (::inet_pton(AF_INET, address.c_str(), &ipv4.sin_addr) == 1) {
    range.prefix_ = Peer::at(reinterpret_cast<const sockaddr&>(ipv4)).address;
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

bool AddressRange::contains(const Peer& client) const noexcept {
  if (client.kind != kind_) return false;
  const std::size_t whole = bits_ / 8;
  const std::array<std::uint8_t, 16>& octets = client.address;
  if (!std::equal(prefix_.begin(), prefix_.begin() + static_cast<std::ptrdiff_t>(whole), octets.begin())) return false;
  const unsigned rest = bits_ % 8;
  return rest == 0 || ((prefix_[whole] ^ octets[whole]) >> (8 - rest)) == 0;
}

bool admits(const ExportOptions& options, const Peer& client) noexcept {
  return options.clients.empty() ||
         std::ranges::any_of(options.clients, [&](const AddressRange& range) { return range.contains(client); });
}

std::uint32_t export_id(std::string_view path) noexcept {
  std::uint32_t hash = 2'166'136'261U;  // FNV-1a
  for (const char c : path) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return hash;
}

}  // namespace rodeo::nfs
