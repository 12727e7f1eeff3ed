// SPDX-License-Identifier: Apache-2.0
#include <time.h>

#include "dv/soft/send_engine.h"

// Cold, but on the poll core: nothing here allocates, locks, throws or makes a system call.
//
// A QP in ERR flushes: every WQE left in its send queue and every receive left in its ring comes back as an error CQE.
// Those of the receive ring are the delicate ones, because the peer's core is the one that completes receives. They are
// flushed into our own send CQ, and not before the peer has said that it will never again touch this QP (remote_done),
// or its process is gone, and all that it completed has been polled.
//
// Neither end needs a fence on its hot path for this, nor a look at the states: until progress() has seen that the peer
// called for attention, an end goes on as if nothing had happened, as one does to which the news is still on its way.

namespace rodeo::dv::soft {

namespace {

std::uint64_t now_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // no system call: the kernel maps the clock into every process
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

void link_waiting(SendEngine& engine) noexcept {
  if (engine.linked) return;
  engine.linked = true;
  engine.next_waiting = engine.group->waiting;
  engine.group->waiting = &engine;
}

void flush_send_queue(SendEngine& engine) noexcept {
  const std::uint16_t producer = send_producer(engine);
  while (engine.consumer != producer && engine.group->send_cq.has_room()) {
    const Wqe wqe = decode_control(engine);
    complete_send(engine, {.qpn = engine.qpn,
                           .wqe_counter = wqe.index,
                           .opcode = MLX5_CQE_REQ_ERR,
                           .send_opcode = wqe.opcode,
                           .syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR});
    const auto left = static_cast<std::uint16_t>(producer - engine.consumer);
    engine.consumer = static_cast<std::uint16_t>(engine.consumer + (wqe.bbs < left ? wqe.bbs : left));
  }
}

/// Whether every receive that the peer completed has been polled, and no more will be.
bool receives_settled(const SendEngine& engine) noexcept {
  if (!engine.connected.load(std::memory_order_acquire)) return true;
  const bool gone = engine.peer_gone.load(std::memory_order_acquire);
  if (load_shared(engine.own->remote_done) != 0) {
    const auto ahead = static_cast<std::int32_t>(engine.receive_cq->consumer_index() - engine.own->final_producer);
    if (ahead >= 0) return true;
  }
  return gone && !engine.receive_cq->ready();
}

void flush_receives(SendEngine& engine) noexcept {
  if (!receives_settled(engine)) return;
  if (!engine.receive_flush_begun) {
    engine.receive_flush_begun = true;
    engine.receives_flushed = engine.qp->receive_tail();
  }
  CqWriter& cq = engine.group->send_cq;
  const std::uint16_t head = engine.qp->receive_head();
  while (engine.receives_flushed != head && cq.has_room()) {
    cq.put(CqeImage{.qpn = engine.qpn,
                    .wqe_counter = engine.receives_flushed,
                    .opcode = MLX5_CQE_RESP_ERR,
                    .syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR});
    ++engine.receives_flushed;
  }
}

/// The peer's end is in error or gone: what we still have to send fails, as when a real device gets no answer.
void lose_peer(SendEngine& engine) noexcept {
  engine.gate |= SendEngine::kPeerLost;
  if (engine.consumer != send_producer(engine)) {
    if (!engine.group->send_cq.has_room()) {
      link_waiting(engine);
      return;
    }
    fail_wqe(engine, decode_control(engine), MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, Reason::kPeerLeft, false);
    return;
  }
  if (engine.observer != nullptr) {
    engine.observer->leave(engine);
  } else {
    announce_departure(engine);
  }
}

void scan(Group& group) noexcept {
  const std::uint32_t limit = group.engine_limit.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < limit; ++i) {
    SendEngine* engine = group.engines[i].load(std::memory_order_acquire);
    if (engine == nullptr || engine->retired.load(std::memory_order_acquire)) continue;
    if ((engine->gate & SendEngine::kInError) == 0 && engine->connected.load(std::memory_order_acquire) &&
        (load_shared(engine->own->state) != kReady || load_shared(engine->peer->state) != kReady ||
         engine->peer_gone.load(std::memory_order_acquire))) {
      attend(*engine);
    }
  }
}

void serve_waiting(Group& group) noexcept {
  const std::uint64_t now = now_ns();
  SendEngine* engine = group.waiting;
  group.waiting = nullptr;
  while (engine != nullptr) {
    SendEngine* next = engine->next_waiting;
    engine->linked = false;
    const bool retired = engine->retired.load(std::memory_order_acquire);  // and leaves the list with that
    if (!retired && (engine->gate & SendEngine::kInError) != 0) {
      flush_send_queue(*engine);
      flush_receives(*engine);
      link_waiting(*engine);  // until it is destroyed: what is posted meanwhile is flushed, too
    } else if (!retired) {
      if (now >= engine->due_ns || load_shared(engine->peer->state) != kReady ||
          load_shared(engine->own->state) != kReady) {
        engine->gate &= ~SendEngine::kWaiting;
        attend(*engine);
      } else {
        link_waiting(*engine);
      }
    }
    engine = next;
  }
}

}  // namespace

void complete_send(SendEngine& engine, const CqeImage& cqe) noexcept {
  if (engine.observer != nullptr) {
    engine.observer->complete_send(engine, cqe);
  } else {
    engine.group->send_cq.put(cqe);
  }
}

void complete_receive(SendEngine& engine, const CqeImage& cqe) noexcept {
  if (engine.observer != nullptr) {
    engine.observer->complete_receive(engine, cqe);
  } else {
    engine.outlet->cq.put(cqe);
  }
}

