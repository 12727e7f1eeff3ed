// SPDX-License-Identifier: Apache-2.0
#include "apps/sum_stream.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "apps/command_line.h"
#include "engine/xdr_writer.h"

namespace rodeo::apps {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kWhere = "";
constexpr std::string_view kLost = "the connection to the engine was lost";
constexpr auto kPatience = std::chrono::seconds(10);
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

CallTarget target_of(TestProc proc) { return {kTestProgram, kTestVersion, static_cast<std::uint32_t>(proc), {}}; }

std::string_view meaning(HashStatus status) {
  switch (status) {
    case HashStatus::kOk:
      return "no error";
    case HashStatus::kUnknownSession:
      return "the engine has forgotten the session";
    case HashStatus::kBadOffset:
      return "the engine had those octets before";
    case HashStatus::kTooManySessions:
      return "the engine hashes too many files at once";
    case HashStatus::kTooFarAhead:
      return "too many blocks were sent ahead; use fewer --in-flight";
    case HashStatus::kIncomplete:
      return "the engine still misses a block";
  }
  return "the engine answered something unknown";
}

Config engine_config(const SumStream::Setup& setup) {
  Config config;
  config.hugepages = setup.hugepages;
  config.connections = 1;
  config.credits = setup.blocks_in_flight + 1;
  config.bulk_bytes = 65'536;  // long messages are not used here
  config.bulk_buffers = 4;
  config.application_bytes = setup.block_bytes * setup.blocks_in_flight * (setup.back ? 2 : 1);
  return config;
}

}  // namespace

Result<std::unique_ptr<SumStream>> SumStream::open(const Setup& setup) {
  auto engine = Engine::open(setup.address, engine_config(setup));
  if (!engine) return tl::unexpected(engine.error());
  if (auto started = (*engine)->start(); !started) return tl::unexpected(started.error());
  std::unique_ptr<SumStream> stream(new SumStream(setup, std::move(*engine)));
  auto connection = stream->engine_->connect(setup.address);
  if (!connection) return tl::unexpected(connection.error());
  stream->connection_ = *connection;
  return stream;
}

SumStream::SumStream(const Setup& setup, std::unique_ptr<Engine> engine)
    : address_(setup.address),
      back_(setup.back),
      block_bytes_(setup.block_bytes),
      begin_(target_of(TestProc::kHashBegin)),
      update_(target_of(TestProc::kHashUpdate)),
      end_(target_of(TestProc::kHashEnd)),
      mirror_(target_of(TestProc::kMirror)),
      engine_(std::move(engine)) {
  RegisteredBytes memory = engine_->application_memory();
  const auto take = [&memory, this] {
    const RegisteredBytes part = memory.first(block_bytes_);
    memory = memory.subspan(block_bytes_);
    return part;
  };
  for (std::uint32_t i = 0; i < setup.blocks_in_flight; ++i) {
    Slot& slot = slots_.emplace_back();
    slot.stream = this;
    slot.block = take();
    if (back_) slot.returned = take();
  }
  free_slots_ = slots_.size();
}

SumStream::~SumStream() { engine_->stop(); }

bool SumStream::useless() const noexcept { return useless_ || !connection_->open(); }

std::string SumStream::failure_of(const Reply& reply) {
  if (reply.error == CallError::kConnectionLost) return std::string(kLost);
  if (reply.error != CallError::kNone) return fmt::format("the engine refused: {}", to_string(reply.error));
  switch (reply.accept_stat) {
    case AcceptStat::kSuccess:
      return {};
    case AcceptStat::kProgUnavail:
    case AcceptStat::kProgMismatch:
    case AcceptStat::kProcUnavail:
      return "the engine does not serve hashing";
    case AcceptStat::kGarbageArgs:
      return "the engine did not accept the block; its --bulk-bytes may be smaller than our --block";
    case AcceptStat::kSystemErr:
      break;
  }
  return "the engine could not serve the call; it may be short of buffers";
}

