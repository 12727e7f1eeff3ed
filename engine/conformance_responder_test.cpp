// SPDX-License-Identifier: Apache-2.0

// A scripted Requester against our Responder. Every expectation is about what that peer sees: octets of the Replies,
// its own memory, and what became of its Sends.

#include <cstring>

#include "engine/test_pair.h"
#include "engine/test_words.h"
#include "engine/transport_header.h"
#include "engine/xdr_pad.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::bytes_of;
using test::joined;
using test::Pair;
using test::pattern;
using test::pattern_at;
using test::RawPeer;
using test::Words;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000001;
constexpr std::uint32_t kRpcBytes = 40;  // of a Call header without authentication
constexpr std::uint32_t kNoData = 0xffffffff;
constexpr std::byte kCanary{0xee};

int null_calls = 0;
void null(Call& call, void*) noexcept {
  ++null_calls;
  call.reply();
}

/// Arguments: octets of results to make room for, then for each result its length, or kNoData for the arm of its union
/// that has no data. Each result is a word, then a DDP-eligible opaque<> where the word is 1; after the last comes 9.
void results(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  XdrWriter& writer = call.results(reader.u32());
  const RegisteredBytes source = call.keep(call.make_buffer(8192));
  std::ranges::copy(pattern(8192), source.begin());
  while (reader.remaining() != 0) {
    const std::uint32_t length = reader.u32();
    writer.u32(length == kNoData ? 0 : 1);
    if (length != kNoData) call.push(source.first(length));
  }
  writer.u32(9);
  call.reply();
}

/// A result of so many octets that is not DDP-eligible.
void wide(Call& call, void*) noexcept {
  const std::uint32_t length = call.arguments().u32();
  call.results(length + 8).opaque(pattern(length));
  call.reply();
}

/// Gives a DDP-eligible argument back as a result that is not.
void take(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, 4096);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    pulled.results(2048).opaque(pulled.kept(0).first(pulled.state()[0]));
    pulled.reply();
  });
}

/// A name, which is not DDP-eligible; a word; data, which is. Gives back the length of either.
int named_calls = 0;
void named(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const auto name = reader.opaque(4096);
  const std::uint32_t word = reader.u32();
  const BulkArgument data = call.bulk_argument(reader, 4096);
  if (!data.ok || !reader.ok()) return call.reject(AcceptStat::kGarbageArgs);
  ++named_calls;
  XdrWriter& writer = call.results();
  writer.u32(static_cast<std::uint32_t>(name.size()));
  writer.u32(word);
  writer.u32(data.length);
  call.reply();
}

enum Procedures : std::uint32_t { kNull, kResults, kWide, kTake, kNamed };

[[nodiscard]] Program program() {
  return {.number = kProgram,
          .version = 1,
          .name = "test",
          .procedures = {{.number = kNull, .name = "NULL", .handler = null},
                         {.number = kResults, .name = "RESULTS", .handler = results},
                         {.number = kWide, .name = "WIDE", .handler = wide},
                         {.number = kTake, .name = "TAKE", .handler = take, .max_read_chunks = 1},
                         {.number = kNamed, .name = "NAMED", .handler = named, .max_read_chunks = 1}}};
}

struct Lists {
  Words reads = {0};
  Words writes = {0};
  Words reply = {0};
};

struct Session {
  Session() : pair(program()), peer(pair) { std::memset(peer.memory(), static_cast<int>(kCanary), kMemory); }

  static constexpr std::size_t kMemory = 65536;

