// SPDX-License-Identifier: Apache-2.0

// What a handler of several stages may ask of its Call: bulk data in pieces, waiting for buffers, going on after it was
// deferred, and being told when the Call is over.

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>

#include "engine/test_pair.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using test::must;
using test::Pair;
using test::Seen;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000002;
constexpr std::uint32_t kMaxData = 256 * 1024;

/// What the handlers of one test share.
struct Server {
  RegisteredBytes memory;               // of the application
  std::vector<RegisteredBytes> pieces;  // of it, where pulled data goes and pushed data is
  DeferredCall deferred;
  int ended = 0;
  int ran = 0;
  std::size_t buffer_bytes = 0;
};

Server& server_of(void* context) noexcept { return *static_cast<Server*>(context); }
void count_end(void* context) noexcept { ++server_of(context).ended; }

void mirror_in_pieces(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, kMaxData);
  call.at_end(count_end, context);
  call.pull(data, server_of(context).pieces, [](Call& pulled, void* again) noexcept {
    pulled.push(server_of(again).pieces);
    pulled.results().u32(0xfeedbeef);
    pulled.reply();
  });
}

void defer(Call& call, void* context) noexcept {
  call.at_end(count_end, context);
  server_of(context).deferred = call.defer();
}

void wait_for_buffer(Call& call, void* context) noexcept {
  ++server_of(context).ran;
  call.wait_for_buffer(server_of(context).buffer_bytes, [](Call& with_buffer, void* again) noexcept {
    XdrWriter& results = with_buffer.results(4);
    results.u32(static_cast<std::uint32_t>(with_buffer.kept(0).size()));
    with_buffer.reply();
    (void)again;
  });
}

