// SPDX-License-Identifier: Apache-2.0

// A scripted Requester with memory windows against our Responder: which of its keys the Replies invalidate, and what of
// a Call's lengths is refused before anything is done for it.

#include <cstring>

#include "engine/test_pair.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::bytes_of;
using test::joined;
using test::Octets;
using test::Pair;
using test::RawPeer;
using test::Words;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kRpcBytes = 40;
constexpr std::uint32_t kMost = 65536;

enum Procedures : std::uint32_t { kFill = 1, kTake };

/// As many octets by Write chunk as the argument says.
void fill(Call& call, void*) noexcept {
  const std::uint32_t length = call.arguments().u32();
  const RegisteredBytes source = call.keep(call.make_buffer(kMost));
  std::memset(source.data(), 0x22, length);
  call.push(source.first(length));
  call.reply();
}
/// The sum of a reduced argument's octets.
void take(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, kMost);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    std::uint32_t sum = 0;
    for (const std::byte octet : pulled.kept(0).first(pulled.state()[0])) sum += std::to_integer<std::uint32_t>(octet);
    pulled.results().u32(sum);
    pulled.reply();
  });
}

[[nodiscard]] Program program() {
  return {.number = kProgram,
          .version = 1,
          .name = "test",
          .procedures = {{.number = kFill, .name = "FILL", .handler = fill},
                         {.number = kTake, .name = "TAKE", .handler = take, .max_read_chunks = 1}}};
}
[[nodiscard]] Config config_with(Registration registration) {
  Config config = test::small_config();
  config.registration = registration;
  return config;
}

/// The peer may be told to have R clear.
struct Peer {
  explicit Peer(Pair& p, bool flag = true)
      : raw(p, {.send_size = 4096, .receive_size = 4096, .remote_invalidation = flag}) {
    std::memset(raw.memory(), 0x11, kMost);
  }
  [[nodiscard]] Words segment(std::uint32_t key, std::size_t at, std::uint32_t length) {
    const std::uint64_t offset = raw.offset() + at;
    return {key, length, static_cast<std::uint32_t>(offset >> 32U), static_cast<std::uint32_t>(offset)};
  }
  void call(std::uint32_t xid, std::uint32_t procedure, const Words& lists, const Words& arguments) {
    raw.send(bytes_of(joined({{xid, 1, 8, 0}, lists, {xid, 0, 2, kProgram, 1, procedure, 0, 0, 0, 0}, arguments})));
  }
  /// One Write chunk of these segments.
  void fill(std::uint32_t xid, std::uint32_t length, const std::vector<Words>& segments) {
    Words lists{0, 1, static_cast<std::uint32_t>(segments.size())};
    for (const Words& one : segments) lists.insert(lists.end(), one.begin(), one.end());
    call(xid, kFill, joined({lists, {0, 0}}), {length});
  }
  [[nodiscard]] std::uint32_t window(std::size_t at, std::uint32_t length, bool write = true) {
    return raw.expose(at, length, write ? dv::WindowAccess::kRemoteWrite : dv::WindowAccess::kRemoteRead);
  }
  RawPeer raw;
};

TEST(ConformanceInvalidation, EachReplyInvalidatesTheKeyOfItsOwnCall) {
  proves("R8797-4.1-1", "R8797-4.1-2", "ENG-8797-3");
  Pair pair(program(), config_with(Registration::kRemoteInvalidation));
  Peer peer(pair);
  peer.call(1, kFill, {0, 0, 0}, {0});  // without chunks there is nothing to invalidate; now there are credits
  EXPECT_FALSE(peer.raw.receive().empty());
  EXPECT_TRUE(peer.raw.invalidated().empty());
  // Two are out at once.
  const std::uint32_t first = peer.window(0, 64);
  const std::uint32_t second = peer.window(64, 64);
  peer.fill(2, 64, {peer.segment(first, 0, 64)});
  peer.fill(3, 64, {peer.segment(second, 64, 32), peer.segment(second, 96, 32)});  // one key in two segments
  for (const std::uint32_t xid : {2U, 3U}) {
    const Octets reply = peer.raw.receive();
    ASSERT_GE(reply.size(), kMinHeaderBytes);
    EXPECT_EQ(load_be32(reply.data()), xid);
    EXPECT_EQ(peer.raw.invalidated().back(), xid == 2 ? first : second);
  }
  EXPECT_EQ(peer.raw.invalidated(), (std::vector<std::uint32_t>{first, second}));
  EXPECT_EQ(peer.raw.memory()[127], std::byte{0x22});
  EXPECT_EQ(peer.raw.memory()[128], std::byte{0x11});
  // What is invalidated is of no use any more, to anybody.
  peer.fill(4, 64, {peer.segment(first, 0, 64)});
  EXPECT_TRUE(peer.raw.receive().empty());
  EXPECT_TRUE(peer.raw.disconnected());
}