  /// A segment of the peer's memory, or the same with the length that came back.
  [[nodiscard]] Words segment(std::size_t at, std::uint32_t length) {
    const std::uint64_t offset = peer.offset() + at;
    return {peer.handle(), length, static_cast<std::uint32_t>(offset >> 32U), static_cast<std::uint32_t>(offset)};
  }
  void send(std::uint32_t procedure, const Lists& lists, const Words& arguments, std::uint32_t credits = 8) {
    ++xid;
    peer.send(bytes_of(joined({{xid, 1, credits, 0},
                               lists.reads,
                               lists.writes,
                               lists.reply,
                               {xid, 0, 2, kProgram, 1, procedure, 0, 0, 0, 0},
                               arguments})));
  }
  /// The one Reply into `reply`, with its grant put to 0 for comparison.
  void receive() {
    proves("R8166-2.2-2", "R8166-3.3-3", "R8166-4.2.2-1", "R8166-4.6-1", "R8166-4.6-4", "R8167-6-1");
    reply = peer.receive();
    ASSERT_GE(reply.size(), kErrChunkBytes);
    EXPECT_EQ(load_be32(reply.data()), xid);
    EXPECT_EQ(load_be32(reply.data() + kVersOffset), 1U);
    EXPECT_GE(load_be32(reply.data() + kCreditOffset), 1U);
    const std::uint32_t proc = load_be32(reply.data() + kProcOffset);
    EXPECT_TRUE(proc == 0 || proc == 1 || proc == 4) << proc;
    TransportHeader header;
    ChunkLists lists;
    ASSERT_EQ(decode_reply_header(reply, header, lists), HeaderOutcome::kOk);
    if (proc == 0) {  // a Reply, never a Call: nobody here said that it serves any
      EXPECT_EQ(load_be32(reply.data() + header.header_bytes + 4), 1U);
    }
    granted = load_be32(reply.data() + kCreditOffset);
    store_be32(reply.data() + kCreditOffset, 0);
    EXPECT_TRUE(peer.receive(50).empty());
  }
  void call(std::uint32_t procedure, const Lists& lists, const Words& arguments) {
    send(procedure, lists, arguments);
    receive();
  }
  /// What a Reply should be: RDMA_MSG with these lists, SUCCESS and these results.
  [[nodiscard]] std::vector<std::byte> msg(const Words& writes, const Words& reply_chunk, const Words& after) const {
    return bytes_of(joined({{xid, 1, 0, 0, 0}, writes, reply_chunk, {xid, 1, 0, 0, 0, 0}, after}));
  }
  [[nodiscard]] std::vector<std::byte> err_chunk() const { return bytes_of({xid, 1, 0, 4, 2}); }
  void expect_canary(std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) ASSERT_EQ(peer.memory()[i], kCanary) << i;
  }

  Pair pair;
  RawPeer peer;
  std::uint32_t xid = 100;
  std::uint32_t granted = 0;
  std::vector<std::byte> reply;
};

TEST(ConformanceResponder, AWriteChunkIsFilledInOrderWithoutPadAndCopiedIntoTheReply) {
  proves("R8166-3.4-3", "R8166-3.4-7", "R8166-3.4-9", "R8166-3.4-13", "R8166-3.4.6-3", "R8166-3.4.6-4", "R8166-3.4.6-5",
         "R8166-3.4.6-6", "R8166-3.4.6-9", "R8166-3.4.6-10", "R8166-3.4-10", "F14", "R8166-4.3.1-3", "R8166-4.3.2-2",
         "R8166-4.4-6", "ENG-SEG-3", "ENG-WR-5");
  Session s;
  s.call(kResults,
         {.writes =
              joined({{1, 4}, s.segment(0, 100), s.segment(200, 0), s.segment(1001, 5000), s.segment(8000, 100), {0}})},
         {0, 4001});
  // The discriminant of the result's union, the length word, and what follows without a pad.
  EXPECT_EQ(
      s.reply,
      s.msg(joined({{1, 4}, s.segment(0, 100), s.segment(200, 0), s.segment(1001, 3901), s.segment(8000, 0), {0}}), {0},
            {1, 4001, 9}));
  EXPECT_EQ(std::vector<std::byte>(s.peer.memory(), s.peer.memory() + 100), pattern(100));
  for (std::size_t i = 100; i < 4001; ++i) ASSERT_EQ(s.peer.memory()[1001 + i - 100], pattern_at(i)) << i;
  s.expect_canary(100, 1001);
  s.expect_canary(1001 + 3901, Session::kMemory);
}

