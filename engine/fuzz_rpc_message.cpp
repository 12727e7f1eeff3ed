// SPDX-License-Identifier: Apache-2.0
// Any octets as an RPC Call or Reply, and as XDR. The XDR reader reads the same from one piece as from many, and the
// XDR writer makes the same octets of what was read.

#include <algorithm>
#include <array>

#include "engine/fuzz.h"
#include "engine/rpc_message.h"
#include "engine/xdr_reader.h"
#include "engine/xdr_writer.h"

namespace rodeo {
namespace {

using fuzz::check;

void as_call(const fuzz::Octets& octets) {
  CallHeader call;
  const CallOutcome outcome = decode_call(octets, call);
  CallHeader slow;
  check(outcome == decode_call_slow(octets, slow), "the fast way decodes what the slow one refuses, or otherwise");
  if (outcome != CallOutcome::kOk) return;
  check(call.args_offset <= octets.size() && call.args_offset >= kMinCallHeaderBytes, "the arguments start outside");
  check(call.args_offset == slow.args_offset && call.xid == slow.xid && call.program == slow.program &&
            call.version == slow.version && call.procedure == slow.procedure && call.cred.flavor == slow.cred.flavor &&
            std::ranges::equal(call.cred.body, slow.cred.body),
        "the fast way decodes to something else");
  Credential credential{.flavor = call.cred.flavor, .sys = {}};
  const bool sys = call.cred.flavor == AuthFlavor::kSys && decode_auth_sys(call.cred.body, credential.sys);
  const bool none = call.cred.flavor == AuthFlavor::kNone && call.cred.body.empty();
  if (!sys && !none) return;
  if (!call.verf.body.empty() || call.verf.flavor != AuthFlavor::kNone) return;
  std::array<std::byte, kMaxCallHeaderBytes> again{};
  const std::size_t size = encode_call_header(again, call.xid, call.program, call.version, call.procedure, credential);
  check(size == call.args_offset, "the header encodes to another size");
  // Pads may hold anything on the way in, and are zero on the way out.
  fuzz::Octets expected(octets.begin(), octets.begin() + static_cast<std::ptrdiff_t>(size));
  if (sys) {
    const std::size_t name = credential.sys.machine_name.size();
    const std::size_t name_end = 32 + 8 + name;
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(name_end), (0 - name) % 4, std::byte{});
  }
  check(std::equal(expected.begin(), expected.end(), again.begin()), "the header encodes to other octets");
}

void as_reply(const fuzz::Octets& octets) {
  ReplyHeader reply;
  if (decode_reply(octets, reply) != ReplyOutcome::kOk) return;
  check(reply.results_offset <= octets.size(), "the results start outside");
  check(load_be32(octets.data()) == reply.xid, "another XID");
}

/// What one way of reading found: values and where it ended.
struct Reading {
  std::vector<std::uint64_t> values;
  fuzz::Octets bodies;
  bool ok = false;
  std::size_t position = 0;
  bool operator==(const Reading&) const = default;
};

Reading read(XdrReader reader, std::span<const std::uint8_t> plan) {
  Reading found;
  std::array<std::byte, 256> scratch{};
  const auto keep = [&](std::span<const std::byte> body) {
    found.values.push_back(body.size());
    found.bodies.insert(found.bodies.end(), body.begin(), body.end());
  };
  for (const std::uint8_t step : plan) {
    switch (step % 8) {
      case 0:
        found.values.push_back(reader.u32());
        break;
      case 1:
        found.values.push_back(reader.u64());
        break;
      case 2:
        found.values.push_back(reader.boolean() ? 1 : 0);
        break;
      case 3:
        keep(reader.opaque(step, scratch));
        break;
      case 4:
        keep(reader.opaque_fixed(step, scratch));
        break;
      case 5: {
        std::array<std::byte, 31> out{};
        if (reader.read_into(std::span(out).first(step % out.size()))) keep(std::span(out).first(step % out.size()));
        break;
      }
      case 6:
        reader.skip(step);
        break;
      default:
        found.values.push_back(static_cast<std::uint64_t>(reader.enumeration(AcceptStat::kSystemErr)));
        break;
    }
  }
  found.ok = reader.ok();
  found.position = reader.position();
  return found;
}

/// The first octets say what to read and how the rest is cut into pieces.
void as_xdr(const std::uint8_t* data, std::size_t size) {
  fuzz::Script script(data, size);
  const std::size_t steps = script.u8() % 32;
  const fuzz::Octets plan = script.octets(steps);
  const std::span<const std::uint8_t> wanted{reinterpret_cast<const std::uint8_t*>(plan.data()), plan.size()};
  const std::uint32_t cut = script.u8() % 16;
  const fuzz::Octets whole = script.octets(size);
  std::vector<fuzz::Octets> memory;
  for (std::size_t at = 0; at < whole.size();) {
    const std::size_t part = std::min<std::size_t>(1 + (at * 7 + cut) % (cut + 1), whole.size() - at);
    memory.emplace_back(whole.begin() + static_cast<std::ptrdiff_t>(at),
                        whole.begin() + static_cast<std::ptrdiff_t>(at + part));
    at += part;
  }
  std::vector<std::span<const std::byte>> pieces(memory.begin(), memory.end());
  const Reading at_once = read(XdrReader(whole), wanted);
  const Reading in_pieces = read(XdrReader(std::span<const std::span<const std::byte>>(pieces)), wanted);
  check(at_once.position <= whole.size(), "read past the end");
  check(at_once == in_pieces, "pieces read differently");
}

}  // namespace
}  // namespace rodeo

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto octets = rodeo::fuzz::octets_of(data, size);
  rodeo::as_call(octets);
  rodeo::as_reply(octets);
  rodeo::as_xdr(data, size);
  return 0;
}