Result<Sha256> SumStream::hash(int file, const Progress& progress) {
  failure_.clear();
  read_offset_ = done_bytes_ = 0;
  end_of_file_ = false;
  if (auto begun = begin_session(); !begun) return tl::unexpected(begun.error());
  struct stat about = {};
  const bool regular = fstat(file, &about) == 0 && S_ISREG(about.st_mode);
  if (regular) (void)posix_fadvise(file, 0, 0, POSIX_FADV_SEQUENTIAL);
  Clock::time_point shown = Clock::now();
  while (busy() || (!end_of_file_ && failure_.empty())) {
    if (!end_of_file_ && failure_.empty()) read_ahead(file, regular);
    send_waiting();
    if (!turn()) break;
    if (progress && heard_ - shown > kProgressInterval) {
      shown = heard_;
      progress(done_bytes_);
    }
  }
  if (!failure_.empty()) return failed(failure_);
  return end_session();
}

Result<void> SumStream::begin_session() {
  const auto answer = ask(begin_, {});
  if (!answer) return tl::unexpected(answer.error());
  XdrReader reader({answer->results.data(), answer->results_bytes});
  const auto status = reader.enumeration(HashStatus::kLast);
  if (reader.ok() && status != HashStatus::kOk) return fail(kWhere, std::string(meaning(status)));
  session_ = reader.u64();
  usable_block_bytes_ = std::min<std::size_t>(block_bytes_, reader.u32());
  if (!reader.ok() || usable_block_bytes_ == 0) return fail(kWhere, "the engine's answer makes no sense");
  return {};
}

Result<Sha256> SumStream::end_session() {
  std::array<std::byte, 8> arguments{};
  store_be64(arguments.data(), session_);
  const auto answer = ask(end_, arguments);
  if (!answer) return tl::unexpected(answer.error());
  XdrReader reader({answer->results.data(), answer->results_bytes});
  const auto status = reader.enumeration(HashStatus::kLast);
  if (reader.ok() && status != HashStatus::kOk) return fail(kWhere, std::string(meaning(status)));
  Sha256 hash{};
  if (!reader.read_into(hash)) return fail(kWhere, "the engine's answer makes no sense");
  return hash;
}

Result<SumStream::Answer> SumStream::ask(const CallTarget& target, std::span<const std::byte> arguments) {
  Answer answer;
  CallRequest request;
  request.target = &target;
  request.arguments = arguments;
  request.max_results = answer.results.size();
  request.context = &answer;
  request.on_reply = [](void* context, const Reply& reply) noexcept {
    Answer& into = *static_cast<Answer*>(context);
    into.done = true;
    into.failure = failure_of(reply);
    into.results_bytes = std::min(reply.results.size(), into.results.size());
    std::memcpy(into.results.data(), reply.results.data(), into.results_bytes);
  };
  heard_ = Clock::now();
  SubmitOutcome outcome = connection_->submit(request);
  while (outcome != SubmitOutcome::kPosted) {
    if (outcome == SubmitOutcome::kClosed) give_up(std::string(kLost));
    if (!failure_.empty() || !turn()) return failed(failure_);
    outcome = connection_->submit(request);
  }
  while (!answer.done) {
    if (turn()) continue;
    // The call points at our frame: end it before leaving.
    useless_ = true;
    engine_->disconnect(connection_);
    while (!answer.done) engine_->step();
    return failed(failure_);
  }
  if (!answer.failure.empty()) return failed(answer.failure);
  return answer;
}

void SumStream::read_ahead(int file, bool regular) {
  if (free_slots_ == 0) return;
  if (!regular) {  // a pipe may have nothing yet, while replies come in
    pollfd wanted{file, POLLIN, 0};
    const int ready = ::poll(&wanted, 1, busy() ? 0 : 10);
    heard_ = busy() ? heard_ : Clock::now();  // it is not the engine we wait for
    if (ready <= 0) return;
  }
  const auto slot = std::find_if(slots_.begin(), slots_.end(), [](const Slot& s) { return s.stage == Stage::kFree; });
  const ssize_t length = ::read(file, slot->block.data(), usable_block_bytes_);
  if (length < 0) {
    if (errno != EINTR) give_up(std::strerror(errno));
    return;
  }
  if (length == 0) {
    end_of_file_ = true;
    return;
  }
  slot->stage = Stage::kHash;
  slot->length = static_cast<std::uint32_t>(length);
  slot->offset = read_offset_;
  read_offset_ += slot->length;
  --free_slots_;
  if (free_slots_ + 1 == slots_.size()) heard_ = Clock::now();  // the first of a new wait
  send(*slot);
}