TEST(ConformanceInvalidation, OfSeveralKeysNoneIsInvalidated) {
  proves("ENG-8797-3", "R8797-4.1-2");
  Pair pair(program(), config_with(Registration::kRemoteInvalidation));
  Peer peer(pair);
  const std::uint32_t keys[] = {peer.window(0, 64), peer.window(64, 64), peer.window(128, 64, false)};
  peer.fill(1, 128, {peer.segment(keys[0], 0, 64), peer.segment(keys[1], 64, 64)});
  EXPECT_FALSE(peer.raw.receive().empty());
  // An empty segment names a key, too.
  peer.fill(2, 64, {peer.segment(keys[0], 0, 64), peer.segment(keys[1], 64, 0)});
  EXPECT_FALSE(peer.raw.receive().empty());
  // A Read chunk, and a Reply chunk that stays unused.
  peer.call(3, kTake,
            joined({{1, kRpcBytes + 4}, peer.segment(keys[2], 128, 64), {0, 0, 1, 1}, peer.segment(keys[0], 0, 64)}),
            {64});
  EXPECT_FALSE(peer.raw.receive().empty());
  EXPECT_TRUE(peer.raw.invalidated().empty());
  EXPECT_EQ(Pair::counter(*pair.server, "keys_invalidated"), 0U);
  // They are good as ever.
  peer.fill(4, 64, {peer.segment(keys[1], 64, 64)});
  EXPECT_FALSE(peer.raw.receive().empty());
  EXPECT_EQ(peer.raw.invalidated(), std::vector<std::uint32_t>{keys[1]});
}

TEST(ConformanceInvalidation, ReadsAreOverBeforeTheirKeyIsInvalidated) {
  proves("ENG-MR-6", "R8166-3.4.5-6");
  Pair pair(program(), config_with(Registration::kRemoteInvalidation));
  Peer peer(pair);
  for (std::uint32_t xid = 1; xid < 20; ++xid) {
    const std::uint32_t length = 64 * xid;
    const std::uint32_t key = peer.window(0, length, false);
    // In two segments: a Read each.
    peer.call(xid, kTake,
              joined({{1, kRpcBytes + 4},
                      peer.segment(key, 0, 32),
                      {1, kRpcBytes + 4},
                      peer.segment(key, 32, length - 32),
                      {0, 0, 0}}),
              {length});
    const Octets reply = peer.raw.receive();
    ASSERT_EQ(reply.size(), kMinHeaderBytes + kAcceptedReplyBytes + 4);
    EXPECT_EQ(load_be32(reply.data() + reply.size() - 4), 0x11 * length);
    EXPECT_EQ(peer.raw.invalidated().back(), key);
  }
  EXPECT_EQ(peer.raw.invalidated().size(), 19U);
}

TEST(ConformanceInvalidation, WithoutBothFlagsAndForErrorsNothingIsInvalidated) {
  proves("R8797-4.1-3", "ENG-RX-8");
  for (const bool ours : {false, true}) {
    for (const bool theirs : {false, true}) {
      Pair pair(program(), config_with(ours ? Registration::kRemoteInvalidation : Registration::kKeyPerCall));
      Peer peer(pair, theirs);
      const std::uint32_t key = peer.window(0, 64);
      peer.fill(1, 128, {peer.segment(key, 0, 64)});  // does not fit: ERR_CHUNK
      EXPECT_EQ(peer.raw.receive().size(), kErrChunkBytes);
      EXPECT_TRUE(peer.raw.invalidated().empty());
      peer.fill(2, 64, {peer.segment(key, 0, 64)});
      EXPECT_GT(peer.raw.receive().size(), kErrChunkBytes);
      EXPECT_EQ(!peer.raw.invalidated().empty(), ours && theirs);
      EXPECT_EQ(peer.raw.memory()[63], std::byte{0x22});
    }
  }
}

TEST(ConformanceInvalidation, AChunkWithoutSegmentsIsNoReasonToInvalidate) {  // F06
  proves("F06", "ENG-8797-3", "R8166-4.3.2-12", "ENG-RC-4");
  Pair pair(program(), config_with(Registration::kRemoteInvalidation));
  Peer peer(pair);
  peer.call(1, kFill, {0, 1, 0, 0, 0}, {8});  // an empty Write chunk
  EXPECT_EQ(peer.raw.receive().size(), kMinHeaderBytes + 8 + kAcceptedReplyBytes + 12);
  peer.call(2, kFill, {0, 0, 1, 0}, {8});  // an empty Reply chunk
  EXPECT_EQ(peer.raw.receive().size(), kMinHeaderBytes + 4 + kAcceptedReplyBytes + 12);
  EXPECT_TRUE(peer.raw.invalidated().empty());
}

