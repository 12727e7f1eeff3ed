// SPDX-License-Identifier: Apache-2.0
// A client of NFS version 3 and MOUNT that sends whatever arguments the fuzzer wants, up to four Calls at once, against
// a live server with a memory store and one that has no memory of its own. Each Call is answered, unless the connection
// ends; each Reply is the XDR of its procedure's results, to the last octet; and when the client has gone, the engine
// holds nothing and what the store counts is what can be reached in it.
//
// Input: a script. Each step below 0xe0 is a Call: the octet's upper five bits say which procedure and its lower three
// how many turns follow; then flags, and the arguments with a 16-bit length. Others end receiving, or the connection,
// or only let time pass. In arguments, twenty octets that begin with "HND" become a handle: the fourth octet says which
// of those that the server has told of, beginning with the roots.

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <utility>

#include "apps/nfs/example_store.h"
#include "apps/nfs/fuzz_results.h"
#include "apps/nfs/fuzz_store.h"
#include "apps/nfs/memory_store.h"
#include "apps/nfs/nfs_server.h"
#include "engine/fuzz_session.h"
#include "engine/private_data.h"
#include "engine/transport_header.h"

namespace rodeo::nfs {
namespace {

using fuzz::check;
using fuzz::must;

constexpr std::uint32_t kHandleWord = 0x484e4400;
constexpr std::size_t kHandleBytes = 20;  // as the memory store's are on the wire
constexpr std::uint32_t kMaxFiles = 48;   // few, so that they run out
constexpr std::uint32_t kInlineBytes = 4096;

struct Target {
  std::uint32_t program;
  std::uint32_t version;
  std::uint32_t procedure;
};
/// 28 of them: NFS's, then MOUNT's and what nobody serves.
Target target_of(std::uint32_t index) {
  constexpr std::array<Target, 6> kOthers{{{kMountProgram, kMountVersion, 0},
                                           {kMountProgram, kMountVersion, 1},
                                           {kMountProgram, kMountVersion, 5},
                                           {kMountProgram, kMountVersion, 3},
                                           {kNfsProgram, kNfsVersion, 22},
                                           {kNfsProgram, 4, 1}}};
  return index < 22 ? Target{kNfsProgram, kNfsVersion, index} : kOthers[(index - 22) % kOthers.size()];
}

struct World {
  World() {
    Config config = fuzz::session_config();
    config.application_bytes = kLeastMemoryStoreBytes;
    engine = fuzz::open_engine(fabric, config);
    store = must(make_memory_store(engine->application_memory(), {.max_files = kMaxFiles}));
    watch = std::make_unique<fuzzed::StoreWatch>(*store);
    example = std::make_unique<ExampleStore>(std::vector<ExampleStore::File>{{"a", "some text"}, {"b", ""}});
    server = must(NfsServer::add_to(
        *engine, {{"/m", store.get(), {.squash = Squash::kNone}}, {"/e", example.get(), {}}}, config.bulk_bytes));
    must(engine->start());
    must(engine->listen(kAddress));
    peer = std::make_unique<fuzz::Peer>(fabric);
  }
  static constexpr const char* kAddress = "sim:nfs";
  dv::soft::Fabric fabric;
  // What outlives the engine's Calls stands above it.
  std::unique_ptr<Store> store;
  std::unique_ptr<fuzzed::StoreWatch> watch;
  std::unique_ptr<ExampleStore> example;
  std::unique_ptr<NfsServer> server;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<fuzz::Peer> peer;
  std::uint32_t last_xid = 0;  // never the same again: the server remembers Replies
};

class Session {
 public:
  explicit Session(World& world) : world_(world), engine_(*world.engine), peer_(*world.peer) {
    for (const Export& exported : world.server->exports()) {
      handles_.push_back(NfsServer::handle_on_wire(exported, exported.store->root()));
    }
    peer_.set_private_data(encode_private_data({.send_size = kInlineBytes, .receive_size = kInlineBytes}));
    peer_.dial(must(dv::Address::parse(World::kAddress)));
    fuzz::until(engine_, peer_, "the connection", [&] { return peer_.established(); });
  }

  void run(fuzz::Script& script) {
    fuzz::play(
        script, peer_, [&](std::uint32_t step) { call(step / 8, script); }, [&] { turn(); });
    until_answered("an answer to each Call", 0);
    fuzz::until(engine_, peer_, "the peer's end", [&] { return peer_.leave(); });
    fuzz::until(engine_, peer_, "the server's end", [&] { return engine_.connection_count() == 0; });
    fuzz::check_audit(engine_);
    world_.watch->check_and_empty();
  }

