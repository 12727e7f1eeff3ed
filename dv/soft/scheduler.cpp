// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/scheduler.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rodeo::dv::soft {

namespace {
constexpr std::uint64_t kStepNs = 100;
constexpr std::uint32_t kFence = 0x80;  // fm_ce_se: wait for earlier Reads
}  // namespace

Scheduler::Scheduler(std::uint64_t seed, Messages messages, Levers levers)
    : messages_(std::move(messages)), levers_(std::move(levers)), random_state_(seed) {}

void Scheduler::add(SendEngine& engine, std::uint32_t device, std::uint32_t qp) {
  engine.observer = this;
  engine.gate |= SendEngine::kObserved;
  auto queue = std::make_unique<Queue>();
  queue->engine = &engine;
  queue->device = device;
  queue->qp = qp;
  by_engine_.emplace(&engine, queue.get());
  queues_.push_back(std::move(queue));
}

void Scheduler::load(FaultPlan plan) {
  plan_ = std::move(plan);
  matches_.assign(plan_.rules.size(), 0);
  injected_ = 0;
}

void Scheduler::replay(std::vector<std::uint32_t> choices) {
  replayed_ = std::move(choices);
  std::reverse(replayed_.begin(), replayed_.end());
}

void Scheduler::silence(std::uint32_t device) {
  for (const auto& queue : queues_) {
    if (queue->device != device || queue->silent) continue;
    queue->silent = true;
    SendEngine& engine = *queue->engine;
    // Its own completions may reach it, so that whoever owns the dead device can drain and destroy it.
    for (const HeldSend& send : queue->sends) {
      if (send.signalled && engine.group->send_cq.has_room()) engine.group->send_cq.put(send.cqe);
    }
    queue->sends.clear();
    engine.observer = nullptr;
    by_engine_.erase(&engine);
  }
}

// ------------------------------------------------------------------------------------------------------- the choice

