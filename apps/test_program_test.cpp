// SPDX-License-Identifier: Apache-2.0
// The test program through the public API: Responder and Requester in one thread, over the software HCA, turn by turn.

#include "apps/test_program.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "apps/pattern.h"
#include "apps/test_protocol.h"
#include "engine/rodeo.h"
#include "engine/xdr_writer.h"
#include "pools/clock.h"
#include "pools/proves.h"

namespace rodeo::apps {
namespace {

constexpr std::size_t kBulkBytes = 128 * 1024;
constexpr std::size_t kPayload = 100'001;  // no multiple of four, and far above the inline size
constexpr int kMaxTurns = 2'000'000;

struct Answer {
  bool done = false;
  CallError error = CallError::kNone;
  AcceptStat accept_stat = AcceptStat::kSuccess;
  std::vector<std::byte> results;
  std::vector<std::uint32_t> written;
  [[nodiscard]] bool ok() const { return done && error == CallError::kNone && accept_stat == AcceptStat::kSuccess; }
};

/// A call under construction; must stay where it is until its answer is there.
struct Outgoing {
  explicit Outgoing(TestProc proc) : target(kTestProgram, kTestVersion, static_cast<std::uint32_t>(proc), {}) {}
  CallTarget target;
  std::vector<std::byte> arguments = std::vector<std::byte>(256 * 1024);
  XdrWriter writer{arguments};
  std::vector<BulkSource> sources;
  std::vector<RegisteredBytes> sinks;
  std::size_t max_results = 0;
  bool long_call = false;
  Answer answer;
};

class TestProgramTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = (std::filesystem::temp_directory_path() / "rodeo-test-XXXXXX").string();
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
    setenv("RODEO_RUNTIME_DIR", folder.c_str(), 1);

    Config config;
    config.hugepages = false;
    config.connections = 2;
    config.credits = 96;
    config.bulk_bytes = kBulkBytes + 4096;
    config.application_bytes = TestProgram::application_bytes(kBulkBytes);
    auto server = Engine::open(kAddress, config);
    ASSERT_TRUE(server.has_value()) << server.error().message();
    server_ = std::move(*server);
    auto program = TestProgram::add_to(*server_, server_->application_memory(), kBulkBytes);
    ASSERT_TRUE(program.has_value()) << program.error().message();
    program_ = std::move(*program);
    expect_ok(server_->start());
    expect_ok(server_->listen(kAddress));

    config.application_bytes = 4 * kBulkBytes;
    auto client = Engine::open(kAddress, config);
    ASSERT_TRUE(client.has_value()) << client.error().message();
    client_ = std::move(*client);
    expect_ok(client_->start());
    memory_ = client_->application_memory();
    connection_ = connect();
    ASSERT_NE(connection_, nullptr);
  }

  void TearDown() override {
    if (client_ != nullptr) client_->stop();
    for (int i = 0; i < 1000 && server_ != nullptr; ++i) server_->step();
    if (program_ != nullptr) program_->stop_holding_calls();
    if (server_ != nullptr) {
      server_->stop();
      const auto [adds_up, where] = server_->audit();
      EXPECT_TRUE(adds_up) << where;
    }
    client_.reset();
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  static void expect_ok(const Result<void>& result) {
    EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message());
  }

  Connection* connect() {
    auto attempt = client_->begin_connect(kAddress, 0, 0);
    if (!attempt) ADD_FAILURE() << attempt.error().message();
    for (int turn = 0; attempt && turn < kMaxTurns; ++turn) {
      step();
      auto connection = client_->finish_connect(*attempt);
      if (!connection) ADD_FAILURE() << connection.error().message();
      if (!connection || *connection != nullptr) return connection ? *connection : nullptr;
    }
    ADD_FAILURE() << "no connection";
    return nullptr;
  }

  void step() {
    client_->step();
    server_->step();
  }

  void submit(Outgoing& call) {
    CallRequest request;
    request.target = &call.target;
    request.arguments = call.writer.written();
    request.sources = call.sources;
    request.sinks = call.sinks;
    request.max_results = call.max_results;
    request.force_long_call = call.long_call;
    request.context = &call.answer;
    request.on_reply = [](void* context, const Reply& reply) noexcept {
      Answer& answer = *static_cast<Answer*>(context);
      EXPECT_FALSE(answer.done) << "answered twice";
      answer.done = true;
      answer.error = reply.error;
      answer.accept_stat = reply.accept_stat;
      answer.results.assign(reply.results.begin(), reply.results.end());
      answer.written.assign(reply.written.begin(), reply.written.end());
    };
    for (int turn = 0; turn < kMaxTurns; ++turn) {
      const SubmitOutcome outcome = connection_->submit(request);
      if (outcome == SubmitOutcome::kPosted) return;
      if (outcome == SubmitOutcome::kTooLarge || outcome == SubmitOutcome::kClosed) {
        FAIL() << to_string(outcome);
      }
      step();
    }
    FAIL() << "no room for the call";
  }