 private:
  /// A piece of the peer's memory for each Call under way: data in its first part, Long Replies in the second. A Long
  /// Call lies in both.
  static constexpr std::size_t kSlots = 4;
  static constexpr std::size_t kSlotBytes = fuzz::Peer::kMemoryBytes / kSlots;
  static constexpr std::uint32_t kDataBytes = 512;
  static constexpr std::uint32_t kLongReplyBytes = kSlotBytes - kDataBytes;
  static constexpr std::size_t kMaxArguments = 3600;  // with all headers at most kInlineBytes

  enum Flag : std::uint32_t {
    kWriteChunk = 1,
    kReplyChunk = 2,
    kReadChunk = 4,
    kLongCall = 8
  };  // and two bits of who calls

  struct Slot {
    bool busy = false;
    std::uint32_t xid = 0;
    Target target{};
    bool long_reply = false;
    fuzzed::Asked asked;
  };

  void turn() {
    engine_.step();
    peer_.poll();
    for (; answered_ < peer_.received.size(); ++answered_) answer(peer_.received[answered_]);
  }
  [[nodiscard]] std::size_t busy() const {
    return static_cast<std::size_t>(std::ranges::count(slots_, true, &Slot::busy));
  }
  void until_answered(const char* what, std::size_t most_left) {
    constexpr int kTurns = 20'000;
    for (int i = 0; busy() > most_left && !peer_.ended(); ++i) {
      if (i == kTurns) fuzz::fail(std::string("it did not happen: ") + what);
      turn();
    }
  }

  [[nodiscard]] Segment segment(std::size_t slot, std::uint32_t at, std::uint32_t length) {
    return {peer_.handle(), length, peer_.offset() + slot * kSlotBytes + at};
  }
  [[nodiscard]] std::span<std::byte> memory(std::size_t slot) {
    return peer_.memory().subspan(fuzz::Peer::kGuardBytes + slot * kSlotBytes, kSlotBytes);
  }

  [[nodiscard]] fuzz::Octets arguments(fuzz::Script& script) {
    fuzz::Octets octets = script.octets(script.u16() % (kMaxArguments + 1));
    for (std::size_t at = 0; at + kHandleBytes <= octets.size(); at += 4) {
      const std::uint32_t word = load_be32(octets.data() + at);
      if ((word & 0xffffff00U) != kHandleWord) continue;
      const FileHandle& handle = handles_[(word & 0xffU) % handles_.size()];
      // The example store's are shorter; then the length in front is wrong, unless the fuzzer finds it.
      std::memcpy(octets.data() + at, handle.octets.data(), std::min<std::size_t>(handle.size, kHandleBytes));
      at += kHandleBytes - 4;
    }
    return octets;
  }

  [[nodiscard]] static Credential credential(std::uint32_t flags) {
    Credential out;
    const std::uint32_t user = flags >> 4U & 3U;
    if (user == 3) return out;  // AUTH_NONE
    out.flavor = AuthFlavor::kSys;
    out.sys.machine_name = "fuzz";
    out.sys.uid = out.sys.gid = user * 1000;
    return out;
  }

  void call(std::uint32_t index, fuzz::Script& script) {
    until_answered("an answer to one of the Calls", kSlots - 1);
    const auto free = std::ranges::find(slots_, false, &Slot::busy);
    if (free == slots_.end()) return;  // the connection has ended
    const auto place = static_cast<std::size_t>(free - slots_.begin());
    const std::uint32_t flags = script.u8();
    const std::uint32_t data_bytes = (flags & kReadChunk) != 0 ? script.u16() % (kDataBytes + 1) : 0;
    const fuzz::Octets args = arguments(script);
    Slot& slot = *free;
    slot = {.busy = true, .xid = ++world_.last_xid, .target = target_of(index), .long_reply = false, .asked = {}};

    std::array<std::byte, kInlineBytes> message{};
    std::array<std::byte, kInlineBytes> payload{};
    std::size_t payload_bytes = encode_call_header(payload, slot.xid, slot.target.program, slot.target.version,
                                                   slot.target.procedure, credential(flags));
    std::ranges::copy(args, payload.begin() + static_cast<std::ptrdiff_t>(payload_bytes));
    note_asked(slot, args);
    payload_bytes += args.size();
    const bool long_call = (flags & kLongCall) != 0 && payload_bytes <= kSlotBytes;
    ChunkLists lists;
    if (long_call) {
      std::ranges::copy(std::span(payload).first(payload_bytes), memory(place).begin());
      (void)lists.add_read(0, segment(place, 0, static_cast<std::uint32_t>(payload_bytes)));
    }
    if ((flags & kReadChunk) != 0) {
      (void)lists.add_read(static_cast<std::uint32_t>(payload_bytes), segment(place, 0, data_bytes));
    }
    if ((flags & kWriteChunk) != 0) {
      const Segment data = segment(place, 0, kDataBytes);
      (void)lists.add_write_chunk({&data, 1});
    }
    if ((flags & kReplyChunk) != 0) {
      const Segment reply = segment(place, kDataBytes, kLongReplyBytes);
      (void)lists.set_reply({&reply, 1});
      slot.long_reply = true;
    }
    const std::size_t header_bytes = encode_header(message, slot.xid, 8, long_call ? Proc::kNomsg : Proc::kMsg, lists);
    std::size_t message_bytes = header_bytes;
    if (!long_call) {
      if (header_bytes + payload_bytes > message.size()) fuzz::fail("the arguments' bound is too large");
      std::copy_n(payload.begin(), payload_bytes, message.begin() + static_cast<std::ptrdiff_t>(header_bytes));
      message_bytes += payload_bytes;
    }
    if (!peer_.send(std::span(message).first(message_bytes))) slot.busy = false;
  }

