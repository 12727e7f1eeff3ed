// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/file_transfer.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rodeo::nfs {
namespace {

constexpr std::uint32_t kLongest[] = {kMaxTransferBytes};
constexpr ProcedureBinding kRead{.number = static_cast<std::uint32_t>(NfsProc3::kRead),
                                 .name = "READ",
                                 .results = kLongest,
                                 .max_results = 4 + 4 + kFattr3Bytes + 4 + 4 + 4};
constexpr ProcedureBinding kWrite{.number = static_cast<std::uint32_t>(NfsProc3::kWrite),
                                  .name = "WRITE",
                                  .arguments = kLongest,
                                  .max_results = 4 + 4 + 24 + 4 + kFattr3Bytes + 4 + 4 + kVerfBytes};
constexpr auto kBusyPause = std::chrono::milliseconds(200);
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

}  // namespace

FileTransfer::FileTransfer(NfsClient& client, std::uint32_t block_bytes, std::uint32_t window)
    : client_(client),
      block_bytes_(std::min(block_bytes, kMaxTransferBytes)),
      read_target_(client.target(NfsProc3::kRead)),
      write_target_(client.target(NfsProc3::kWrite)),
      slots_(window) {
  RegisteredBytes memory = client_.transport().engine().application_memory();
  for (Slot& slot : slots_) {
    slot.owner = this;
    slot.block = memory.first(block_bytes_);
    memory = memory.subspan(block_bytes_);
  }
}

NfsResult<std::uint64_t> FileTransfer::read(const FileHandle& file, std::uint64_t expected_bytes,
                                            const FsLimits& limits, const Sink& sink, const Progress& progress) {
  begin(file, false, progress);
  const std::uint32_t block = std::min(block_bytes_, limits.max_read);
  std::uint64_t next = 0;
  std::uint64_t taken = 0;
  bool eof = false;
  while (!eof && !failure_) {
    // Beyond the expected end only one at a time: the first of them mostly says that there is nothing.
    while (used_ < slots_.size() && (next < expected_bytes || used_ == 0)) {
      const std::uint64_t rest = next < expected_bytes ? expected_bytes - next : block;
      const auto length = static_cast<std::uint32_t>(std::min<std::uint64_t>(block, rest));
      start(slot_at(used_++), next, length);
      next += length;
    }
    if (!turn()) break;
    for (; used_ != 0 && !eof && !failure_ && slots_[head_].state == State::kComplete; --used_) {
      Slot& slot = slots_[head_];
      if (auto sunk = sink(slot.block.first(slot.done)); !sunk) fail_with(give_up(sunk.error()).value());
      taken += slot.done;
      eof = slot.eof;
      slot.state = State::kFree;
      head_ = (head_ + 1) % slots_.size();
    }
  }
  drain();
  return outcome().map([&] { return taken; });
}

NfsResult<std::uint64_t> FileTransfer::write(const FileHandle& file, const FsLimits& limits, const Source& source,
                                             const Progress& progress) {
  constexpr int kMostTimes = 5;
  const std::uint32_t block = std::min(block_bytes_, limits.max_write);
  for (int times = 0; times < kMostTimes; ++times) {
    auto written = write_once(file, block, source, progress);
    if (!written) return written;
    if (unstable_ && !forgotten_) {
      const auto verifier = client_.commit(file);
      if (!verifier) return tl::unexpected(verifier.error());
      forgotten_ = *verifier != *verifier_;
    }
    if (!forgotten_) return written;
  }
  return give_up("the server forgets what was written before it is stable, again and again", "does it restart?");
}