  const Answer& wait(Outgoing& call) {
    for (int turn = 0; turn < kMaxTurns && !call.answer.done; ++turn) step();
    EXPECT_TRUE(call.answer.done) << "no answer";
    return call.answer;
  }

  const Answer& run(Outgoing& call) {
    submit(call);
    return wait(call);
  }

  std::uint64_t counter(std::string_view name) const {
    for (const CounterValue& value : server_->counters()) {
      if (value.name == name) return value.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  /// Registered memory of the client: part 0 holds the pattern from 0 on.
  RegisteredBytes part(std::size_t index, std::size_t length) const {
    return memory_.subspan(index * kBulkBytes, length);
  }

  std::uint64_t begin_hash() {
    Outgoing call(TestProc::kHashBegin);
    call.max_results = 16;
    XdrReader reader(run(call).results);
    EXPECT_EQ(reader.u32(), static_cast<std::uint32_t>(HashStatus::kOk));
    const std::uint64_t session = reader.u64();
    EXPECT_EQ(reader.u32(), kBulkBytes);
    EXPECT_TRUE(reader.ok());
    return session;
  }

  static void prepare_update(Outgoing& call, std::uint64_t session, std::uint64_t offset, RegisteredBytes data) {
    call.writer.u64(session);
    call.writer.u64(offset);
    call.writer.u32(static_cast<std::uint32_t>(data.size()));
    call.sources.push_back({20, data});
    call.max_results = 4;
  }

  static HashStatus status_of(const Answer& answer) {
    EXPECT_TRUE(answer.ok());
    XdrReader reader(answer.results);
    return reader.enumeration(HashStatus::kLast);
  }

  HashStatus end_hash(std::uint64_t session, std::vector<std::byte>* hash = nullptr) {
    Outgoing call(TestProc::kHashEnd);
    call.writer.u64(session);
    call.max_results = 36;
    const Answer& answer = run(call);
    const HashStatus status = status_of(answer);
    if (hash != nullptr && answer.results.size() == 36) hash->assign(answer.results.begin() + 4, answer.results.end());
    return status;
  }

  static constexpr const char* kAddress = "soft:test-program";
  std::filesystem::path folder_;
  std::unique_ptr<TestProgram> program_;
  std::unique_ptr<Engine> server_;
  std::unique_ptr<Engine> client_;
  Connection* connection_ = nullptr;
  RegisteredBytes memory_;
};

std::vector<std::byte> pattern_bytes(std::uint64_t start, std::size_t length) {
  std::vector<std::byte> bytes(length);
  fill_pattern(bytes, start);
  return bytes;
}

std::vector<std::byte> sha256(std::span<const std::byte> octets) {
  std::vector<std::byte> hash(32);
  EVP_Digest(octets.data(), octets.size(), reinterpret_cast<unsigned char*>(hash.data()), nullptr, EVP_sha256(),
             nullptr);
  return hash;
}

TEST_F(TestProgramTest, NullAnswersWithNothing) {
  Outgoing call(TestProc::kNull);
  EXPECT_TRUE(run(call).ok());
  EXPECT_TRUE(call.answer.results.empty());
}

TEST_F(TestProgramTest, EchoReturnsWhatItGotInlineAndLong) {
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{1000}, kPayload}) {
    Outgoing call(TestProc::kEcho);
    call.writer.opaque(pattern_bytes(length, length));
    call.max_results = call.writer.size();
    ASSERT_TRUE(run(call).ok()) << length << ' ' << to_string(call.answer.error);
    EXPECT_TRUE(std::ranges::equal(call.answer.results, call.writer.written()));
  }
  EXPECT_EQ(counter("long_calls_pulled"), 1U);
  EXPECT_EQ(counter("long_replies"), 1U);
}

