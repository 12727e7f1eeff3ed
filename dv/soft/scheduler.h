// SPDX-License-Identifier: Apache-2.0
#pragma once

// The order of events in a simulated fabric. A doorbell only makes its queue runnable; step() then picks one of the
// things that could happen next, at random but from a seed: execute a WQE, publish a completion that is held back,
// let the data of a Read arrive, fire a timer, deliver a message of the connection manager. What may overtake what is
// as the InfiniBand architecture has it: one queue executes in order and completes in order; Reads may lag behind later
// Sends; a send's completion may lag behind the peer's reaction; there is no order between queues.
//
// Every choice is logged; replaying the log repeats the run. Runs on: the one thread of the fabric.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "dv/soft/fault_plan.h"
#include "dv/soft/send_engine.h"

namespace rodeo::dv::soft {

class Scheduler final : public Observer {
 public:
  /// Beside the queues, the fabric offers its messages: how many could be delivered now, and deliver the nth.
  struct Messages {
    std::function<std::size_t()> count;
    std::function<void(std::size_t)> deliver;
  };
  /// What faults do beyond one queue.
  struct Levers {
    std::function<void(SendEngine&)> disconnect;
    std::function<void(SendEngine&)> kill_peer;
  };

  Scheduler(std::uint64_t seed, Messages messages, Levers levers);

  void add(SendEngine& engine, std::uint32_t device, std::uint32_t qp);
  void load(FaultPlan plan);
  /// Uses these choices, and the seed when they are used up.
  void replay(std::vector<std::uint32_t> choices);

  /// Lets one thing happen; with nothing else to do, the clock runs to the next timer. False: nothing is left.
  bool step();
  /// Steps until only timers are left, or `limit` steps have been made. Returns how many.
  std::size_t run_until_idle(std::size_t limit);

  [[nodiscard]] std::uint64_t now_ns() const noexcept { return now_ns_; }
  /// How often the rules of the present plan have acted.
  [[nodiscard]] std::uint32_t injected() const noexcept { return injected_; }
  [[nodiscard]] const std::vector<std::uint32_t>& choices() const noexcept { return choices_; }
  /// The device's queues stop for good, and are no business of the scheduler any more.
  void silence(std::uint32_t device);
  /// Nothing more will come from this queue: what it has delivered shows now.
  void cut(const SendEngine& engine);

  // Observer.
  void on_doorbell(SendEngine& engine) noexcept override;
  void complete_send(SendEngine& engine, const CqeImage& cqe) noexcept override;
  void complete_receive(SendEngine& engine, const CqeImage& cqe) noexcept override;
  void wait(SendEngine& engine, WaitReason reason) noexcept override;
  void leave(SendEngine& engine) noexcept override;
  void defer_read(SendEngine& engine, const DeferredRead& read) noexcept override;
  void forget(SendEngine& engine) noexcept override;

 private:
  struct HeldSend {
    CqeImage cqe;
    bool signalled = true;
    bool arrived = true;  // false: a Read whose data is still to come
    std::vector<DeferredRead::Piece> pieces;
  };
  struct Queue {
    SendEngine* engine = nullptr;
    std::uint32_t device = 0;
    std::uint32_t qp = 0;
    bool runnable = false;
    bool timed = false;
    bool leaving = false;
    bool silent = false;
    std::uint64_t due_ns = 0;
    std::uint64_t not_ready = 0;  // injected, still to come
    bool delayed = false;         // the WQE at the consumer index has had its delay
    std::deque<HeldSend> sends;
    std::deque<CqeImage> receives;
  };
  enum class ItemKind : std::uint8_t { kExecute, kReadData, kPublishSend, kPublishReceive, kMessage };
  struct Item {
    ItemKind kind;
    Queue* queue = nullptr;
    std::size_t message = 0;
  };

  [[nodiscard]] Queue& queue_of(const SendEngine& engine) noexcept { return *by_engine_.at(&engine); }
  void fire_due_timers();
  void list_items();
  [[nodiscard]] std::size_t choose(std::size_t count);
  [[nodiscard]] std::uint64_t random() noexcept;
  void perform(const Item& item);
  void execute_next(Queue& queue);
  /// Acts on a matching fault rule; true when the WQE must not be executed now.
  [[nodiscard]] bool inject(Queue& queue);
  void publish_receive(Queue& queue);
  static void publish_all_receives(Queue& queue);
  void finish_leaving(Queue& queue);

  Messages messages_;
  Levers levers_;
  std::uint64_t random_state_;
  std::uint64_t now_ns_ = 0;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::unordered_map<const SendEngine*, Queue*> by_engine_;
  FaultPlan plan_;
  std::vector<std::uint32_t> matches_;  // of each rule
  std::uint32_t injected_ = 0;
  std::vector<Item> items_;
  std::vector<std::uint32_t> choices_;
  std::vector<std::uint32_t> replayed_;
};

}  // namespace rodeo::dv::soft