NfsResult<std::uint64_t> FileTransfer::write_once(const FileHandle& file, std::uint32_t block, const Source& source,
                                                  const Progress& progress) {
  begin(file, true, progress);
  std::uint64_t next = 0;
  bool end = false;
  while (!failure_ && !forgotten_ && (!end || used_ != 0)) {
    while (!end && !failure_ && used_ < slots_.size()) {
      Slot& slot = slot_at(used_);
      const auto length = source(next, slot.block.first(block));
      if (!length) {
        fail_with(give_up(length.error()).value());
      } else if (*length == 0) {
        end = true;
      } else {
        ++used_;
        start(slot, next, static_cast<std::uint32_t>(*length));
        next += *length;
      }
    }
    if (used_ != 0 && !turn()) break;
    for (; used_ != 0 && slots_[head_].state == State::kComplete; --used_) {
      slots_[head_].state = State::kFree;
      head_ = (head_ + 1) % slots_.size();
    }
  }
  drain();
  return outcome().map([&] { return next; });
}

void FileTransfer::begin(const FileHandle& file, bool writing, const Progress& progress) {
  file_ = file;
  writing_ = writing;
  failure_.reset();
  verifier_.reset();
  unstable_ = forgotten_ = lost_ = false;
  moved_bytes_ = 0;
  heard_ = shown_ = Clock::now();
  progress_ = &progress;
}

void FileTransfer::start(Slot& slot, std::uint64_t offset, std::uint32_t length) {
  slot.offset = offset;
  slot.length = length;
  slot.done = 0;
  slot.eof = false;
  slot.not_before = {};
  if (out_ == 0) heard_ = Clock::now();  // what went before was no wait for the server
  send(slot);
}

void FileTransfer::send(Slot& slot) {
  const RegisteredBytes rest = slot.block.subspan(slot.done, slot.length - slot.done);
  const auto count = static_cast<std::uint32_t>(rest.size());
  BoundCall& call = writing_ ? slot.call.emplace(kWrite, write_target_, slot.room)
                             : slot.call.emplace(kRead, read_target_, slot.room);
  XdrWriter& out = call.arguments();
  encode(out, file_);
  out.u64(slot.offset + slot.done);
  out.u32(count);
  if (writing_) {
    out.enumeration(StableHow::kUnstable);
    call.eligible_argument(rest);
  } else {
    call.eligible_result(rest);
  }
  slot.state = State::kToSend;
  Connection& connection = client_.transport().connection();
  if (call.plan(connection) != BoundCall::Outcome::kPlanned) return fail_with({NfsStat3::kOk, "the call has no room"});
  CallRequest& request = call.request();
  request.on_reply = &on_reply;
  request.context = &slot;
  const SubmitOutcome sent = connection.submit(request);
  if (sent == SubmitOutcome::kPosted) {
    slot.state = State::kOut;
    ++out_;
  } else if (sent == SubmitOutcome::kClosed) {
    lost_ = true;
    fail_with({});
  } else if (sent == SubmitOutcome::kTooLarge) {
    fail_with({NfsStat3::kOk, "the block is too large to send", "use a smaller --block"});
  }
}

void FileTransfer::send_waiting() {
  for (std::size_t i = 0; i < used_ && !failure_; ++i) {
    Slot& slot = slot_at(i);
    if (slot.state != State::kToSend || (slot.not_before != Clock::time_point{} && Clock::now() < slot.not_before)) {
      continue;
    }
    send(slot);
    if (slot.state == State::kToSend) return;  // no room: nor for the others
  }
}

void FileTransfer::on_reply(void* context, const Reply& reply) noexcept {
  Slot& slot = *static_cast<Slot*>(context);
  slot.owner->take_reply(slot, reply);
}

void FileTransfer::take_reply(Slot& slot, const Reply& reply) {
  --out_;
  slot.state = State::kToSend;
  const std::string_view step = writing_ ? "WRITE" : "READ";
  lost_ = lost_ || reply.error == CallError::kConnectionLost;
  if (auto failure = NfsClient::failure_of(reply.error, reply.accept_stat, reply.results.size(), step)) {
    return fail_with(std::move(*failure));
  }
  BoundResults results(slot.call->request(), reply);
  const auto status = static_cast<NfsStat3>(results.reader().u32());
  if (status == NfsStat3::kJukebox) {
    slot.not_before = Clock::now() + kBusyPause;
    return;
  }
  ++answers_;
  if (status != NfsStat3::kOk) {
    fail_with(answered(step, status));
  } else if (writing_) {
    take_write(slot, results);
  } else {
    take_read(slot, results);
  }
}