Outcome fail_wqe(SendEngine& engine, const Wqe& wqe, std::uint8_t syndrome, Reason reason, bool both) noexcept {
  complete_send(engine, {.qpn = engine.qpn,
                         .wqe_counter = wqe.index,
                         .opcode = MLX5_CQE_REQ_ERR,
                         .send_opcode = wqe.opcode,
                         .syndrome = syndrome,
                         .vendor_syndrome = static_cast<std::uint8_t>(reason)});
  const auto left = static_cast<std::uint16_t>(send_producer(engine) - engine.consumer);
  engine.consumer = static_cast<std::uint16_t>(engine.consumer + (wqe.bbs < left ? wqe.bbs : left));
  enter_error(engine, both);
  return Outcome::kFailed;
}

Outcome wait(SendEngine& engine, WaitReason reason) noexcept {
  if (reason == WaitReason::kReceiverNotReady && engine.rnr_retry != 7 && engine.rnr_attempts++ >= engine.rnr_retry) {
    return fail_wqe(engine, decode_control(engine), MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, Reason::kReceiverNotReady,
                    false);
  }
  engine.gate |= SendEngine::kWaiting;
  engine.wait_reason = reason;
  if (engine.observer != nullptr) {
    engine.observer->wait(engine, reason);
    return Outcome::kWait;
  }
  engine.due_ns = reason == WaitReason::kReceiverNotReady ? now_ns() + engine.rnr_interval_ns : 0;
  link_waiting(engine);
  return Outcome::kWait;
}

void announce_departure(SendEngine& engine) noexcept {
  if (engine.left) return;
  engine.left = true;
  engine.peer->final_producer = engine.outlet->cq.producer;
  store_shared<std::uint32_t>(engine.peer->hazard, 0);
  store_shared<std::uint32_t>(engine.peer->remote_done, 1);  // release: pairs with the load in receives_settled
  __atomic_fetch_add(&engine.outlet->peer.header().attention, 1, __ATOMIC_RELEASE);
}

void enter_error(SendEngine& engine, bool both) noexcept {
  if ((engine.gate & SendEngine::kInError) != 0) return;
  engine.gate = (engine.gate | SendEngine::kInError) & ~SendEngine::kWaiting;
  store_shared<std::uint32_t>(engine.own->state, kError);
  if (engine.connected.load(std::memory_order_acquire)) {
    if (both) store_shared<std::uint32_t>(engine.peer->state, kError);
    if (engine.observer != nullptr) {
      engine.observer->leave(engine);
    } else {
      announce_departure(engine);
    }
  }
  flush_send_queue(engine);
  link_waiting(engine);
}

namespace {

/// The first time that the engine runs.
void begin(SendEngine& engine) noexcept {
  engine.gate &= ~SendEngine::kUnconnected;
  if (!engine.shares) return;
  engine.gate |= SendEngine::kShared;
  // The peer begins its queue anew when no QP of it takes part, so that no engine of ours but this can have looked.
  ReceiveQueue& shared = engine.outlet->shared;
  const std::uint32_t restarts = load_shared(engine.outlet->peer.shared_record().restarts);
  if (restarts == shared.restarts) return;
  shared.restarts = restarts;
  shared.consumer = shared.seen = shared.index = 0;
}

}  // namespace

bool ready_to_run(SendEngine& engine) noexcept {
  if ((engine.gate & SendEngine::kInError) != 0) {
    flush_send_queue(engine);
    return false;
  }
  if (!engine.connected.load(std::memory_order_acquire)) return false;
  if ((engine.gate & SendEngine::kUnconnected) != 0) begin(engine);
  if (load_shared(engine.own->state) != kReady) {
    enter_error(engine, false);
    return false;
  }
  if ((engine.gate & SendEngine::kPeerLost) != 0 || load_shared(engine.peer->state) != kReady ||
      engine.peer_gone.load(std::memory_order_acquire)) {
    lose_peer(engine);
    return false;
  }
  return (engine.gate & SendEngine::kWaiting) == 0;
}

void attend(SendEngine& engine) noexcept {
  if (engine.observer != nullptr) {
    engine.observer->on_doorbell(engine);
  } else if (ready_to_run(engine)) {
    run(engine);
  }
}

void progress(Group& group) noexcept {
  if (!group.receive_cqs.empty()) {
    // One lane a call: peers change states seldom, and nobody waits for it within a turn.
    if (group.next_lane >= group.receive_cqs.size()) group.next_lane = 0;
    auto* lane = static_cast<ReceiveCq*>(group.receive_cqs[group.next_lane++]);
    if (const std::uint32_t now = load_shared(*lane->attention); now != lane->attention_seen) [[unlikely]] {
      lane->attention_seen = now;
      scan(group);
    }
  }
  // Acquire: pairs with the control thread's release when it has changed an engine.
  if (const std::uint32_t now = group.alarm.load(std::memory_order_acquire); now != group.alarm_seen) [[unlikely]] {
    group.alarm_seen = now;
    scan(group);
  }
  if (group.waiting != nullptr) [[unlikely]]
    serve_waiting(group);
}

void adopt(Group& group, std::span<mlx5::Cq* const> receive_cqs) noexcept {
  group.receive_cqs = receive_cqs;
  SendEngine** link = &group.waiting;
  while (*link != nullptr) {
    SendEngine* engine = *link;
    if (engine->retired.load(std::memory_order_acquire)) {
      *link = engine->next_waiting;
    } else {
      link = &engine->next_waiting;
    }
  }
}

}  // namespace rodeo::dv::soft
