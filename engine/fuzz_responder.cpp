// SPDX-License-Identifier: Apache-2.0
// A Requester that sends whatever the fuzzer wants, against a live Responder. It sees no more Replies than it sent
// messages, each to one of them, well-formed and with a grant; of its memory nothing changes but what the Write lists
// and Reply chunks of its Calls named; and when it has gone, the Responder holds nothing.
//
// Input: a script. Each step is an octet: below 0xc0 a message (16-bit length, octets), then some turns; others end
// receiving, or the connection, or only let time pass. In messages, the word "KEY!" becomes the handle of the peer's
// memory, and the Offset of its segment becomes relative to it.

#include "engine/fuzz_session.h"
#include "engine/transport_header.h"

namespace rodeo {
namespace {

using fuzz::check;
using fuzz::must;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kHandleWord = 0x4b455921;
constexpr std::uint32_t kMaxData = 16384;

void mirror(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, kMaxData);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    pulled.push(pulled.kept(0).first(pulled.state()[0]));
    pulled.results().u32(7);
    pulled.reply();
  });
}

void echo(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const auto data = reader.opaque(kMaxData);
  if (!reader.ok()) return call.reject(AcceptStat::kGarbageArgs);
  call.results(data.size() + 8).opaque(data);
  call.reply();
}

/// As many results for Write chunks as the argument says.
void give(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const std::uint32_t count = reader.u32();
  const std::uint32_t length = reader.u32();
  if (!reader.ok() || count > 20 || length > 4096) return call.reject(AcceptStat::kGarbageArgs);
  static_cast<void>(call.results(128));
  const RegisteredBytes source = static_cast<Engine*>(context)->application_memory();
  for (std::uint32_t i = 0; i < count; ++i) call.push(source.first(length));
  call.reply();
}

struct World {
  World() {
    engine = fuzz::open_engine(fabric);
    Program program{.number = kProgram, .version = 1, .name = "fuzz", .procedures = {}};
    program.procedures.push_back(
        {.number = 0, .name = "NULL", .handler = [](Call& call, void*) noexcept { call.reply(); }});
    program.procedures.push_back({.number = 1, .name = "ECHO", .handler = echo});
    program.procedures.push_back({.number = 2, .name = "MIRROR", .handler = mirror, .max_read_chunks = 1});
    program.procedures.push_back({.number = 3, .name = "GIVE", .handler = give, .context = engine.get()});
    program.procedures.push_back({.number = 4, .name = "DEFER", .handler = [](Call& call, void*) noexcept {
                                    DeferredCall later = call.defer();
                                    later.reply();
                                  }});
    must(engine->add_program(std::move(program)));
    must(engine->start());
    must(engine->listen(kAddress));
    peer = std::make_unique<fuzz::Peer>(fabric);
  }
  static constexpr const char* kAddress = "sim:responder";
  dv::soft::Fabric fabric;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<fuzz::Peer> peer;
};

class Session {
 public:
  explicit Session(World& world) : engine_(*world.engine), peer_(*world.peer), may_change_(peer_.memory().size()) {
    peer_.dial(must(dv::Address::parse(World::kAddress)));
    fuzz::until(engine_, peer_, "the connection", [&] { return peer_.established(); });
  }

  void run(fuzz::Script& script) {
    const auto act = [&](std::uint32_t step) {
      if (step < 0xc0) send(script.octets(script.u16() % (fuzz::Peer::kBuffer + 1)));
    };
    fuzz::play(script, peer_, act, [&] { turn(); });
    fuzz::until(engine_, peer_, "the peer's end", [&] { return peer_.leave(); });
    fuzz::until(engine_, peer_, "the Responder's end", [&] { return engine_.connection_count() == 0; });
    fuzz::check_audit(engine_);
    check_memory();
    check_replies();
  }

 private:
  void turn() {
    engine_.step();
    peer_.poll();
  }

  void send(fuzz::Octets message) {
    for (std::size_t at = 0; at + 4 <= message.size(); at += 4) {
      if (load_be32(message.data() + at) != kHandleWord) continue;
      store_be32(message.data() + at, peer_.handle());
      if (at + 16 > message.size()) break;
      store_be64(message.data() + at + 8, load_be64(message.data() + at + 8) + peer_.offset());
      at += 12;
    }
    // What the Responder may write to. A header that it refuses names nothing.
    TransportHeader header;
    ChunkLists lists;
    if (decode_call_header(message, header, lists) == HeaderOutcome::kOk) {
      for (std::size_t i = 0; i < lists.write_segment_count; ++i) allow(lists.write_segments[i]);
      for (const Segment& segment : lists.reply()) allow(segment);
    }
    if (peer_.send(message) && message.size() >= 4) xids_.push_back(load_be32(message.data()));
  }

  void allow(const Segment& segment) {
    const auto base = reinterpret_cast<std::uintptr_t>(peer_.memory().data());
    if (segment.handle != peer_.handle()) return;
    for (std::size_t i = 0; i < may_change_.size(); ++i) {
      if (base + i >= segment.offset && base + i - segment.offset < segment.length) may_change_[i] = true;
    }
  }

  void check_memory() {
    const auto memory = peer_.memory();
    for (std::size_t i = 0; i < memory.size(); ++i) {
      check(may_change_[i] || memory[i] == fuzz::Peer::kUntouched, "memory has changed that no chunk list named");
    }
  }

  void check_replies() {
    for (const fuzz::Octets& reply : peer_.received) {
      TransportHeader header;
      ChunkLists lists;
      check(decode_reply_header(reply, header, lists) == HeaderOutcome::kOk, "a malformed Reply");
      check(header.credit != 0, "a Reply without a grant");
      check(header.credit <= fuzz::session_config().credits, "a grant above what is configured");
      const auto sent = std::find(xids_.begin(), xids_.end(), header.xid);
      check(sent != xids_.end(), "a Reply to nothing that was sent");
      xids_.erase(sent);
    }
  }

  Engine& engine_;
  fuzz::Peer& peer_;
  std::vector<bool> may_change_;
  std::vector<std::uint32_t> xids_;  // of messages without a Reply
};

}  // namespace
}  // namespace rodeo

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static rodeo::World world;
  rodeo::fuzz::Script script(data, size);
  rodeo::Session(world).run(script);
  return 0;
}