TEST(ConformanceInvalidation, OurOwnTwoEndsAgree) {
  proves("R8797-4.1-1", "ENG-8797-1");
  Pair pair(program(), config_with(Registration::kRemoteInvalidation), config_with(Registration::kRemoteInvalidation));
  Connection* connection = pair.connect(8);
  const CallTarget target(kProgram, 1, kFill, {});
  const auto length = bytes_of({512});
  const RegisteredBytes sinks[] = {pair.client->application_memory().first(512)};
  for (int i = 0; i < 100; ++i) {
    std::memset(sinks[0].data(), 0, 512);
    test::Seen seen;
    ASSERT_EQ(connection->submit({.target = &target,
                                  .arguments = length,
                                  .sinks = sinks,
                                  .max_results = 8,
                                  .on_reply = test::Seen::on_reply,
                                  .context = &seen}),
              SubmitOutcome::kPosted);
    pair.until([&] { return seen.times == 1; });
    EXPECT_EQ(seen.error, CallError::kNone);
    EXPECT_EQ(sinks[0][511], std::byte{0x22});
  }
  EXPECT_EQ(Pair::counter(*pair.server, "keys_invalidated"), 100U);
  EXPECT_EQ(Pair::counter(*pair.client, "windows_invalidated_by_peer"), 100U);
  EXPECT_EQ(Pair::counter(*pair.client, "windows_invalidated"), 0U);
}

// ----------------------------------------------------------------------------------------------------------- lengths

TEST(ConformanceInvalidation, ReadChunksUpToTheLimitAreServedAndAboveItNothingIsTaken) {  // F05
  proves("F05", "R8166-3.4-6", "R8166-8.1-6", "ENG-RD-5");
  Config config = config_with(Registration::kKeyPerCall);
  config.max_read_bytes = 4096;
  Pair pair(program(), config);
  Peer peer(pair);
  const std::uint32_t key = peer.window(0, 8192, false);
  struct Case {
    std::vector<std::uint32_t> lengths;
    bool served;
  };
  const Case cases[] = {{{4096}, true},     {{4092, 4}, true}, {{4097}, false},       {{4096, 4}, false},
                        {{1, 4096}, false}, {{8192}, false},   {{0xfffffffcU}, false}};
  std::uint32_t xid = 0;
  std::uint64_t pulled = 0;
  for (const Case& one : cases) {
    Words reads;
    std::uint32_t sum = 0;
    for (const std::uint32_t length : one.lengths) {
      reads = joined({reads, {1, kRpcBytes + 4}, peer.segment(key, sum, length)});
      sum += length;
    }
    const std::uint64_t waits = Pair::counter(*pair.server, "buffer_waits");
    peer.call(++xid, kTake, joined({reads, {0, 0, 0}}), {sum});
    EXPECT_EQ(peer.raw.receive().size(), one.served ? kMinHeaderBytes + kAcceptedReplyBytes + 4 : kErrChunkBytes);
    pulled += one.served ? sum : 0;
    EXPECT_EQ(Pair::counter(*pair.server, "read_bytes_pulled"), pulled);
    EXPECT_EQ(Pair::counter(*pair.server, "buffer_waits"), waits);
  }
  EXPECT_EQ(Pair::counter(*pair.server, "reads_too_long"), 5U);
}

TEST(ConformanceInvalidation, LengthsAndOffsetsAtTheEndsOfTheirRangeAreRefused) {
  proves("ENG-SEG-2", "R8166-2.3-1");
  Pair pair(program(), config_with(Registration::kKeyPerCall));
  Peer peer(pair);
  const std::uint32_t key = peer.raw.handle();
  struct Case {
    std::uint32_t length;
    std::uint32_t high;
    std::uint32_t low;
    std::uint32_t more;  // another segment's length
    bool overflows;
  };
  const Case cases[] = {{0x1000, 0xffffffffU, 0xfffff001U, 0, true},
                        {1, 0xffffffffU, 0xfffffffeU, 0, false},  // the last octet that can be named
                        {1, 0xffffffffU, 0xffffffffU, 0, true},
                        {0xffffffffU, 0xffffffffU, 0, 0, false},
                        {0xffffffffU, 0xffffffffU, 0x2, 0, true},
                        {0xffffffffU, 0, 0, 1, true},  // the total
                        {0x80000000U, 0, 0, 0x80000000U, true}};
  std::uint32_t xid = 0;
  for (const Case& one : cases) {
    const Words first{key, one.length, one.high, one.low};
    const Words second{key, one.more, 0, 0};
    // In each of the lists; as a Read chunk it is too long in any case.
    peer.call(++xid, kTake, joined({{1, kRpcBytes + 4}, first, {1, kRpcBytes + 4}, second, {0, 0, 0}}), {0});
    const Octets read = peer.raw.receive();
    peer.call(++xid, kFill, joined({{0, 1, 2}, first, second, {0, 0}}), {0});
    const Octets write = peer.raw.receive();
    peer.call(++xid, kFill, joined({{0, 0, 1, 2}, first, second}), {0});
    const Octets reply = peer.raw.receive();
    if (one.overflows) {
      EXPECT_EQ(read.size(), kErrChunkBytes) << xid;
      EXPECT_EQ(write.size(), kErrChunkBytes) << xid;
      EXPECT_EQ(reply.size(), kErrChunkBytes) << xid;
    } else {  // nothing is to be written there, so nothing is wrong with them
      EXPECT_GT(write.size(), kErrChunkBytes) << xid;
      EXPECT_GT(reply.size(), kErrChunkBytes) << xid;
    }
  }
  EXPECT_EQ(Pair::counter(*pair.server, "read_bytes_pulled"), 0U);
  EXPECT_FALSE(peer.raw.disconnected());
}

}  // namespace
}  // namespace rodeo