TEST(ConformanceResponder, ResultsTakeTheWriteChunksInOrderAndTheRestComesInline) {
  proves("R8166-4.3.2-4", "R8166-4.3.2-7", "R8166-4.3.2-8", "R8166-3.4-11");
  Session s;
  const auto chunks = [&](std::uint32_t first, std::uint32_t second) {
    return joined({{1, 1}, s.segment(0, first), {1, 2}, s.segment(100, second), s.segment(200, 0), {0}});
  };
  const Lists offered{.writes = chunks(50, 50)};
  // The arm without data consumes no chunk; the last chunk returns unused.
  s.call(kResults, offered, {0, kNoData, 10});
  EXPECT_EQ(s.reply, s.msg(chunks(10, 0), {0}, {0, 1, 10, 9}));
  EXPECT_EQ(std::vector<std::byte>(s.peer.memory(), s.peer.memory() + 10), pattern(10));
  s.expect_canary(10, Session::kMemory);
  // Nothing for either.
  s.call(kResults, offered, {0, kNoData});
  EXPECT_EQ(s.reply, s.msg(chunks(0, 0), {0}, {0, 9}));
  // More results than chunks.
  s.call(kResults, offered, {0, 4, 8, 3});
  EXPECT_EQ(s.reply, s.msg(chunks(4, 8), {0}, {1, 4, 1, 8, 1, 3, 0x00070e00, 9}));
  s.expect_canary(108, Session::kMemory);
}

TEST(ConformanceResponder, AnEmptyWriteChunkAsksForItsResultInline) {
  proves("R8166-4.3.2-12", "R8166-4.3.2-11", "R8166-3.4.6-11");
  Session s;
  const Lists offered{.writes = joined({{1, 0, 1, 1}, s.segment(0, 50), {0}})};
  s.call(kResults, offered, {0, 5, 10});
  EXPECT_EQ(s.reply,
            s.msg(joined({{1, 0, 1, 1}, s.segment(0, 10), {0}}), {0}, {1, 5, 0x00070e15, 0x1c000000, 1, 10, 9}));
}

TEST(ConformanceResponder, ARefusalReturnsEveryChunkUnused) {
  proves("R8166-4.3.2-8", "R8166-3.4.6-4", "R8166-4.3.3-4", "R5531-9-2");
  Session s;
  const auto writes = [&](std::uint32_t length) { return joined({{1, 1}, s.segment(0, length), {0}}); };
  const auto reply_chunk = [&](std::uint32_t length) { return joined({{1, 1}, s.segment(4096, length)}); };
  s.call(77, {.writes = writes(50), .reply = reply_chunk(4096)}, {});
  EXPECT_EQ(
      s.reply,
      bytes_of(joined({{s.xid, 1, 0, 0, 0}, writes(0), reply_chunk(0), {s.xid, 1, 0, 0, 0, 3}})));  // PROC_UNAVAIL
  s.expect_canary(0, Session::kMemory);
}

TEST(ConformanceResponder, AReplyThatDoesNotFitGoesWholeIntoTheReplyChunk) {
  proves("R8166-3.2-2", "R8166-3.4-1", "R8166-3.5-3", "R8166-3.5-5", "R8166-3.5-8", "R8166-3.5-9", "R8166-4.2.4-3",
         "R8166-4.3.3-4", "R8166-4.3.3-5", "R8166-4.3.3-6");
  Session s;
  // A Write list beside it stays unused: the result is not DDP-eligible.
  const auto writes = [&](std::uint32_t length) { return joined({{1, 1}, s.segment(32768, length), {0}}); };
  const auto chunk = [&](std::uint32_t first, std::uint32_t second, std::uint32_t third) {
    return joined({{1, 3}, s.segment(0, first), s.segment(128, second), s.segment(16384, third)});
  };
  s.call(kWide, {.writes = writes(8192), .reply = chunk(100, 6000, 500)}, {5001});
  constexpr std::uint32_t kStream = 24 + 4 + 5001 + 3;
  EXPECT_EQ(s.reply, bytes_of(joined({{s.xid, 1, 0, 1, 0}, writes(0), chunk(100, kStream - 100, 0)})));
  auto stream = bytes_of({s.xid, 1, 0, 0, 0, 0, 5001});
  const auto data = pattern(5001);
  stream.insert(stream.end(), data.begin(), data.end());
  stream.resize(kStream);  // the pad is there, and zero
  std::vector<std::byte> placed(s.peer.memory(), s.peer.memory() + 100);
  placed.insert(placed.end(), s.peer.memory() + 128, s.peer.memory() + 128 + kStream - 100);
  EXPECT_EQ(placed, stream);
  s.expect_canary(100, 128);
  s.expect_canary(128 + kStream - 100, Session::kMemory);
}

