// SPDX-License-Identifier: Apache-2.0
#include "dv/address.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <optional>

namespace rodeo::dv {

namespace {

constexpr std::string_view kWhere = "address";
constexpr std::string_view kAllowed = "use soft:NAME, sim:NAME or rdma://HOST[:PORT][?device=NAME][&verbs=plain]";
constexpr std::uint16_t kNfsRdmaPort = 20049;
constexpr std::size_t kMaxName = 64;

/// Names become file names, so only what is harmless there.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name.front() != '.' &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
                  c == '.';
         });
}

std::optional<std::uint16_t> parse_port(std::string_view digits) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port == 0) return std::nullopt;
  return port;
}

/// What follows the ?: device=NAME, verbs=plain, or both with an & between them.
Result<void> parse_query(std::string_view query, Address& address) {
  constexpr std::string_view kDevice = "device=";
  while (true) {
    const std::size_t end = query.find('&');
    const std::string_view part = query.substr(0, end);
    if (part == "verbs=plain") {
      address.plain_verbs = true;
    } else if (part.starts_with(kDevice) && is_plain_name(part.substr(kDevice.size()))) {
      address.device = part.substr(kDevice.size());
    } else {
      return fail(std::string(kWhere), "\"" + std::string(part) + "\" neither names a device nor chooses its driver",
                  "write ?device=NAME, ?verbs=plain or ?device=NAME&verbs=plain");
    }
    if (end == std::string_view::npos) return {};
    query.remove_prefix(end + 1);
  }
}

Result<Address> parse_host(std::string_view text, std::string_view rest) {
  Address address{.scheme = Address::Scheme::kRdma, .name = {}, .port = kNfsRdmaPort};
  if (const std::size_t query = rest.find('?'); query != std::string_view::npos) {
    if (auto parsed = parse_query(rest.substr(query + 1), address); !parsed) return tl::unexpected(parsed.error());
    rest = rest.substr(0, query);
  }
  std::string_view host = rest;
  std::optional<std::string_view> port_text;
  if (rest.starts_with('[')) {  // [v6] or [v6]:port
    const std::size_t close = rest.find(']');
    if (close == std::string_view::npos || close == 1) {
      return fail(std::string(kWhere), "\"" + std::string(text) + "\" has no closing ] after the IPv6 address",
                  "write rdma://[ADDRESS]:PORT");
    }
    host = rest.substr(1, close - 1);
    rest = rest.substr(close + 1);
    if (rest.starts_with(':')) {
      port_text = rest.substr(1);
    } else if (!rest.empty()) {
      return fail(std::string(kWhere), "\"" + std::string(text) + "\" has something after the ] that is not :PORT",
                  "write rdma://[ADDRESS]:PORT");
    }
  } else if (const std::size_t colon = rest.find(':'); colon != std::string_view::npos) {
    host = rest.substr(0, colon);
    port_text = rest.substr(colon + 1);
  }
  if (host.empty() || host.find('/') != std::string_view::npos) {
    return fail(std::string(kWhere), "\"" + std::string(text) + "\" names no host", "write rdma://HOST[:PORT]");
  }
  address.name = host;
  if (port_text) {
    const auto port = parse_port(*port_text);
    if (!port) {
      return fail(std::string(kWhere), "\"" + std::string(*port_text) + "\" is not a port", "use 1 to 65535");
    }
    address.port = *port;
  }
  return address;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

}  // namespace

Result<Address> Address::parse(std::string_view text) {
  constexpr std::string_view kSoftPrefix = "soft:";
  constexpr std::string_view kSimulatedPrefix = "sim:";
  constexpr std::string_view kRdmaPrefix = "rdma://";
  if (text.starts_with(kRdmaPrefix)) return parse_host(text, text.substr(kRdmaPrefix.size()));
  const bool soft = text.starts_with(kSoftPrefix);
  if (!soft && !text.starts_with(kSimulatedPrefix)) {
    return fail(std::string(kWhere), "\"" + std::string(text) + "\" has no scheme that is known",
                std::string(kAllowed));
  }
  const std::string_view name = text.substr(soft ? kSoftPrefix.size() : kSimulatedPrefix.size());
  if (!is_plain_name(name)) {
    return fail(std::string(kWhere), "\"" + std::string(name) + "\" is not a name",
                "use 1 to 64 letters, digits, '-', '_' and '.', not beginning with '.'");
  }
  return Address{soft ? Scheme::kSoft : Scheme::kSimulated, std::string(name), 0, {}};
}

std::string Address::to_string() const {
  switch (scheme) {
    case Scheme::kSoft:
      return "soft:" + name;
    case Scheme::kSimulated:
      return "sim:" + name;
    case Scheme::kRdma:
      break;
  }
  const bool v6 = name.find(':') != std::string::npos;
  return "rdma://" + (v6 ? "[" + name + "]" : name) + ":" + std::to_string(port) +
         (device.empty() ? "" : "?device=" + device) +
         (plain_verbs ? std::string(device.empty() ? "?" : "&") + "verbs=plain" : "");
}

std::string Address::socket_path() const {
  std::string folder = environment("RODEO_RUNTIME_DIR");
  if (folder.empty()) {
    if (const std::string runtime = environment("XDG_RUNTIME_DIR"); !runtime.empty()) {
      folder = runtime + "/rodeo";
    } else {
      folder = geteuid() == 0 ? "/run/rodeo" : "/tmp/rodeo-" + std::to_string(geteuid());
    }
  }
  return folder + "/" + name + ".sock";
}

}  // namespace rodeo::dv