void long_reply(Call& call, void* context) noexcept {
  ++server_of(context).ran;
  if (!call.open_results(50'000, long_reply)) return;
  (void)call.results().reserve(50'000);
  call.reply();
}

void plain(Call& call, void* context) noexcept {
  call.at_end(count_end, context);
  call.reply();
}

Program program_of(Server& server) {
  return {.number = kProgram,
          .version = 1,
          .name = "stages",
          .procedures = {
              {.number = 0, .name = "PLAIN", .handler = plain, .context = &server},
              {.number = 1, .name = "MIRROR", .handler = mirror_in_pieces, .context = &server, .max_read_chunks = 1},
              {.number = 2, .name = "DEFER", .handler = defer, .context = &server},
              {.number = 3, .name = "BUFFER", .handler = wait_for_buffer, .context = &server},
              {.number = 4, .name = "LONG_REPLY", .handler = long_reply, .context = &server}}};
}

const CallTarget kPlain(kProgram, 1, 0, Credential{});
const CallTarget kMirror(kProgram, 1, 1, Credential{});
const CallTarget kDefer(kProgram, 1, 2, Credential{});
const CallTarget kBuffer(kProgram, 1, 3, Credential{});
const CallTarget kLongReply(kProgram, 1, 4, Credential{});

std::vector<std::byte> pattern(std::size_t length) {
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((i * 7 + (i >> 8U) + length) & 0xffU);
  return out;
}

class CallStages : public testing::Test {
 protected:
  void SetUp() override { start(test::small_config()); }
  void start(const Config& config) {
    pair_ = std::make_unique<Pair>(program_of(server_), config);
    server_.memory = pair_->server->application_memory();
    connection_ = pair_->connect();
    ASSERT_NE(connection_, nullptr);
  }
  void TearDown() override { test::expect_all_home(*pair_); }

  void submit(CallRequest request, Seen& seen) {
    request.on_reply = Seen::on_reply;
    request.context = &seen;
    ASSERT_EQ(connection_->submit(request), SubmitOutcome::kPosted);
  }
  Seen call(CallRequest request) {
    Seen seen;
    submit(std::move(request), seen);
    pair_->until([&] { return seen.times != 0; });
    return seen;
  }
  /// Pieces of these lengths, each away from the one before.
  void use_pieces(std::initializer_list<std::size_t> lengths) {
    server_.pieces.clear();
    std::size_t at = 0;
    for (const std::size_t length : lengths) {
      server_.pieces.push_back(server_.memory.subspan(at, length));
      at += length + 64;
    }
    std::ranges::fill(server_.memory, std::byte{0xee});
  }

  Server server_;
  std::unique_ptr<Pair> pair_;
  Connection* connection_ = nullptr;
};

TEST_F(CallStages, BulkDataComesInPiecesAndLeavesInPieces) {
  proves("R8166-3.4.5-10", "R8166-3.4.6-3");
  use_pieces({1, 4096, 0, 3, 65536, 100, 4000});
  const std::size_t length = 1 + 4096 + 3 + 65536 + 100 + 4000;
  Buffer source = connection_->make_buffer(length);
  Buffer sink = connection_->make_buffer(length + 4);
  const auto data = pattern(length);
  std::memcpy(source.data(), data.data(), length);
  std::memset(sink.data(), 0x77, length + 4);
  std::byte arguments[4];
  store_be32(arguments, static_cast<std::uint32_t>(length));
  const BulkSource sources[] = {{4, source.first(length)}};
  const RegisteredBytes sinks[] = {sink.first(length)};
  const Seen seen =
      call({.target = &kMirror, .arguments = arguments, .sources = sources, .sinks = sinks, .max_results = 8});
  ASSERT_EQ(seen.error, CallError::kNone);
  ASSERT_EQ(seen.written.size(), 1U);
  EXPECT_EQ(seen.written[0], length);
  EXPECT_EQ(std::memcmp(sink.data(), data.data(), length), 0);
  EXPECT_EQ(sink.data()[length], std::byte{0x77});
  XdrReader reader(seen.results);
  EXPECT_EQ(reader.u32(), length);
  EXPECT_EQ(reader.u32(), 0xfeedbeef);
  // In the pieces, and nowhere between them.
  std::size_t at = 0;
  for (const RegisteredBytes& piece : server_.pieces) {
    if (!piece.empty()) {
      EXPECT_EQ(std::memcmp(piece.data(), data.data() + at, piece.size()), 0);
    }
    EXPECT_EQ(*(piece.data() + piece.size()), std::byte{0xee});
    at += piece.size();
  }
  pair_->until([&] { return server_.ended == 1; });
}

TEST(DeferredCallTest, MayComeBackWhenItsEngineIsGone) {
  Server server;
  {
    Pair pair(program_of(server), test::small_config());
    Connection* connection = pair.connect();
    ASSERT_NE(connection, nullptr);
    Seen seen;
    CallRequest request{.target = &kDefer};
    request.on_reply = Seen::on_reply;
    request.context = &seen;
    ASSERT_EQ(connection->submit(request), SubmitOutcome::kPosted);
    pair.until([&] { return static_cast<bool>(server.deferred); });
    pair.client->stop();
    pair.server->stop(std::chrono::milliseconds(1));
  }
  // Nobody hears of it; under the address sanitizer this shows that the Call is still there.
  EXPECT_EQ(server.deferred.get()->peer().kind, Peer::Kind::kProcess);
  server.deferred.get()->results().u32(7);
  server.deferred.reply();
  EXPECT_FALSE(server.deferred);
}

TEST_F(CallStages, InlineDataFillsThePiecesAndComesBackInline) {
  use_pieces({2, 5, 1});
  std::byte storage[16];
  XdrWriter arguments(storage);
  const auto data = pattern(8);
  arguments.opaque(data);
  const Seen seen = call({.target = &kMirror, .arguments = arguments.written(), .max_results = 16});
  XdrReader reader(seen.results);
  EXPECT_TRUE(std::ranges::equal(reader.opaque(8), data));
  EXPECT_EQ(reader.u32(), 0xfeedbeef);
  EXPECT_TRUE(std::ranges::equal(server_.pieces[1], std::span(data).subspan(2, 5)));
  EXPECT_EQ(server_.ended, 1);
}

TEST_F(CallStages, NothingMayBePushedIntoAWriteChunk) {
  proves("R8166-4.3.2-8");
  server_.pieces.clear();
  Buffer sink = connection_->make_buffer(100);
  const RegisteredBytes sinks[] = {sink.first(100)};
  const std::byte arguments[4] = {};
  const Seen seen = call({.target = &kMirror, .arguments = arguments, .sinks = sinks, .max_results = 8});
  ASSERT_EQ(seen.error, CallError::kNone);
  EXPECT_EQ(seen.written.at(0), 0U);
  ASSERT_EQ(seen.results.size(), 8U);
  EXPECT_EQ(load_be32(seen.results.data()), 0U);
  pair_->until([&] { return server_.ended == 1; });
}

TEST_F(CallStages, PiecesThatHoldTooLittleRefuseTheArgument) {
  use_pieces({2, 5});
  std::byte storage[16];
  XdrWriter arguments(storage);
  arguments.opaque(pattern(8));
  EXPECT_EQ(call({.target = &kMirror, .arguments = arguments.written(), .max_results = 16}).accept_stat,
            AcceptStat::kGarbageArgs);
  EXPECT_EQ(server_.ended, 1);
}

TEST_F(CallStages, ADeferredCallGoesOnFromAnotherThread) {
  Seen seen;
  submit({.target = &kDefer, .max_results = 4}, seen);
  pair_->until([&] { return bool(server_.deferred); });
  std::thread other([&] {
    std::exchange(server_.deferred, {}).resume([](Call& resumed, void* context) noexcept {
      resumed.results(4).u32(static_cast<std::uint32_t>(server_of(context).ended));  // on a core with pools
      resumed.reply();
    });
  });
  other.join();
  pair_->until([&] { return seen.times != 0; });
  EXPECT_EQ(seen.error, CallError::kNone);
  ASSERT_EQ(seen.results.size(), 4U);
  EXPECT_EQ(load_be32(seen.results.data()), 0U);
  pair_->until([&] { return server_.ended == 1; });
}

TEST_F(CallStages, TheEndIsToldWhenTheConnectionGoesFirst) {
  Seen seen;
  submit({.target = &kDefer}, seen);
  pair_->until([&] { return bool(server_.deferred); });
  pair_->client->disconnect(connection_);
  for (int i = 0; i < 1000; ++i) pair_->turn();
  EXPECT_EQ(server_.ended, 0);
  bool ran = false;
  static bool* resumed = &ran;
  std::exchange(server_.deferred, {}).resume([](Call& call, void*) noexcept {
    *resumed = true;
    call.reply();
  });
  pair_->until([&] { return server_.ended == 1; });
  EXPECT_FALSE(ran);
}

TEST_F(CallStages, TheEndIsToldOfAReplyWithoutResults) {
  EXPECT_EQ(call({.target = &kPlain}).error, CallError::kNone);
  EXPECT_EQ(server_.ended, 1);
  EXPECT_EQ(call({.target = &kPlain}).error, CallError::kNone);
  EXPECT_EQ(server_.ended, 2);
}

TEST_F(CallStages, ABufferLargerThanAnyIsRefused) {
  server_.buffer_bytes = 1024 * 1024;
  EXPECT_EQ(call({.target = &kBuffer, .max_results = 4}).accept_stat, AcceptStat::kGarbageArgs);
  server_.buffer_bytes = 256 * 1024;
  const Seen seen = call({.target = &kBuffer, .max_results = 4});
  ASSERT_EQ(seen.results.size(), 4U);
  EXPECT_GE(load_be32(seen.results.data()), 256U * 1024U);
}

class CallStagesOfOneBuffer : public CallStages {
 protected:
  void SetUp() override {
    Config config = test::small_config();
    config.bulk_buffers = 1;
    start(config);
    EXPECT_EQ(call({.target = &kPlain}).error, CallError::kNone);  // from now on there is more than one credit
    server_.ended = 0;
  }
};

TEST_F(CallStagesOfOneBuffer, ResultsAndBuffersWaitTheirTurn) {
  server_.buffer_bytes = 100'000;
  std::array<Seen, 6> seen;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const bool buffer = i % 2 == 0;
    submit({.target = buffer ? &kBuffer : &kLongReply, .max_results = buffer ? 4U : 50'000U}, seen[i]);
  }
  pair_->until([&] { return std::ranges::all_of(seen, [](const Seen& one) { return one.times == 1; }); });
  for (std::size_t i = 0; i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].error, CallError::kNone) << i;
    EXPECT_EQ(seen[i].accept_stat, AcceptStat::kSuccess) << i;
    EXPECT_EQ(seen[i].results.size(), i % 2 == 0 ? 4U : 50'000U) << i;
  }
  EXPECT_GT(Pair::counter(*pair_->server, "buffer_waits"), 0U);
}

}  // namespace
}  // namespace rodeo
