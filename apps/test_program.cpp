// SPDX-License-Identifier: Apache-2.0
// Hot path, save for construction. Runs on: poll cores.
#include "apps/test_program.h"

#include <cstring>
#include <string>
#include <utility>

#include "apps/callback.h"
#include "apps/pattern.h"
#include "apps/test_protocol.h"
#include "engine/xdr_pad.h"
#include "pools/clock.h"

namespace rodeo::apps {
namespace {

TestProgram& program_of(void* context) noexcept { return *static_cast<TestProgram*>(context); }

/// Octets that a DDP-eligible result takes in the Reply's own XDR stream: its length word, and the octets too where the
/// Call offered no Write chunk for it.
std::size_t bulk_result_bytes(const Call& call, std::size_t length) noexcept {
  const ChunkLists& chunks = call.chunks();
  const bool by_chunk = chunks.write_chunk_count != 0 && chunks.write_table[0].count != 0;
  return by_chunk ? 4 : 4 + xdr_padded(length);
}

std::size_t opaque_bytes(std::size_t length) noexcept { return 4 + xdr_padded(length); }

/// The arguments of CHECKSUM and MIRROR.
BulkArgument only_bulk_argument(Call& call, std::size_t max_bytes) noexcept {
  XdrReader reader = call.arguments();
  BulkArgument argument = call.bulk_argument(reader, static_cast<std::uint32_t>(max_bytes));
  if (!reader.ok() || reader.remaining() != 0) argument.ok = false;
  return argument;
}

/// The arguments of FILL and LONG_REPLY: which part of the pattern they ask for.
struct PatternArgument {
  std::uint64_t start = 0;
  std::uint32_t length = 0;
  bool ok = false;
};
PatternArgument only_pattern_argument(Call& call, std::size_t max_bytes) noexcept {
  XdrReader reader = call.arguments();
  PatternArgument argument;
  argument.start = reader.u64();
  argument.length = reader.u32();
  argument.ok = reader.ok() && reader.remaining() == 0 && argument.length <= max_bytes;
  return argument;
}

void reply_checksum(Call& call, std::span<const std::byte> octets) noexcept {
  XdrWriter& results = call.results(12);
  results.u32(static_cast<std::uint32_t>(octets.size()));
  results.u64(checksum(octets));
  call.reply();
}

}  // namespace

std::size_t TestProgram::application_bytes(std::size_t bulk_bytes) noexcept { return kPatternPeriod + bulk_bytes; }

Result<std::unique_ptr<TestProgram>> TestProgram::add_to(Engine& engine, RegisteredBytes memory,
                                                         std::size_t bulk_bytes) {
  if (memory.size() < application_bytes(bulk_bytes)) {
    return fail("test program",
                "it has " + std::to_string(memory.size()) + " bytes of application memory and needs " +
                    std::to_string(application_bytes(bulk_bytes)),
                "set Config::application_bytes");
  }
  std::unique_ptr<TestProgram> self(
      new TestProgram(memory.first(application_bytes(bulk_bytes)), bulk_bytes, engine.loop_count()));
  if (auto added = engine.add_program(self->program()); !added) return tl::unexpected(added.error());
  for (std::size_t loop = 0; loop < engine.loop_count(); ++loop) {
    engine.add_poller(loop, [program = self.get(), loop] { return program->turn(loop); });
  }
  return self;
}

TestProgram::TestProgram(RegisteredBytes pattern, std::size_t max_bytes, std::size_t loops)
    : pattern_(pattern), max_bytes_(max_bytes), hashes_(max_bytes) {
  fill_pattern(pattern_, 0);
  for (std::size_t loop = 0; loop < loops; ++loop) delays_.push_back(std::make_unique<DelayQueue>());
}

Program TestProgram::program() {
  const auto on_poll_core = [this](TestProc number, const char* name, Handler handler, std::uint32_t read_chunks = 0) {
    return Procedure{static_cast<std::uint32_t>(number), name, handler, this, Placement::kPollCore, read_chunks};
  };
  std::vector<Procedure> procedures{on_poll_core(TestProc::kNull, "NULL", &null),
                                    on_poll_core(TestProc::kEcho, "ECHO", &echo),
                                    on_poll_core(TestProc::kChecksum, "CHECKSUM", &TestProgram::checksum, 1),
                                    on_poll_core(TestProc::kFill, "FILL", &fill),
                                    on_poll_core(TestProc::kDelay, "DELAY", &delay),
                                    on_poll_core(TestProc::kMirror, "MIRROR", &mirror, 1),
                                    on_poll_core(TestProc::kLongCall, "LONG_CALL", &long_call),
                                    on_poll_core(TestProc::kLongReply, "LONG_REPLY", &long_reply),
                                    on_poll_core(TestProc::kCapture, "CAPTURE", &capture, 1)};
  procedures.push_back(callback_procedure());
  hashes_.append_procedures(procedures);
  return {kTestProgram, kTestVersion, "test", std::move(procedures)};
}

namespace {

/// The queue of the loop that last took a turn on this thread. Poll cores run one loop each.
thread_local std::pair<const TestProgram*, DelayQueue*> queue_of_thread{nullptr, nullptr};

}  // namespace

std::size_t TestProgram::turn(std::size_t loop) noexcept {
  DelayQueue& delays = *delays_[loop];
  queue_of_thread = {this, &delays};
  const bool stopping = stopping_.load(std::memory_order_relaxed);
  std::size_t work = 0;
  if (!delays.empty()) {
    delays.release(stopping ? ~std::uint64_t{0} : pools::tsc_now());
    work = 1;  // also while nothing is due: a loop that went to sleep would be late
  }
  if (loop == 0) work += hashes_.expire(stopping);
  return work;
}

/// Null when this thread's loop is not known, which only happens before its first turn.
DelayQueue* TestProgram::delays_here() noexcept {
  if (delays_.size() == 1) return delays_.front().get();
  return queue_of_thread.first == this ? queue_of_thread.second : nullptr;
}

RegisteredBytes TestProgram::pattern(std::uint64_t start, std::size_t length) const noexcept {
  return pattern_.subspan(start % kPatternPeriod, length);
}

void TestProgram::null(Call& call, void* /*context*/) noexcept {
  if (call.arguments().remaining() != 0) [[unlikely]]
    return call.reject(AcceptStat::kGarbageArgs);
  call.reply();
}

void TestProgram::echo(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const std::span<const std::byte> data = reader.opaque(program_of(context).max_bytes_);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  call.results(opaque_bytes(data.size())).opaque(data);
  call.reply();
}

void TestProgram::checksum(Call& call, void* context) noexcept {
  const BulkArgument argument = only_bulk_argument(call, program_of(context).max_bytes_);
  if (!argument.ok) return call.reject(AcceptStat::kGarbageArgs);
  if (argument.chunk < 0) return reply_checksum(call, argument.inline_data);
  call.state()[0] = argument.length;
  call.pull(argument, &checksum_pulled);  // into kept(0)
}

void TestProgram::checksum_pulled(Call& call, void* /*context*/) noexcept {
  reply_checksum(call, call.kept(0).first(call.state()[0]));
}

void TestProgram::fill(Call& call, void* context) noexcept {
  const TestProgram& self = program_of(context);
  const PatternArgument argument = only_pattern_argument(call, self.max_bytes_);
  if (!argument.ok) return call.reject(AcceptStat::kGarbageArgs);
  (void)call.results(bulk_result_bytes(call, argument.length));
  call.push(self.pattern(argument.start, argument.length));
  call.reply();
}

void TestProgram::delay(Call& call, void* context) noexcept {
  TestProgram& self = program_of(context);
  XdrReader reader = call.arguments();
  const std::uint32_t microseconds = reader.u32();
  if (!reader.ok() || reader.remaining() != 0 || microseconds > kMaxDelayUs) {
    return call.reject(AcceptStat::kGarbageArgs);
  }
  DelayQueue* queue = self.delays_here();
  if (queue == nullptr || queue->full()) return call.reject(AcceptStat::kSystemErr);
  queue->hold(call.defer(), pools::tsc_now() + pools::ns_to_ticks(microseconds * 1e3));
}

void TestProgram::mirror(Call& call, void* context) noexcept {
  const BulkArgument argument = only_bulk_argument(call, program_of(context).max_bytes_);
  if (!argument.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = argument.length;
  call.pull(argument, &mirror_pulled);  // copies inline data: only registered memory can be pushed
}

void TestProgram::mirror_pulled(Call& call, void* /*context*/) noexcept {
  const std::size_t length = call.state()[0];
  (void)call.results(bulk_result_bytes(call, length));
  call.push(call.kept(0).first(length));
  call.reply();
}

void TestProgram::long_call(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const std::span<const std::byte> data = reader.opaque(program_of(context).max_bytes_);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  reply_checksum(call, data);
}

void TestProgram::long_reply(Call& call, void* context) noexcept {
  const TestProgram& self = program_of(context);
  const PatternArgument argument = only_pattern_argument(call, self.max_bytes_);
  if (!argument.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.results(opaque_bytes(argument.length)).opaque(self.pattern(argument.start, argument.length));
  call.reply();
}

void TestProgram::capture(Call& call, void* context) noexcept {
  const TestProgram& self = program_of(context);
  XdrReader reader = call.arguments();
  const std::uint32_t results_bytes = reader.u32();
  const std::uint32_t bulk_bytes = reader.u32();
  const BulkArgument argument = call.bulk_argument(reader, static_cast<std::uint32_t>(self.max_bytes_));
  const std::uint32_t start = reader.remaining() >= 4 ? reader.u32() : 0;
  if (!reader.ok() || !argument.ok || results_bytes > self.max_bytes_ || bulk_bytes > self.max_bytes_) {
    return call.reject(AcceptStat::kGarbageArgs);
  }
  call.state() = {results_bytes, bulk_bytes, start, argument.length};
  if (argument.chunk >= 0) return call.pull(argument, &capture_pulled);
  self.answer_capture(call, argument.inline_data);
}

void TestProgram::capture_pulled(Call& call, void* context) noexcept {
  program_of(context).answer_capture(call, call.kept(0).first(call.state()[3]));
}

void TestProgram::answer_capture(Call& call, std::span<const std::byte> data) const noexcept {
  const auto& [results_bytes, bulk_bytes, start, length] = call.state();
  const std::size_t bulk = bulk_bytes == 0 ? 0 : bulk_result_bytes(call, bulk_bytes);
  XdrWriter& results = call.results(results_bytes + 3 + bulk);
  std::byte* out = results.reserve(results_bytes);
  if (out != nullptr) {
    std::memcpy(out, pattern(start, results_bytes).data(), results_bytes);
    const std::uint64_t sum = apps::checksum(data);
    if (results_bytes >= sizeof sum) store_be64(out, sum);
  }
  if (bulk_bytes != 0) call.push(pattern(start, bulk_bytes));
  call.reply();
}

}  // namespace rodeo::apps