TEST(ConformanceResponder, AReplyThatFitsMayComeInlineAndReturnsTheReplyChunkUnused) {
  proves("R8166-4.3.3-3", "R8166-4.3.3-4", "R8166-4.3.3-5");
  Session s;
  const auto chunk = [&](std::uint32_t first, std::uint32_t second) {
    return joined({{1, 2}, s.segment(0, first), s.segment(8192, second)});
  };
  s.call(kWide, {.reply = chunk(4096, 4096)}, {3});
  EXPECT_EQ(s.reply, s.msg({0}, chunk(0, 0), {3, 0x00070e00}));
  s.expect_canary(0, Session::kMemory);
}

TEST(ConformanceResponder, ChunksThatAreTooSmallAreAnsweredErrChunkAndNotTouched) {
  proves("R8166-4.2.4-4", "R8166-4.5-6", "R8267-3.1-3", "ENG-RC-1", "ENG-RC-4", "ENG-WR-4");
  Session s;
  const auto writes = joined({{1, 2}, s.segment(0, 100), s.segment(200, 99), {0}});
  s.call(kResults, {.writes = writes}, {0, 200});
  EXPECT_EQ(s.reply, s.err_chunk());
  s.call(kWide, {.reply = joined({{1, 1}, s.segment(0, 5000)})}, {5001});
  EXPECT_EQ(s.reply, s.err_chunk());
  s.call(kWide, {.reply = {1, 0}}, {5001});
  EXPECT_EQ(s.reply, s.err_chunk());
  s.call(kWide, {.reply = {1, 0}}, {3});
  EXPECT_EQ(s.reply, s.msg({0}, {1, 0}, {3, 0x00070e00}));
  s.expect_canary(0, Session::kMemory);
}

TEST(ConformanceResponder, ChunksThatClaimTheAbsurdAreBoundedWork) {  // F09
  proves("F09");
  {
    Session s;
    const auto writes = joined({{1, 2}, s.segment(0, 2048), s.segment(4096, 2048), {0}});
    s.call(kResults, {.writes = writes}, {0, 8192});
    EXPECT_EQ(s.reply, s.err_chunk());
    s.expect_canary(0, Session::kMemory);
    // A Reply chunk of 4 GiB: as much of it is used as the Reply has.
    s.call(kWide, {.reply = joined({{1, 1}, s.segment(0, 0xffffffff)})}, {3});
    EXPECT_EQ(s.reply, s.msg({0}, joined({{1, 1}, s.segment(0, 0)}), {3, 0x00070e00}));
    s.expect_canary(0, Session::kMemory);
    s.call(kWide, {.reply = joined({{1, 1}, s.segment(0, 0xffffffff)})}, {5001});
    constexpr std::uint32_t kLongReply = kAcceptedReplyBytes + 4 + 5004;
    EXPECT_EQ(s.reply, bytes_of(joined({{s.xid, 1, 0, 1, 0, 0, 1, 1}, s.segment(0, kLongReply)})));
    s.expect_canary(kLongReply, Session::kMemory);
  }
  // So many segments need a receive that is larger than ours are by default.
  Config config = test::small_config();
  config.inline_receive_bytes = 32768;
  Pair pair(program(), config);
  RawPeer peer(pair, {.send_size = 32768, .receive_size = 4096});
  Words reply_chunk = {1, 1000};
  for (std::uint32_t i = 0; i < 1000; ++i) {
    const std::uint64_t offset = peer.offset() + i * 64;
    reply_chunk =
        joined({reply_chunk,
                {peer.handle(), 64, static_cast<std::uint32_t>(offset >> 32U), static_cast<std::uint32_t>(offset)}});
  }
  const auto call = [&](std::uint32_t xid, std::uint32_t procedure, const Words& chunk, const Words& arguments) {
    peer.send(
        bytes_of(joined({{xid, 1, 8, 0, 0, 0}, chunk, {xid, 0, 2, kProgram, 1, procedure, 0, 0, 0, 0}, arguments})));
    std::vector<std::byte> reply = peer.receive();
    if (reply.size() >= kErrChunkBytes) store_be32(reply.data() + kCreditOffset, 0);
    return reply;
  };
  std::memset(peer.memory(), static_cast<int>(kCanary), Session::kMemory);
  EXPECT_EQ(call(1, kWide, reply_chunk, {5001}), bytes_of({1, 1, 0, 4, 2}));
  EXPECT_EQ(call(2, kNull, {0}, {}), bytes_of({2, 1, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0}));
  for (std::size_t i = 0; i < Session::kMemory; ++i) ASSERT_EQ(peer.memory()[i], kCanary) << i;
}