  /// What the arguments bound the results by, where they are as the procedure has them; else it is no matter.
  static void note_asked(Slot& slot, std::span<const std::byte> args) {
    if (slot.target.program != kNfsProgram) return;
    slot.asked.proc = NfsProc3{slot.target.procedure};
    XdrReader in(args);
    (void)in.opaque(kMaxHandleBytes);
    switch (slot.asked.proc) {
      case NfsProc3::kRead:
      case NfsProc3::kWrite:
        in.skip(8);
        break;
      case NfsProc3::kReaddir:
        in.skip(8 + kVerfBytes);
        break;
      case NfsProc3::kReaddirplus:
        in.skip(8 + kVerfBytes + 4);
        break;
      default:
        return;
    }
    const std::uint32_t count = in.u32();
    if (in.ok()) slot.asked.count = count;
  }

  void answer(const fuzz::Octets& message) {
    TransportHeader header;
    ChunkLists lists;
    check(decode_reply_header(message, header, lists) == HeaderOutcome::kOk, "a malformed Reply");
    const auto found = std::ranges::find_if(slots_, [&](const Slot& s) { return s.busy && s.xid == header.xid; });
    check(found != slots_.end(), "a Reply to nothing that waits for one");
    Slot& slot = *found;
    slot.busy = false;
    if (header.proc == Proc::kError) {
      check(header.rdma_err == RdmaErr::kChunk, "ERR_VERS to a Call of version 1");
      return;
    }
    std::span<const std::byte> payload = std::span(message).subspan(header.header_bytes);
    if (header.proc == Proc::kNomsg) {
      check(slot.long_reply && lists.reply_capacity <= kLongReplyBytes, "a Long Reply without a place for it");
      payload = memory(static_cast<std::size_t>(found - slots_.begin())).subspan(kDataBytes, lists.reply_capacity);
    }
    if (lists.write_chunk_count != 0) {
      slot.asked.by_chunk = true;
      slot.asked.in_chunk = lists.write_table[0].capacity;
      check(slot.asked.in_chunk <= kDataBytes, "more was written than there was room for");
    }
    ReplyHeader reply;
    check(decode_reply(payload, reply) == ReplyOutcome::kOk && reply.xid == slot.xid, "a malformed RPC Reply");
    check(reply.reply_stat == ReplyStat::kAccepted, "a Call that is in order was denied");
    results(slot, reply, payload.subspan(reply.results_offset));
  }

  void results(const Slot& slot, const ReplyHeader& reply, std::span<const std::byte> octets) {
    const Target& target = slot.target;
    if (target.program == kNfsProgram && target.version != kNfsVersion) {
      check(reply.accept_stat == AcceptStat::kProgMismatch, "a version that is not served was");
      return;
    }
    const bool served = target.program == kNfsProgram ? target.procedure < 22 : target.procedure != 3;
    check(served || reply.accept_stat == AcceptStat::kProcUnavail, "a procedure that is not there was served");
    if (!reply.success()) {
      check(!served || reply.accept_stat == AcceptStat::kGarbageArgs, "a Call failed for another reason than its own");
      check(octets.empty(), "results of a Call that was not executed");
      return;
    }
    std::vector<FileHandle> handles;
    fuzzed::Results checked(octets, slot.asked);
    if (target.program == kNfsProgram) {
      checked.check_nfs(handles);
    } else if (target.procedure == 1) {
      checked.check_mnt(handles);
    } else if (target.procedure == 5) {
      checked.check_export();
    } else {
      checked.check_void();
    }
    for (const FileHandle& handle : handles) {
      if (handles_.size() < 256 && std::ranges::find(handles_, handle) == handles_.end()) handles_.push_back(handle);
    }
  }

  World& world_;
  Engine& engine_;
  fuzz::Peer& peer_;
  std::vector<FileHandle> handles_;
  std::array<Slot, kSlots> slots_{};
  std::size_t answered_ = 0;  // of what the peer has received
};

}  // namespace
}  // namespace rodeo::nfs

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static rodeo::nfs::World world;
  rodeo::fuzz::Script script(data, size);
  rodeo::nfs::Session(world).run(script);
  return 0;
}