void SumStream::send(Slot& slot) noexcept {
  XdrWriter writer(slot.arguments);
  if (slot.stage == Stage::kHash) {
    writer.u64(session_);
    writer.u64(slot.offset);
  }
  writer.u32(slot.length);
  slot.source = {writer.size(), slot.block.first(slot.length)};
  CallRequest request;
  request.target = slot.stage == Stage::kHash ? &update_ : &mirror_;
  request.arguments = writer.written();
  request.sources = {&slot.source, 1};
  if (slot.stage == Stage::kMirror) {
    slot.sink = slot.returned.first(slot.length);
    request.sinks = {&slot.sink, 1};
  }
  request.max_results = 4;
  request.context = &slot;
  request.on_reply = [](void* context, const Reply& reply) noexcept {
    Slot& answered = *static_cast<Slot*>(context);
    answered.stream->take_reply(answered, reply);
  };
  const SubmitOutcome outcome = connection_->submit(request);
  slot.unsent = outcome != SubmitOutcome::kPosted;
  if (outcome == SubmitOutcome::kClosed || outcome == SubmitOutcome::kTooLarge) {
    slot.unsent = false;
    slot.stage = Stage::kFree;
    ++free_slots_;
    give_up(outcome == SubmitOutcome::kClosed ? std::string(kLost)
                                              : "the block is too large to send; use a smaller --block");
  }
}

void SumStream::send_waiting() noexcept {
  for (Slot& slot : slots_) {
    if (slot.unsent) send(slot);
  }
}

void SumStream::take_reply(Slot& slot, const Reply& reply) noexcept {
  ++replies_;
  const Stage stage = slot.stage;
  if (std::string failure = failure_of(reply); !failure.empty()) {
    give_up(std::move(failure));
  } else if (stage == Stage::kHash) {
    XdrReader reader = reply.reader();
    const auto status = reader.enumeration(HashStatus::kLast);
    if (!reader.ok()) give_up("the engine's answer makes no sense");
    if (status != HashStatus::kOk) give_up(std::string(meaning(status)));
  } else if (reply.written.size() != 1 || reply.written[0] != slot.length ||
             std::memcmp(slot.block.data(), slot.returned.data(), slot.length) != 0) {
    give_up(fmt::format("octets {} to {} came back different", slot.offset, slot.offset + slot.length - 1));
  }
  if (stage == Stage::kHash && back_ && failure_.empty()) {
    slot.stage = Stage::kMirror;
    std::memset(slot.returned.data(), 0, slot.length);
    slot.unsent = true;  // goes out in the next turn
    return;
  }
  if (failure_.empty()) done_bytes_ += slot.length;
  slot.stage = Stage::kFree;
  ++free_slots_;
}

tl::unexpected<Error> SumStream::failed(std::string why) {
  if (why == kLost) why += ": " + engine_->why_closed(connection_);
  return fail(kWhere, std::move(why));
}

/// Keeps the first reason.
void SumStream::give_up(std::string why) noexcept {
  if (failure_.empty()) failure_ = std::move(why);
}

bool SumStream::turn() {
  constexpr int kStepsPerLook = 64;
  for (int i = 0; i < kStepsPerLook; ++i) {
    engine_->step();
    if (replies_ != replies_noticed_) break;
  }
  const Clock::time_point now = Clock::now();
  if (replies_ != replies_noticed_) {
    replies_noticed_ = replies_;
    heard_ = now;
    return true;
  }
  if (stop_signalled()) {
    give_up("interrupted");
  } else if (now - heard_ > kPatience) {
    give_up(fmt::format("{} has not answered for {} s", address_, std::chrono::seconds(kPatience).count()));
  } else {
    return true;
  }
  useless_ = true;
  return false;
}

}  // namespace rodeo::apps