void FileTransfer::take_read(Slot& slot, BoundResults& results) {
  XdrReader& in = results.reader();
  std::optional<Fattr3> attributes;
  decode(in, attributes);
  const std::uint32_t count = in.u32();
  slot.eof = in.boolean();
  const auto data = results.eligible_result();
  if (!results.ok() || data.size() != count || count > slot.length - slot.done || (count == 0 && !slot.eof)) {
    return fail_with({NfsStat3::kOk, "READ: the server's answer makes no sense"});
  }
  std::byte* const to = slot.block.data() + slot.done;
  if (count != 0 && data.data() != to) std::memcpy(to, data.data(), count);  // it came inline
  moved(slot, count);
  if (slot.eof) slot.state = State::kComplete;
}

void FileTransfer::take_write(Slot& slot, BoundResults& results) {
  XdrReader& in = results.reader();
  WccData wcc;
  decode(in, wcc);
  const std::uint32_t count = in.u32();
  const auto committed = in.enumeration(StableHow::kFileSync);
  Verf3 verifier{};
  decode(in, verifier);
  if (!in.ok() || count == 0 || count > slot.length - slot.done) {
    return fail_with({NfsStat3::kOk, "WRITE: the server's answer makes no sense"});
  }
  unstable_ = unstable_ || committed == StableHow::kUnstable;
  if (!verifier_) verifier_ = verifier;
  forgotten_ = forgotten_ || verifier != *verifier_;
  moved(slot, count);
}

void FileTransfer::moved(Slot& slot, std::uint32_t count) {
  moved_bytes_ += count;
  slot.done += count;
  if (slot.done == slot.length) slot.state = State::kComplete;
}

bool FileTransfer::turn() {
  constexpr int kStepsPerLook = 64;
  const std::uint64_t before = answers_;
  send_waiting();
  for (int i = 0; i < kStepsPerLook && answers_ == before; ++i) client_.transport().engine().step();
  const Clock::time_point now = Clock::now();
  if (answers_ != before) {
    heard_ = now;
    if (*progress_ && now - shown_ > kProgressInterval) {
      shown_ = now;
      (*progress_)(moved_bytes_);
    }
  }
  if (client_.interrupted()) {
    fail_with({NfsStat3::kOk, "interrupted"});
  } else if (now - heard_ > client_.options().patience) {
    fail_with({NfsStat3::kOk,
               "the server has not answered for " + std::to_string(client_.options().patience.count()) + " s",
               "does it still run? --timeout gives it longer"});
  }
  return !failure_;
}

/// Keeps the first reason.
void FileTransfer::fail_with(NfsFailure failure) {
  if (!failure_) failure_ = std::move(failure);
}

void FileTransfer::drain() {
  constexpr auto kGrace = std::chrono::seconds(2);
  Engine& engine = client_.transport().engine();
  const auto begun = Clock::now();
  while (out_ != 0 && Clock::now() - begun < kGrace) engine.step();
  if (lost_ && failure_) {
    failure_->what = "the connection was lost: " + engine.why_closed(&client_.transport().connection());
    failure_->next = "try again";
  }
  if (out_ != 0) client_.hang_up();
  while (out_ != 0) engine.step();
  for (Slot& slot : slots_) slot.state = State::kFree;
  head_ = used_ = 0;
}

NfsResult<void> FileTransfer::outcome() {
  if (!failure_) return {};
  return tl::unexpected(std::move(*failure_));
}

}  // namespace rodeo::nfs