std::uint64_t Scheduler::random() noexcept {
  // A 64-bit mix of a counter: every seed, also 0, gives a sequence of its own.
  random_state_ += 0x9e3779b97f4a7c15U;
  std::uint64_t z = random_state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

std::size_t Scheduler::choose(std::size_t count) {
  std::size_t choice = static_cast<std::size_t>(random() % count);
  if (!replayed_.empty()) {
    choice = replayed_.back() % count;
    replayed_.pop_back();
  }
  choices_.push_back(static_cast<std::uint32_t>(choice));
  return choice;
}

void Scheduler::fire_due_timers() {
  for (const auto& queue : queues_) {
    if (!queue->timed || queue->silent || queue->due_ns > now_ns_) continue;
    queue->timed = false;
    queue->runnable = true;
    queue->engine->gate &= ~SendEngine::kWaiting;
  }
}

void Scheduler::list_items() {
  items_.clear();
  for (const auto& queue : queues_) {
    if (queue->silent) continue;
    const auto late = std::find_if(queue->sends.begin(), queue->sends.end(), [](const auto& s) { return !s.arrived; });
    if (queue->runnable) items_.push_back({ItemKind::kExecute, queue.get()});
    if (late != queue->sends.end()) items_.push_back({ItemKind::kReadData, queue.get()});
    if (!queue->sends.empty() && queue->sends.front().arrived && queue->engine->group->send_cq.has_room()) {
      items_.push_back({ItemKind::kPublishSend, queue.get()});
    }
    if (!queue->receives.empty() && queue->engine->outlet->cq.has_room()) {
      items_.push_back({ItemKind::kPublishReceive, queue.get()});
    }
  }
  const std::size_t messages = messages_.count();
  for (std::size_t i = 0; i < messages; ++i) items_.push_back({ItemKind::kMessage, nullptr, i});
}

bool Scheduler::step() {
  now_ns_ += kStepNs;
  fire_due_timers();
  list_items();
  if (items_.empty()) {
    const Queue* next = nullptr;
    for (const auto& queue : queues_) {
      if (queue->timed && !queue->silent && (next == nullptr || queue->due_ns < next->due_ns)) next = queue.get();
    }
    if (next == nullptr) return false;
    now_ns_ = std::max(now_ns_, next->due_ns);
    fire_due_timers();
    list_items();
    if (items_.empty()) return false;
  }
  perform(items_[choose(items_.size())]);
  return true;
}

std::size_t Scheduler::run_until_idle(std::size_t limit) {
  std::size_t steps = 0;
  while (steps < limit) {
    fire_due_timers();
    list_items();
    if (items_.empty()) break;
    now_ns_ += kStepNs;
    perform(items_[choose(items_.size())]);
    ++steps;
  }
  return steps;
}

// ----------------------------------------------------------------------------------------------------- what happens

void Scheduler::perform(const Item& item) {
  switch (item.kind) {
    case ItemKind::kExecute:
      execute_next(*item.queue);
      return;
    case ItemKind::kReadData: {
      auto& sends = item.queue->sends;
      HeldSend& read = *std::find_if(sends.begin(), sends.end(), [](const HeldSend& s) { return !s.arrived; });
      for (const DeferredRead::Piece& piece : read.pieces) std::memcpy(piece.to, piece.from, piece.length);
      read.arrived = true;
      return;
    }
    case ItemKind::kPublishSend: {
      const HeldSend& send = item.queue->sends.front();
      if (send.signalled) item.queue->engine->group->send_cq.put(send.cqe);
      item.queue->sends.pop_front();
      return;
    }
    case ItemKind::kPublishReceive:
      publish_receive(*item.queue);
      return;
    case ItemKind::kMessage:
      messages_.deliver(item.message);
      return;
  }
}

void Scheduler::execute_next(Queue& queue) {
  SendEngine& engine = *queue.engine;
  queue.runnable = false;
  if (!ready_to_run(engine) || engine.consumer == send_producer(engine)) return;
  const std::byte* ctrl = engine.sq + (engine.consumer & (engine.sq_bbs - 1)) * std::size_t{mlx5::kBbBytes};
  const bool fenced = (std::to_integer<std::uint32_t>(ctrl[11]) & kFence) != 0;
  if (fenced && std::any_of(queue.sends.begin(), queue.sends.end(), [](const auto& s) { return !s.arrived; })) {
    queue.runnable = true;
    return;
  }
  if (inject(queue)) return;
  queue.delayed = false;
  if (execute_one(engine) == Outcome::kDone) queue.runnable = engine.consumer != send_producer(engine);
}

bool Scheduler::inject(Queue& queue) {
  SendEngine& engine = *queue.engine;
  if (queue.not_ready > 0) {
    --queue.not_ready;
    static_cast<void>(soft::wait(engine, WaitReason::kReceiverNotReady));
    return true;
  }
  if (queue.delayed) return false;  // it has met the rules before
  const Wqe wqe = decode_control(engine);
  for (std::size_t i = 0; i < plan_.rules.size(); ++i) {
    const FaultRule& rule = plan_.rules[i];
    if ((rule.device != FaultRule::kAny && rule.device != queue.device) ||
        (rule.qp != FaultRule::kAny && rule.qp != queue.qp) || wqe.opcode > 63 ||
        ((rule.opcodes >> wqe.opcode) & 1U) == 0) {
      continue;
    }
    ++matches_[i];
    if (rule.nth != 0 && matches_[i] != rule.nth) continue;
    constexpr double kDenominator = 1U << 30;
    if (rule.probability < 1.0 && static_cast<double>(random() % (1U << 30)) >= rule.probability * kDenominator) {
      continue;
    }
    ++injected_;
    switch (rule.action) {
      case FaultAction::kDelay:
        queue.delayed = true;
        queue.timed = true;
        queue.due_ns = now_ns_ + rule.value;
        engine.gate |= SendEngine::kWaiting;
        return true;
      case FaultAction::kNotReady:
        if (rule.value == 0) return false;
        queue.delayed = true;
        queue.not_ready = rule.value - 1;
        static_cast<void>(soft::wait(engine, WaitReason::kReceiverNotReady));
        return true;
      case FaultAction::kSyndrome:
        static_cast<void>(fail_wqe(engine, wqe, static_cast<std::uint8_t>(rule.value), Reason::kInjected, true));
        return true;
      case FaultAction::kDisconnect:
        levers_.disconnect(engine);
        return true;
      case FaultAction::kKillPeer:
        levers_.kill_peer(engine);
        queue.runnable = true;
        return true;
    }
  }
  return false;
}

void Scheduler::publish_receive(Queue& queue) {
  queue.engine->outlet->cq.put(queue.receives.front());
  queue.receives.pop_front();
  finish_leaving(queue);
}

void Scheduler::publish_all_receives(Queue& queue) {
  CqWriter& cq = queue.engine->outlet->cq;
  while (!queue.receives.empty() && cq.has_room()) {
    cq.put(queue.receives.front());
    queue.receives.pop_front();
  }
}

void Scheduler::cut(const SendEngine& engine) {
  if (const auto found = by_engine_.find(&engine); found != by_engine_.end()) publish_all_receives(*found->second);
}

/// The peer hears that we are done with it after everything else it is to hear.
void Scheduler::finish_leaving(Queue& queue) {
  if (queue.leaving && queue.receives.empty() && !queue.silent) announce_departure(*queue.engine);
}

// --------------------------------------------------------------------------------------------- what the queues report

void Scheduler::on_doorbell(SendEngine& engine) noexcept { queue_of(engine).runnable = true; }

void Scheduler::complete_send(SendEngine& engine, const CqeImage& cqe) noexcept {
  queue_of(engine).sends.push_back({.cqe = cqe, .pieces = {}});
}

void Scheduler::complete_receive(SendEngine& engine, const CqeImage& cqe) noexcept {
  queue_of(engine).receives.push_back(cqe);
}

void Scheduler::wait(SendEngine& engine, WaitReason reason) noexcept {
  Queue& queue = queue_of(engine);
  queue.timed = true;
  queue.due_ns = now_ns_ + (reason == WaitReason::kReceiverNotReady ? engine.rnr_interval_ns : kStepNs);
}

void Scheduler::leave(SendEngine& engine) noexcept {
  Queue& queue = queue_of(engine);
  queue.leaving = true;
  finish_leaving(queue);
}

void Scheduler::defer_read(SendEngine& engine, const DeferredRead& read) noexcept {
  queue_of(engine).sends.push_back({.cqe = read.cqe,
                                    .signalled = read.signalled,
                                    .arrived = false,
                                    .pieces = {read.pieces.begin(), read.pieces.end()}});
}

void Scheduler::forget(SendEngine& engine) noexcept {
  const auto found = by_engine_.find(&engine);
  if (found == by_engine_.end()) return;
  Queue& queue = *found->second;
  publish_all_receives(queue);
  by_engine_.erase(found);
  std::erase_if(queues_, [&](const auto& entry) { return entry.get() == &queue; });
}

}  // namespace rodeo::dv::soft
