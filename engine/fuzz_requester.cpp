// SPDX-License-Identifier: Apache-2.0
// A Responder that answers whatever the fuzzer wants, to a live Requester. The Calls that it gets are well-formed; each
// ends once, whatever comes or does not; what came by Write chunk is no longer than what was offered, and memory beside
// it is untouched; and when the connection has gone, the Requester holds nothing.
//
// Input: the length of the private data and its octets; a mask of the Calls to make; then a script. Each step is an
// octet: below 0xc0 a message (16-bit length, octets), below 0xe0 an RDMA Write into a segment of a Call (index, 16-bit
// start, length), then some turns; others end receiving, or the connection, or only let time pass. In messages, the
// words "XID0" to "XID?" become the XIDs of Calls, and "SEG0" to "SEG?" with the Offset after them one of their
// segments.

#include <array>

#include "engine/fuzz_session.h"
#include "engine/transport_header.h"

namespace rodeo {
namespace {

using fuzz::check;
using fuzz::must;

constexpr std::uint32_t kXidWord = 0x58494430;
constexpr std::uint32_t kSegmentWord = 0x53454730;
constexpr std::size_t kSinkBytes = 500;
constexpr std::size_t kSourceBytes = 300;
constexpr std::size_t kSlotBytes = 4096;  // of application memory, for each call: two sinks, a source
constexpr std::size_t kSecondSinkAt = 1024;
constexpr std::size_t kSourceAt = 2048;
constexpr std::byte kUntouched{0x5a};

struct Shape {
  std::size_t arguments = 8;
  std::size_t sources = 0;
  std::size_t sinks = 0;
  std::size_t max_results = 64;
  bool is_long = false;
};
constexpr std::array<Shape, 8> kShapes{{
    {},
    {.arguments = 100, .max_results = 3000},
    {.sinks = 1},
    {.sources = 1},
    {.max_results = 9000},
    {.arguments = 6000, .is_long = true},
    {.sinks = 2, .max_results = 9000},
    {.sources = 1, .sinks = 1, .max_results = 9000, .is_long = true},
}};

struct World {
  World() {
    engine = fuzz::open_engine(fabric);
    must(engine->start());
    peer = std::make_unique<fuzz::Peer>(fabric);
    peer->listen(must(dv::Address::parse(kAddress)));
  }
  static constexpr const char* kAddress = "sim:peer";
  dv::soft::Fabric fabric;
  std::unique_ptr<Engine> engine;
  std::unique_ptr<fuzz::Peer> peer;
};

class Session {
 public:
  Session(World& world, fuzz::Script& script) : engine_(*world.engine), peer_(*world.peer), script_(script) {
    peer_.begin();
    peer_.set_private_data(script_.octets(script_.u8() % 57));
    mask_ = script_.u8();
    const RegisteredBytes memory = engine_.application_memory();
    std::fill(memory.begin(), memory.end(), kUntouched);
    const std::uint64_t attempt = must(engine_.begin_connect(World::kAddress, 0, 0));
    fuzz::until(engine_, peer_, "the connection", [&] {
      connection_ = must(engine_.finish_connect(attempt));
      return connection_ != nullptr && peer_.established();
    });
  }

  void run() {
    turn();
    const auto act = [&](std::uint32_t step) {
      step < 0xc0 ? send(script_.octets(script_.u16() % (fuzz::Peer::kBuffer + 1))) : write();
    };
    fuzz::play(script_, peer_, act, [&] { turn(); });
    fuzz::until(engine_, peer_, "the peer's end", [&] { return peer_.leave(); });
    engine_.disconnect(connection_);
    fuzz::until(engine_, peer_, "the Requester's end", [&] { return engine_.connection_count() == 0; });
    for (const Made& made : made_) check(made.times == (made.posted ? 1 : 0), "a call has not ended once");
    fuzz::check_audit(engine_);
    check_memory();
  }

 private:
  struct Made {
    const Shape* shape = nullptr;
    bool posted = false;
    int times = 0;
    std::array<std::byte, 8192> arguments{};
    BulkSource source;
    std::array<RegisteredBytes, 2> sinks;
  };

  [[nodiscard]] RegisteredBytes slot(std::size_t call) const {
    return engine_.application_memory().subspan(call * kSlotBytes, kSlotBytes);
  }

  void turn() {
    for (std::size_t i = 0; i < made_.size(); ++i) {
      if ((mask_ >> i & 1U) != 0 && !made_[i].posted) submit(i);
    }
    engine_.step();
    peer_.poll();
    for (; seen_ < peer_.received.size(); ++seen_) take_message(peer_.received[seen_]);
  }