TEST(ConformanceResponder, AReadChunkMayBeSplitAnywhereAndKeepOrLeaveItsPad) {
  proves("F14", "R8166-3.4-2", "R8166-3.4-5", "R8166-3.4.5-3", "R8166-3.4.5-4", "R8166-3.4.5-5", "R8166-3.4.5-11",
         "R8166-4.5.2-4");
  Session s;
  constexpr std::uint32_t kItem = 1001;
  std::ranges::copy(pattern(5), s.peer.memory() + 5000);  // the first piece lies behind the others
  for (std::size_t i = 5; i < kItem; ++i) s.peer.memory()[100 + i - 5] = pattern_at(i);
  const auto read = [&](std::uint32_t last) {
    return joined({{1, kRpcBytes + 4},
                   s.segment(5000, 5),
                   {1, kRpcBytes + 4},
                   s.segment(100, 1),
                   {1, kRpcBytes + 4},
                   s.segment(101, last),
                   {0}});
  };
  Words taken = {kItem};
  auto data = pattern(kItem);
  data.resize(kItem + 3);
  for (std::size_t i = 0; i < data.size(); i += 4) taken.push_back(load_be32(data.data() + i));
  s.call(kTake, {.reads = read(kItem - 6)}, {kItem});
  EXPECT_EQ(s.reply, s.msg({0}, {0}, taken));
  s.call(kTake, {.reads = read(kItem - 6 + 3)}, {kItem});
  EXPECT_EQ(s.reply, s.msg({0}, {0}, taken));
  s.call(kTake, {}, taken);
  EXPECT_EQ(s.reply, s.msg({0}, {0}, taken));  // and inline
  for (const std::uint32_t wrong : {kItem - 6 - 1, kItem - 6 + 7}) {
    s.call(kTake, {.reads = read(wrong)}, {kItem});
    EXPECT_EQ(s.reply, bytes_of({s.xid, 1, 0, 0, 0, 0, 0, s.xid, 1, 0, 0, 0, 4}));  // GARBAGE_ARGS
  }
}

TEST(ConformanceResponder, APositionZeroChunkADataChunkAndBothAreServedWithAndWithoutAWriteChunk) {
  proves("R8166-3.5-4", "R8166-3.5-6", "R8166-4-3", "R8267-6.4-7", "ENG-MX-2", "ENG-MX-4");
  constexpr std::uint32_t kItem = 8;
  const auto item = pattern(kItem);
  const Words octets = {load_be32(item.data()), load_be32(item.data() + 4)};
  for (const bool long_call : {false, true}) {
    for (const bool data_chunk : {false, true}) {
      for (const bool write_chunk : {false, true}) {
        Session s;
        std::ranges::copy(item, s.peer.memory() + 4096);
        const auto writes = [&](std::uint32_t length) {
          return write_chunk ? joined({{1, 1}, s.segment(8192, length), {0}}) : Words{0};
        };
        ++s.xid;
        Words rpc = {s.xid, 0, 2, kProgram, 1, kTake, 0, 0, 0, 0, kItem};
        if (!data_chunk) rpc.insert(rpc.end(), octets.begin(), octets.end());
        const auto stream = bytes_of(rpc);
        std::ranges::copy(stream, s.peer.memory());
        Words reads;
        if (long_call) reads = joined({{1, 0}, s.segment(0, static_cast<std::uint32_t>(stream.size()))});
        if (data_chunk) reads = joined({reads, {1, kRpcBytes + 4}, s.segment(4096, kItem)});
        // After the header of an RDMA_NOMSG there may be anything.
        const Words inline_part = long_call ? Words(10, 0xdeadbeef) : rpc;
        s.peer.send(bytes_of(joined({{s.xid, 1, 8, long_call ? 1U : 0U}, reads, {0}, writes(100), {0}, inline_part})));
        s.receive();
        EXPECT_EQ(s.reply, s.msg(writes(0), {0}, joined({{kItem}, octets}))) << long_call << data_chunk << write_chunk;
      }
    }
  }
}