TEST_F(TestProgramTest, ChecksumTakesInlineDataAndReadChunksAlike) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{1000}, kPayload}) {
    for (const bool by_chunk : {false, true}) {
      if (!by_chunk && length == kPayload) continue;
      fill_pattern(part(0, length), 17);
      Outgoing call(TestProc::kChecksum);
      if (by_chunk) {
        call.writer.u32(static_cast<std::uint32_t>(length));
        call.sources.push_back({4, part(0, length)});
      } else {
        call.writer.opaque(part(0, length));
      }
      call.max_results = 12;
      ASSERT_TRUE(run(call).ok()) << length << ' ' << by_chunk;
      XdrReader reader(call.answer.results);
      EXPECT_EQ(reader.u32(), length);
      EXPECT_EQ(reader.u64(), checksum(pattern_bytes(17, length)));
    }
  }
}

TEST_F(TestProgramTest, FillWritesThePatternFromAnyPlace) {
  for (const std::uint64_t start : {std::uint64_t{0}, std::uint64_t{5}, std::uint64_t{kPatternPeriod - 1},
                                    std::uint64_t{kPatternPeriod} * 1'000'000'000 + 9}) {
    Outgoing call(TestProc::kFill);
    call.writer.u64(start);
    call.writer.u32(kPayload);
    call.sinks.push_back(part(1, kPayload + 5));
    call.max_results = 4;
    std::ranges::fill(part(1, kPayload + 5), std::byte{0xee});
    ASSERT_TRUE(run(call).ok());
    ASSERT_EQ(call.answer.written, std::vector<std::uint32_t>{kPayload});
    EXPECT_TRUE(std::ranges::equal(part(1, kPayload), pattern_bytes(start, kPayload)));
    EXPECT_EQ(part(1, kPayload + 1).back(), std::byte{0xee}) << "nothing is written behind the result";
  }
}

TEST_F(TestProgramTest, FillComesInlineWithoutAWriteChunk) {
  proves("R8166-4.3.2-11");
  Outgoing call(TestProc::kFill);
  call.writer.u64(3);
  call.writer.u32(999);
  call.max_results = 4 + 1000;
  ASSERT_TRUE(run(call).ok());
  XdrReader reader(call.answer.results);
  EXPECT_TRUE(std::ranges::equal(reader.opaque(1000), pattern_bytes(3, 999)));
}

TEST_F(TestProgramTest, MirrorReturnsAReadChunkByWriteChunk) {
  for (const std::size_t length : {std::size_t{1}, std::size_t{4096}, kPayload}) {
    fill_pattern(part(0, length), length);
    Outgoing call(TestProc::kMirror);
    call.writer.u32(static_cast<std::uint32_t>(length));
    call.sources.push_back({4, part(0, length)});
    call.sinks.push_back(part(1, length));
    call.max_results = 4;
    ASSERT_TRUE(run(call).ok());
    EXPECT_EQ(call.answer.written, std::vector<std::uint32_t>{static_cast<std::uint32_t>(length)});
    EXPECT_TRUE(std::ranges::equal(part(1, length), pattern_bytes(length, length)));
  }
}

TEST_F(TestProgramTest, LongCallAndLongReplyCarryTheirPayloadInTheStream) {
  Outgoing call(TestProc::kLongCall);
  call.writer.opaque(pattern_bytes(1, 64));
  call.long_call = true;
  call.max_results = 12;
  ASSERT_TRUE(run(call).ok());
  XdrReader reader(call.answer.results);
  EXPECT_EQ(reader.u32(), 64U);
  EXPECT_EQ(reader.u64(), checksum(pattern_bytes(1, 64)));
  EXPECT_EQ(counter("long_calls_pulled"), 1U);

  Outgoing reply(TestProc::kLongReply);
  reply.writer.u64(2);
  reply.writer.u32(kPayload);
  reply.max_results = 4 + kPayload + 3;
  ASSERT_TRUE(run(reply).ok());
  XdrReader long_reader(reply.answer.results);
  EXPECT_TRUE(std::ranges::equal(long_reader.opaque(kPayload), pattern_bytes(2, kPayload)));
  EXPECT_EQ(counter("long_replies"), 1U);
}

TEST_F(TestProgramTest, DelaysEndInTheOrderOfTheirTimes) {
  Outgoing slow(TestProc::kDelay);
  slow.writer.u32(30'000);
  Outgoing fast(TestProc::kDelay);
  fast.writer.u32(2'000);
  Outgoing null(TestProc::kNull);
  ASSERT_TRUE(run(null).ok());  // so that there are credits for two
  const std::uint64_t before = pools::tsc_now();
  submit(slow);
  submit(fast);
  ASSERT_TRUE(wait(fast).ok());
  EXPECT_FALSE(slow.answer.done);
  EXPECT_GE(pools::ticks_to_ns(pools::tsc_now() - before), 2e6);
  while (!slow.answer.done && pools::ticks_to_ns(pools::tsc_now() - before) < 5e9) step();
  ASSERT_TRUE(slow.answer.ok());
  EXPECT_GE(pools::ticks_to_ns(pools::tsc_now() - before), 30e6);
}

TEST_F(TestProgramTest, HeldCallsAreAnsweredAtOnceWhenItStops) {
  Outgoing delayed(TestProc::kDelay);
  delayed.writer.u32(kMaxDelayUs);
  submit(delayed);
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_FALSE(delayed.answer.done);
  program_->stop_holding_calls();
  EXPECT_TRUE(wait(delayed).ok());
}

TEST_F(TestProgramTest, HashesBlocksThatArriveInTheWrongOrder) {
  constexpr std::size_t kBlock = 10'007;
  constexpr std::size_t kBlocks = 8;
  const RegisteredBytes data = part(0, kBlock * kBlocks);
  fill_pattern(data, 123);
  const std::uint64_t session = begin_hash();
  std::vector<std::unique_ptr<Outgoing>> calls;
  for (const std::size_t block : {3U, 1U, 7U, 0U, 2U, 5U, 6U, 4U}) {
    auto& call = *calls.emplace_back(std::make_unique<Outgoing>(TestProc::kHashUpdate));
    prepare_update(call, session, block * kBlock, data.subspan(block * kBlock, kBlock));
    submit(call);
  }
  for (auto& call : calls) EXPECT_EQ(status_of(wait(*call)), HashStatus::kOk);
  std::vector<std::byte> hash;
  EXPECT_EQ(end_hash(session, &hash), HashStatus::kOk);
  EXPECT_EQ(hash, sha256(data));
}

TEST_F(TestProgramTest, HashesNothingToTheHashOfNothing) {
  std::vector<std::byte> hash;
  EXPECT_EQ(end_hash(begin_hash(), &hash), HashStatus::kOk);
  EXPECT_EQ(hash, sha256({}));
}

TEST_F(TestProgramTest, RefusesSessionsThatAreUnknownOrOver) {
  const std::uint64_t session = begin_hash();
  EXPECT_EQ(end_hash(session), HashStatus::kOk);
  EXPECT_EQ(end_hash(session), HashStatus::kUnknownSession);
  EXPECT_EQ(end_hash(0), HashStatus::kUnknownSession);
  for (std::uint64_t guess = 0; guess < 512; ++guess) EXPECT_EQ(end_hash(guess), HashStatus::kUnknownSession);
  Outgoing late(TestProc::kHashUpdate);
  prepare_update(late, session, 0, part(0, 100));
  EXPECT_EQ(status_of(run(late)), HashStatus::kUnknownSession);
}

TEST_F(TestProgramTest, RefusesOctetsThatWereHashedBefore) {
  const std::uint64_t session = begin_hash();
  Outgoing first(TestProc::kHashUpdate);
  prepare_update(first, session, 0, part(0, 100));
  EXPECT_EQ(status_of(run(first)), HashStatus::kOk);
  Outgoing again(TestProc::kHashUpdate);
  prepare_update(again, session, 0, part(0, 100));
  EXPECT_EQ(status_of(run(again)), HashStatus::kBadOffset);
  Outgoing beyond(TestProc::kHashUpdate);
  prepare_update(beyond, session, ~std::uint64_t{0} - 10, part(0, 100));
  EXPECT_EQ(status_of(run(beyond)), HashStatus::kBadOffset);
}

TEST_F(TestProgramTest, BoundsWhatWaitsForAMissingBlockAndTheNumberOfSessions) {
  const std::uint64_t session = begin_hash();
  std::vector<std::unique_ptr<Outgoing>> early;
  for (std::size_t i = 0; i < HashService::kMaxWaiting; ++i) {
    auto& call = *early.emplace_back(std::make_unique<Outgoing>(TestProc::kHashUpdate));
    call.writer.u64(session);
    call.writer.u64(1 + i);
    call.writer.opaque(pattern_bytes(i, 1));  // inline: no bulk buffer is held
    call.max_results = 4;
    submit(call);
  }
  EXPECT_EQ(end_hash(session), HashStatus::kIncomplete);
  Outgoing one_more(TestProc::kHashUpdate);
  one_more.writer.u64(session);
  one_more.writer.u64(1000);
  one_more.writer.opaque(pattern_bytes(0, 1));
  one_more.max_results = 4;
  EXPECT_EQ(status_of(run(one_more)), HashStatus::kTooFarAhead);
  for (auto& call : early) EXPECT_FALSE(call->answer.done);

  for (std::size_t i = 1; i < HashService::kMaxSessions; ++i) begin_hash();
  Outgoing begin(TestProc::kHashBegin);
  begin.max_results = 16;
  EXPECT_EQ(status_of(run(begin)), HashStatus::kTooManySessions);

  program_->stop_holding_calls();
  for (auto& call : early) EXPECT_EQ(wait(*call).accept_stat, AcceptStat::kSystemErr);
}

TEST_F(TestProgramTest, CaptureTakesTheShapeItIsTold) {
  fill_pattern(part(0, 5001), 64);
  Outgoing call(TestProc::kCapture);
  call.writer.u32(100);
  call.writer.u32(3000);
  call.writer.u32(5001);
  call.writer.u32(960);
  call.writer.u32(0xabcdef);
  call.sources.push_back({12, part(0, 5001)});
  call.sinks.push_back(part(1, 4096));
  call.max_results = 104;
  ASSERT_TRUE(run(call).ok());
  ASSERT_EQ(call.answer.results.size(), 104U);
  EXPECT_EQ(load_be64(call.answer.results.data()), checksum(pattern_bytes(64, 5001)));
  const auto pattern = pattern_bytes(960, 100);
  EXPECT_TRUE(std::equal(pattern.begin() + 8, pattern.end(), call.answer.results.begin() + 8));
  EXPECT_EQ(load_be32(call.answer.results.data() + 100), 3000U);
  EXPECT_EQ(call.answer.written, std::vector<std::uint32_t>{3000});
  EXPECT_TRUE(std::ranges::equal(part(1, 3000), pattern_bytes(960, 3000)));
}

TEST_F(TestProgramTest, AnswersGarbageArgsToArgumentsThatAreShortLongOrAboveTheLimit) {
  const struct {
    TestProc proc;
    std::vector<std::uint32_t> words;
  } cases[] = {
      {TestProc::kNull, {0}},
      {TestProc::kEcho, {}},
      {TestProc::kEcho, {5, 0}},
      {TestProc::kEcho, {4, 0, 0}},
      {TestProc::kEcho, {0xffffffff}},
      {TestProc::kChecksum, {8, 0}},
      {TestProc::kChecksum, {4, 0, 0}},
      {TestProc::kFill, {0, 0}},
      {TestProc::kFill, {0, 0, kBulkBytes + 1}},
      {TestProc::kFill, {0, 0, 0xffffffff}},
      {TestProc::kFill, {0, 0, 4, 0}},
      {TestProc::kDelay, {}},
      {TestProc::kDelay, {kMaxDelayUs + 1}},
      {TestProc::kHashBegin, {1}},
      {TestProc::kHashUpdate, {0, 1, 0, 0, 8, 0}},
      {TestProc::kHashEnd, {0}},
      {TestProc::kHashEnd, {0, 0, 0}},
      {TestProc::kMirror, {}},
      {TestProc::kMirror, {kBulkBytes + 1}},
      {TestProc::kLongCall, {12, 0}},
      {TestProc::kLongReply, {0, 0, kBulkBytes + 1}},
      {TestProc::kCapture, {0, 0}},
      {TestProc::kCapture, {kBulkBytes + 1, 0, 0}},
      {TestProc::kCapture, {0, kBulkBytes + 1, 0}},
      {TestProc::kCapture, {0, 0, 4}},
  };
  for (const auto& bad : cases) {
    Outgoing call(bad.proc);
    for (const std::uint32_t word : bad.words) call.writer.u32(word);
    call.max_results = 64;
    const Answer& answer = run(call);
    EXPECT_EQ(answer.error, CallError::kNone) << static_cast<unsigned>(bad.proc);
    EXPECT_EQ(answer.accept_stat, AcceptStat::kGarbageArgs)
        << "procedure " << static_cast<unsigned>(bad.proc) << " with " << bad.words.size() << " words";
  }
  Outgoing call(TestProc::kNull);
  EXPECT_TRUE(run(call).ok()) << "the connection goes on";
}

}  // namespace
}  // namespace rodeo::apps
