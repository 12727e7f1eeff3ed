// SPDX-License-Identifier: Apache-2.0
// Hot path, save for construction. Runs on: one poll core.
#include "apps/bench_core.h"

#include <unistd.h>

#include <algorithm>

#include "pools/clock.h"

namespace rodeo::apps {
namespace {

constexpr std::size_t kRetriesPerTurn = 16;

/// AUTH_SYS as large as what a kernel with a short host name sends.
Credential bench_credential() {
  Credential credential;
  credential.flavor = AuthFlavor::kSys;
  credential.sys.machine_name = "rodeo";
  credential.sys.uid = geteuid();
  credential.sys.gid = getegid();
  return credential;
}

}  // namespace

void BenchCounts::add(const BenchCounts& other) noexcept {
  calls += other.calls;
  payload_bytes += other.payload_bytes;
  for (std::size_t i = 0; i < errors.size(); ++i) errors[i] += other.errors[i];
  mismatches += other.mismatches;
  for (std::size_t i = 0; i < refusals.size(); ++i) refusals[i] += other.refusals[i];
  unsendable += other.unsendable;
}

std::uint64_t BenchCounts::error_count() const noexcept {
  std::uint64_t sum = mismatches + unsendable;
  for (const std::uint64_t number : errors) sum += number;
  return sum;
}

std::size_t BenchCore::sink_bytes(const Mix& mix) noexcept {
  std::size_t largest = 0;
  for (const MixEntry& entry : mix.entries) {
    const bool written =
        entry.proc == TestProc::kFill || entry.proc == TestProc::kMirror || entry.proc == TestProc::kNfsRead;
    largest = std::max<std::size_t>({largest, written ? entry.bytes : 0, entry.write_capacity});
  }
  return (largest + 63) & ~std::size_t{63};
}

BenchCore::BenchCore(const Setup& setup)
    : verify_(setup.verify),
      schedule_(schedule(*setup.mix)),
      quota_(setup.quota),
      slots_(setup.window),
      news_fd_(setup.news_fd) {
  const Credential credential = bench_credential();
  for (const MixEntry& entry : setup.mix->entries) {
    shapes_.emplace_back(entry, credential, setup.pattern, setup.verify, setup.nfs_file);
  }
  const std::size_t sink = sink_bytes(*setup.mix);
  calls_by_slot_.reserve(slots_.size() * shapes_.size());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i] = {this, nullptr, nullptr, 0, calls_by_slot_.data() + calls_by_slot_.size()};
    for (const CallShape& shape : shapes_) {
      calls_by_slot_.push_back(&calls_.emplace_back(shape, setup.sinks.subspan(i * sink, sink), &on_reply, &slots_[i]));
    }
  }
  waiting_.resize(slots_.size());
}

void BenchCore::begin(std::span<Connection* const> connections, std::uint64_t from, std::uint64_t until) noexcept {
  connections_ = connections;
  rotate_ = connections.size() > slots_.size();
  phase_ = Phase::kWarmUp;
  phase_ends_ = from;
  measure_until_ = until;
  sending_ = quota_ != 0;  // a core may have no share of a small count
  const std::uint64_t now = pools::tsc_now();
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    slots_[i].connection = connections_[i % connections_.size()];
    if (sending_ && in_flight_ < quota_) next_call(slots_[i], now);
  }
}

void BenchCore::stop_sending() noexcept {
  stop_measuring(pools::tsc_now());
  sending_ = false;
}

void BenchCore::stop_measuring(std::uint64_t now) noexcept {
  if (measuring_) measured_until_ = now;
  measuring_ = false;
}

void BenchCore::on_reply(void* context, const Reply& reply) noexcept {
  Slot& slot = *static_cast<Slot*>(context);
  slot.core->completed(slot, reply);
}