TEST(ConformanceResponder, NoHandlerSeesAnArgumentThatMayNotBeReduced) {
  proves("R8166-6.1-1", "R8166-6.1-2", "R8166-3.4-1");
  Session s;
  const int before = null_calls;
  s.call(kNull, {.reads = joined({{1, kRpcBytes + 4}, s.segment(0, 64), {0}})}, {64});
  EXPECT_EQ(s.reply, s.err_chunk());
  EXPECT_EQ(null_calls, before);
  s.call(kNull, {}, {});
  EXPECT_EQ(s.reply, s.msg({0}, {0}, {}));
  EXPECT_EQ(null_calls, before + 1);
}

TEST(ConformanceResponder, NothingIsPulledBeforeAllIsChecked) {
  proves("ENG-RD-5", "ENG-RD-2", "R8166-4.5.2-1");
  Session s;
  // To read through this handle would cost the connection.
  const auto foreign = [&](std::uint32_t length) {
    Words segment = s.segment(0, length);
    segment[0] ^= 0xff00U;
    return segment;
  };
  // Behind a good segment: a Position inside that chunk, one beyond the end, one that is no multiple of 4.
  for (const std::uint32_t position : {kRpcBytes + 8, kRpcBytes + 400, kRpcBytes + 6}) {
    s.call(kTake, {.reads = joined({{1, kRpcBytes + 4}, foreign(8), {1, position}, s.segment(64, 8), {0}})}, {8});
    EXPECT_EQ(s.reply, s.err_chunk()) << position;
    // And behind the Payload of a Long Call.
    s.peer.send(bytes_of(joined({{++s.xid, 1, 8, 1, 1, 0},
                                 foreign(kRpcBytes + 4),
                                 {1, kRpcBytes + 4},
                                 s.segment(64, 8),
                                 {1, position},
                                 s.segment(64, 8),
                                 {0, 0, 0}})));
    s.receive();
    EXPECT_EQ(s.reply, s.err_chunk()) << position;
  }
  // More chunks than the procedure has arguments that may be reduced.
  s.call(kTake, {.reads = joined({{1, kRpcBytes + 4}, foreign(8), {1, kRpcBytes + 16}, s.segment(64, 8), {0}})},
         {8, 8});
  EXPECT_EQ(s.reply, s.err_chunk());
  s.call(kNull, {}, {});
  EXPECT_EQ(s.reply, s.msg({0}, {0}, {}));
}

TEST(ConformanceResponder, ChunksOfManySegmentsAreServed) {
  proves("R8267-6.4-8", "R8267-6.4-9", "ENG-SEG-4");
  Session s;
  constexpr std::uint32_t kEach = 37;
  const auto chunk = [&](std::size_t count, std::size_t from, std::uint32_t length) {
    Words out;
    for (std::size_t i = 0; i < count; ++i) out = joined({out, s.segment(from + i * 64, length)});
    return out;
  };
  for (const std::uint32_t count : {16U, 40U}) {
    const std::uint32_t length = count * kEach;
    for (std::uint32_t i = 0; i < length; ++i) s.peer.memory()[i / kEach * 64 + i % kEach] = pattern_at(i);
    Words reads;
    for (std::uint32_t i = 0; i < count; ++i) reads = joined({reads, {1, kRpcBytes + 4}, s.segment(i * 64, kEach)});
    s.call(kTake, {.reads = joined({reads, {0}})}, {length});
    std::vector<std::byte> data = pattern(length);
    data.resize(xdr_padded(length));
    Words expected = {length};
    for (std::size_t i = 0; i < data.size(); i += 4) expected.push_back(load_be32(data.data() + i));
    EXPECT_EQ(s.reply, s.msg({0}, {0}, expected));

    s.call(kResults, {.writes = joined({{1, count}, chunk(count, 8192, kEach), {0}})}, {0, length});
    EXPECT_EQ(s.reply, s.msg(joined({{1, count}, chunk(count, 8192, kEach), {0}}), {0}, {1, length, 9}));
    for (std::uint32_t i = 0; i < length; ++i)
      ASSERT_EQ(s.peer.memory()[8192 + i / kEach * 64 + i % kEach], pattern_at(i));
  }
  // More than anybody needs.
  const std::size_t most = (4096 - kMinHeaderBytes - kRpcBytes - 8) / 24;
  Words reads;
  for (std::size_t i = 0; i < most; ++i) reads = joined({reads, {1, kRpcBytes + 4}, s.segment(i, 1)});
  s.call(kTake, {.reads = joined({reads, {0}})}, {static_cast<std::uint32_t>(most)});
  EXPECT_EQ(s.reply, s.err_chunk());
}