  void submit(std::size_t i) {
    static const CallTarget kTarget(0x20000001, 1, 1, {});
    Made& made = made_[i];
    made.shape = &kShapes[i];
    made.source = {4, slot(i).subspan(kSourceAt, kSourceBytes)};
    made.sinks = {slot(i).first(kSinkBytes), slot(i).subspan(kSecondSinkAt, kSinkBytes)};
    const CallRequest request{.target = &kTarget,
                              .arguments = std::span(made.arguments).first(made.shape->arguments),
                              .sources = {&made.source, made.shape->sources},
                              .sinks = {made.sinks.data(), made.shape->sinks},
                              .max_results = made.shape->max_results,
                              .force_long_call = made.shape->is_long,
                              .on_reply = on_reply,
                              .context = &made};
    made.posted = connection_->submit(request) == SubmitOutcome::kPosted;
  }

  static void on_reply(void* context, const Reply& reply) noexcept {
    auto& made = *static_cast<Made*>(context);
    check(++made.times == 1, "a call ends twice");
    if (!reply.ok()) return;
    check(reply.written.size() <= made.shape->sinks, "more Write chunks than were offered");
    for (const std::uint32_t written : reply.written) check(written <= kSinkBytes, "more than a Write chunk holds");
    std::size_t sum = 0;  // a sanitizer looks on
    for (const std::byte octet : reply.results) sum += std::to_integer<std::size_t>(octet);
    check(sum <= reply.results.size() * 255, "octets");
  }

  void take_message(const fuzz::Octets& message) {
    // The script may have made a Call in reverse direction, which is answered (RFC 8167), if only by an error.
    const Direction direction = classify(message);
    if (direction == Direction::kReply || direction == Direction::kError) {
      return check(std::ranges::find(sent_xids_, load_be32(message.data())) != sent_xids_.end(),
                   "an answer to what was not sent");
    }
    TransportHeader header;
    ChunkLists lists;
    check(decode_call_header(message, header, lists) == HeaderOutcome::kOk, "our Call is malformed");
    // Whatever its peer grants first and last: never more than the most, and one until it grants anything.
    const auto out = std::ranges::count_if(made_, [](const Made& made) { return made.posted && made.times == 0; });
    check(static_cast<std::uint32_t>(out) <= most_granted_, "more Calls than were granted");
    xids_.push_back(header.xid);
    for (std::size_t i = 0; i < lists.write_segment_count; ++i) segments_.push_back(lists.write_segments[i]);
    for (const Segment& segment : lists.reply()) segments_.push_back(segment);
  }

  void send(fuzz::Octets message) {
    for (std::size_t at = 0; at + 4 <= message.size(); at += 4) {
      const std::uint32_t word = load_be32(message.data() + at);
      if ((word & ~0xfU) == kXidWord && !xids_.empty()) {
        store_be32(message.data() + at, xids_[(word & 0xfU) % xids_.size()]);
      } else if ((word & ~0xfU) == kSegmentWord && !segments_.empty()) {
        const Segment& segment = segments_[(word & 0xfU) % segments_.size()];
        store_be32(message.data() + at, segment.handle);
        if (at + 16 <= message.size()) store_be64(message.data() + at + 8, segment.offset);
      }
    }
    if (!peer_.send(message)) return;
    if (message.size() >= 4) sent_xids_.push_back(load_be32(message.data()));
    if (message.size() >= 12) most_granted_ = std::max(most_granted_, load_be32(message.data() + 8));
  }

  void write() {
    const std::uint32_t index = script_.u8();
    const std::uint32_t start = script_.u16();
    const fuzz::Octets octets = script_.octets(script_.u8());
    if (segments_.empty() || octets.empty()) return;
    const Segment& segment = segments_[index % segments_.size()];
    if (segment.length < octets.size()) return;
    static_cast<void>(
        peer_.write(octets, segment.handle, segment.offset + start % (segment.length - octets.size() + 1)));
  }

  void check_memory() {
    for (std::size_t i = 0; i < kShapes.size(); ++i) {
      for (std::size_t at = 0; at < kSlotBytes; ++at) {
        const bool sink = (kShapes[i].sinks > 0 && at < kSinkBytes) ||
                          (kShapes[i].sinks > 1 && at >= kSecondSinkAt && at < kSecondSinkAt + kSinkBytes);
        check(sink || slot(i)[at] == kUntouched, "memory beside the sinks has changed");
      }
    }
  }

  Engine& engine_;
  fuzz::Peer& peer_;
  fuzz::Script& script_;
  Connection* connection_ = nullptr;
  std::uint32_t mask_ = 0;
  std::array<Made, kShapes.size()> made_;
  std::vector<std::uint32_t> xids_;       // of our Calls
  std::vector<std::uint32_t> sent_xids_;  // of the script's messages
  std::vector<Segment> segments_;
  std::size_t seen_ = 0;
  std::uint32_t most_granted_ = 1;
};

}  // namespace
}  // namespace rodeo

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static rodeo::World world;
  rodeo::fuzz::Script script(data, size);
  rodeo::Session(world, script).run();
  return 0;
}