void BenchCore::completed(Slot& slot, const Reply& reply) noexcept {
  const std::uint64_t now = pools::tsc_now();
  --in_flight_;
  ++replies_seen_;
  if (measuring_) ++done_;
  if (!reply.ok()) [[unlikely]] {
    note_error(reply);
  } else if (verify_ && !slot.call->verify(reply)) [[unlikely]] {
    ++counts_.mismatches;
  } else if (measuring_) {
    histogram_.record(now - slot.sent_ticks);
    ++counts_.calls;
    counts_.payload_bytes += slot.call->payload_bytes();
  }
  if (sending_ && done_ + in_flight_ < quota_) {
    next_call(slot, now);
  } else if (done_ >= quota_ && in_flight_ == 0) {
    stop_measuring(now);
    sending_ = false;
  }
}

void BenchCore::next_call(Slot& slot, std::uint64_t now) noexcept {
  slot.call = slot.calls[schedule_[cursor_]];
  if (++cursor_ == schedule_.size()) cursor_ = 0;
  if (rotate_) {
    slot.connection = connections_[next_connection_];
    if (++next_connection_ == connections_.size()) next_connection_ = 0;
  }
  slot.call->renew();
  send(slot, now);
}

void BenchCore::send(Slot& slot, std::uint64_t now) noexcept {
  slot.sent_ticks = now;
  const SubmitOutcome outcome = slot.connection->submit(slot.call->request());
  if (outcome == SubmitOutcome::kPosted) [[likely]] {
    ++in_flight_;
    return;
  }
  refused(slot, outcome);
}

void BenchCore::refused(Slot& slot, SubmitOutcome outcome) noexcept {
  if (outcome == SubmitOutcome::kTooLarge) {
    ++counts_.unsendable;
    sending_ = false;
    note_failure();
    return;
  }
  if (outcome == SubmitOutcome::kClosed) {  // the slot rests
    note_failure();
    return;
  }
  if (measuring_) ++counts_.refusals[static_cast<std::size_t>(outcome)];
  std::size_t last = waiting_first_ + waiting_count_++;
  if (last >= waiting_.size()) last -= waiting_.size();
  waiting_[last] = &slot;
}

void BenchCore::note_failure() noexcept {
  if (failed_.exchange(true, std::memory_order_relaxed)) return;
  tell();
}

/// The only system call of a run: once for the first failure, once for the end.
void BenchCore::tell() noexcept {
  if (news_fd_ < 0) return;
  const std::uint64_t one = 1;
  static_cast<void>(!::write(news_fd_, &one, sizeof one));
}

void BenchCore::note_error(const Reply& reply) noexcept {
  ++counts_.errors[static_cast<std::size_t>(reply.error)];
  if (reply.error == CallError::kConnectionLost) note_failure();
}

void BenchCore::retry_waiting(std::uint64_t now) noexcept {
  for (std::size_t left = std::min(waiting_count_, kRetriesPerTurn); left != 0; --left) {
    if (done_ + in_flight_ >= quota_) return;
    Slot& slot = *waiting_[waiting_first_];
    if (++waiting_first_ == waiting_.size()) waiting_first_ = 0;
    --waiting_count_;
    send(slot, now);
  }
}

void BenchCore::change_phase(std::uint64_t now) noexcept {
  if (phase_ == Phase::kWarmUp) {
    phase_ = Phase::kMeasure;
    measuring_ = true;
    measured_from_ = now;
    phase_ends_ = measure_until_;
    return;
  }
  stop_measuring(now);
  sending_ = false;
}

std::size_t BenchCore::turn() noexcept {
  if (phase_ == Phase::kIdle || phase_ == Phase::kOver) return 0;
  const std::uint64_t now = pools::tsc_now();
  if (now >= phase_ends_ && sending_) change_phase(now);
  if (sending_) {
    if (waiting_count_ != 0) retry_waiting(now);
  } else if (in_flight_ == 0) {
    phase_ = Phase::kOver;
    finished_.store(true, std::memory_order_release);  // pairs with the acquire in finished()
    tell();
  }
  replies_.store(replies_seen_, std::memory_order_relaxed);
  return 0;  // what is sent is counted when it is answered
}

}  // namespace rodeo::apps