TEST(ConformanceResponder, ACallUnderRpcsecGssIsDeniedAndItsChunksAreLeftAlone) {
  proves("R8166-8.2-2", "R8166-8.2-4");
  Session s;
  const auto writes = [&](std::uint32_t length) { return joined({{1, 1}, s.segment(0, length), {0}}); };
  Words foreign = s.segment(64, 8);  // whoever reads through this loses the connection
  foreign[0] ^= 0xff00U;
  for (const std::uint32_t service : {1U, 2U, 3U}) {  // none, integrity, privacy
    for (const std::uint32_t gss_proc : {0U, 1U}) {   // data, context creation
      ++s.xid;
      // RPCSEC_GSS version 1, sequence number 1, a context handle of 4 octets.
      const Words credential = {6, 24, 1, gss_proc, 1, service, 4, 0x11223344};
      const std::uint32_t arguments_at = 24 + 4 * static_cast<std::uint32_t>(credential.size()) + 8;
      s.peer.send(bytes_of(joined({{s.xid, 1, 8, 0, 1, arguments_at + 4},
                                   foreign,
                                   {0},
                                   writes(100),
                                   {0, s.xid, 0, 2, kProgram, 1, kTake},
                                   credential,
                                   {0, 0, 8}})));
      s.receive();
      // MSG_DENIED, AUTH_ERROR, AUTH_BADCRED.
      EXPECT_EQ(s.reply, bytes_of(joined({{s.xid, 1, 0, 0, 0}, writes(0), {0, s.xid, 1, 1, 1, 1}})));
    }
  }
  s.expect_canary(0, Session::kMemory);
}

TEST(ConformanceResponder, AChunkInPlaceOfAnythingElseDoesNotParse) {
  proves("R8166-6.1-1", "R8166-6.1-2", "R8166-3.4.5-5");
  Session s;
  const int before = named_calls;
  const auto at = [&](std::uint32_t position) { return joined({{1, position}, s.segment(0, 8), {0}}); };
  const auto garbage = [&] { return bytes_of({s.xid, 1, 0, 0, 0, 0, 0, s.xid, 1, 0, 0, 0, 4}); };
  // Were the name taken from what follows, these would all parse.
  s.call(kNamed, {.reads = at(kRpcBytes + 4)}, {8, 0, 1, 2, 0});
  EXPECT_EQ(s.reply, garbage());
  s.call(kNamed, {.reads = at(kRpcBytes)}, {0, 1, 0});  // in place of its length word
  EXPECT_EQ(s.reply, garbage());
  s.call(kNamed, {.reads = at(kRpcBytes + 4)}, {0, 1, 0});  // of the word
  EXPECT_EQ(s.reply, garbage());
  s.call(kNamed, {.reads = at(kRpcBytes + 8)}, {0, 1, 0});  // of the length word of the data
  EXPECT_EQ(s.reply, garbage());
  EXPECT_EQ(named_calls, before);
  s.call(kNamed, {.reads = at(kRpcBytes + 12)}, {0, 1, 8});
  EXPECT_EQ(s.reply, s.msg({0}, {0}, {0, 1, 8}));
  EXPECT_EQ(named_calls, before + 1);
}

TEST(ConformanceResponder, ErrorsGrantAsManyCreditsAsReplies) {
  proves("ENG-RX-8", "R8166-4.2.3-1", "R8166-3.3-5");
  for (const std::uint32_t asked : {1U, 8U, 16U}) {
    Session s;
    s.send(kNull, {}, {}, asked);
    s.receive();
    s.send(kNull, {}, {}, asked);
    s.receive();
    EXPECT_EQ(s.granted, asked);
    s.peer.send(bytes_of({++s.xid, 2, asked, 0, 0, 0, 0, 0}));
    const auto err_vers = s.peer.receive();
    EXPECT_EQ(err_vers, bytes_of({s.xid, 2, asked, 4, 1, 1, 1}));
    s.peer.send(bytes_of({++s.xid, 1, asked, 7, 0, 0, 0}));
    const auto err_chunk = s.peer.receive();
    EXPECT_EQ(err_chunk, bytes_of({s.xid, 1, asked, 4, 2}));
  }
}

TEST(ConformanceResponder, ReceivesArePostedBeforeTheyAreGranted) {
  proves("R8166-3.3-7", "R8166-3.3-13", "ENG-CR-4", "ENG-CR-10");
  Session s;
  // The first Call, right after the accept: the Responder has no turn, and its Receive is there.
  s.send(kNull, {}, {}, 16);
  EXPECT_EQ(s.peer.delivered(), 1U);
  s.receive();
  EXPECT_GE(s.granted, 8U);
  for (const std::uint32_t asked : {4U, 16U, 0U, 1000U, 16U}) {
    s.send(kNull, {}, {}, asked);
    s.receive();
    const std::uint32_t granted = s.granted;
    ASSERT_GE(granted, 1U);
    // As many as granted, with no turn of the Responder in between.
    for (std::uint32_t i = 0; i < granted; ++i) s.send(kNull, {}, {}, asked);
    EXPECT_EQ(s.peer.delivered(), s.peer.sent()) << asked;
    for (std::uint32_t i = 0; i < granted; ++i) EXPECT_FALSE(s.peer.receive().empty()) << asked;
  }
  // One that ignores its grant waits for its turn, and others do not.
  RawPeer bystander(s.pair);
  for (int i = 0; i < 30; ++i) s.send(kNull, {}, {}, 16);
  EXPECT_LT(s.peer.delivered(), s.peer.sent());
  bystander.send(bytes_of({7, 1, 8, 0, 0, 0, 0, 7, 0, 2, kProgram, 1, 0, 0, 0, 0, 0}));
  EXPECT_EQ(bystander.receive().size(), kMinHeaderBytes + kAcceptedReplyBytes);
}

TEST(ConformanceResponder, MessagesUpToTheThresholdAreReceived) {
  proves("R8166-3.3.2-3", "R8166-3.3.2-5", "R8166-3.3.2-6");
  Session s;
  for (const std::size_t size : {1024UL, 4096UL}) {
    s.call(kNull, {}, Words((size - kMinHeaderBytes - kRpcBytes) / 4));
    EXPECT_EQ(s.reply, s.msg({0}, {0}, {})) << size;
  }
}

TEST(ConformanceResponder, NothingIsInvalidatedUnlessBothEndsAllowIt) {
  proves("R8797-4.1-3", "ENG-RX-8");
  for (const bool allowed : {false, true}) {  // by the peer; our engine does not
    Pair pair(program());
    RawPeer peer(pair, {.send_size = 4096, .receive_size = 4096, .remote_invalidation = allowed});
    const auto offset = peer.offset();
    peer.send(bytes_of({7,
                        1,
                        8,
                        0,
                        0,
                        1,
                        1,
                        peer.handle(),
                        64,
                        static_cast<std::uint32_t>(offset >> 32U),
                        static_cast<std::uint32_t>(offset),
                        0,
                        0,
                        7,
                        0,
                        2,
                        kProgram,
                        1,
                        kResults,
                        0,
                        0,
                        0,
                        0,
                        0,
                        10}));
    EXPECT_FALSE(peer.receive().empty());
    peer.send(bytes_of({8, 1, 8, 1, 0, 0, 0}));
    EXPECT_EQ(peer.receive().size(), kErrChunkBytes);
    EXPECT_TRUE(peer.invalidated().empty());
  }
}

TEST(ConformanceResponder, NothingIsSentUnasked) {
  proves("R8166-3.3-9", "R8166-2.2-2");
  Session s;
  EXPECT_TRUE(s.peer.receive().empty());
  s.call(kNull, {}, {});
  EXPECT_TRUE(s.peer.receive().empty());
}

}  // namespace
}  // namespace rodeo
