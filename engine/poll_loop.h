// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
// One poll core's loop: its connections, their queue pairs, its caches and Calls. It shares nothing but the rings it
// gives Calls to and takes them back from. step() is one turn; whoever owns the core calls it again and again.

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include "engine/loop_context.h"
#include "engine/qpn_table.h"
#include "engine/requester_core.h"
#include "engine/responder.h"
#include "pools/relax.h"

namespace rodeo {

/// Something for the loop to do between two turns, from another thread. The sender waits for `done`.
struct Command {
  std::function<void()> work;
  std::atomic<bool> done{false};  // release by the loop, acquire by the sender
};
using CommandRing = pools::MpscRing<Command*>;

template <dv::Provider P>
class PollLoop {
 public:
  PollLoop(dv::Device<P>& device, typename P::PollGroup& group, Memory& memory, const dv::MemoryRegion& region,
           const ProgramTable& programs, const LoopLimits& limits, std::unique_ptr<ReturnRing> returned,
           std::unique_ptr<CommandRing> commands)
      : device_(device),
        group_(group),
        context_(memory, region, programs, limits, std::move(returned)),
        responder_(context_),
        commands_(std::move(commands)) {
    context_.responder = &responder_;
  }

  /// One turn. Returns how much was done; 0 means idle.
  std::size_t step() noexcept {
    // First: it frees the buffers and queue room that all below need.
    std::size_t work = context_.shared.empty() ? reap_completions<false>() : reap_completions<true>();
    if (!context_.to_close.empty()) [[unlikely]]
      close_those();
    if (!context_.returned->empty()) [[unlikely]]
      work += take_returned();  // replies and pulls of Calls that were elsewhere
    if (!context_.waiters.empty()) [[unlikely]]
      retry_waiters();
    if (responder_.buffers_awaited()) [[unlikely]]
      responder_.retry_buffers();
    if (!commands_->empty()) [[unlikely]]
      work += run_commands();
    responder_.flush_handoff();  // only whole Calls cross the ring
    flush_queues();              // receives before Sends: a Reply grants credits (RFC 8166 §3.3.1)
    if (!pollers_.empty()) work += run_pollers();
    if (!draining_.empty()) [[unlikely]]
      advance_draining();
    group_.progress();
    return work;
  }

  /// After a turn that found nothing to do: looks a few times at what makes work most often, the completion queues and
  /// the Calls that come back. A look takes a fraction of a turn, so a lone message is found that much sooner.
  void await_work() const noexcept {
    for (int look = 0; look < kLooks; ++look) {
      pools::relax();
      if (group_.ready() || !context_.returned->empty()) return;
    }
  }

  // The rest is slow, and runs on the loop's core as well: through a Command, or before the loop starts.

  void add_poller(std::function<std::size_t()> poller) { pollers_.push_back(std::move(poller)); }
  void set_workers(std::vector<WorkRing*> rings) {
    responder_.set_workers(rings.size());
    context_.workers = std::move(rings);
  }

  /// Takes a connection over and posts its first receives. False when there is not even one buffer or Call for it.
  [[nodiscard]] bool attach(Link<P>& link) {
    if (context_.dirty.size() <= links_) context_.dirty.resize(2 * links_ + 1);
    context_.waiters.reserve(links_ + 1);
    context_.to_close.reserve(links_ + 1);
    draining_.reserve(links_ + 1);
    table_.insert(link.qp->qpn(), &link);
    ++links_;
    context_.count(Count::kConnectionsOpened);
    if (link.qp->srq() != nullptr) join_shared(link);
    const std::uint32_t for_replies = link.own_calls() != nullptr ? link.own_calls()->receives_wanted() : 0;
    std::uint32_t left = for_replies;
    while (left != 0 && context_.add_receive(link)) --left;
    // RFC 8167 §4.3: both directions take from one queue, which holds what both are granted.
    if (link.serves()) {
      link.grant_target = std::min(kFirstReceives, link.details->grant_limit);
      responder_.credit().top_up(link);
    }
    link.qp->publish_receives();
    publish_shared();
    return left == 0 && (!link.serves() || link.held != 0);
  }

  void establish(Link<P>& link, std::uint32_t outgoing, std::uint32_t incoming) noexcept {
    link.outgoing_threshold = outgoing;
    link.incoming_threshold = incoming;
    if (link.state == LinkState::kOpening) link.state = LinkState::kOpen;
    if (link.own_calls() != nullptr) link.own_calls()->establish();
  }

  /// Stops using a connection. Its work requests come back flushed; when all are back and its Calls are answered, it
  /// is closed.
  void begin_close(Link<P>& link) noexcept {
    if (link.state >= LinkState::kDraining) return;
    link.state = LinkState::kDraining;
    if (link.own_calls() != nullptr) link.own_calls()->close();
    device_.move_to_error(*link.qp);
    draining_.push_back(&link);
  }

  /// Gives the buffers back that are left in shared receive queues which no link takes from. Before the last queue pair
  /// that did so is destroyed.
  void empty_idle_shared() noexcept {
    std::erase_if(context_.shared, [&](const auto& shared) {
      if (shared->links != 0) return false;
      shared->srq->take_back([&](std::byte* buffer) { context_.memory.put_small(buffer); });
      return true;
    });
  }

  [[nodiscard]] LoopContext<P>& context() noexcept { return context_; }
  [[nodiscard]] const LoopContext<P>& context() const noexcept { return context_; }
  [[nodiscard]] CommandRing& commands() noexcept { return *commands_; }
  [[nodiscard]] typename P::PollGroup& group() noexcept { return group_; }
  /// Calls of this loop that exist. Runs on: the loop's core.
  [[nodiscard]] std::uint32_t calls_out() const noexcept { return context_.calls.out(); }

 private:
  static constexpr std::size_t kBurst = 32;
  static constexpr int kLooks = 8;
  static constexpr std::uint64_t kNowhere = ~std::uint64_t{0};  // no origin is as large
  /// Receives of a new connection: a conforming Requester sends one Call before it has a grant (RFC 8166 §3.3.3).
  static constexpr std::uint32_t kFirstReceives = 4;

  /// A message, or whatever else a completion tells.
  struct Arrival {
    Link<P>* link;      // nullptr: nobody knows the QP
    std::byte* buffer;  // nullptr: `rare_` says what it is
    std::uint32_t bytes;
  };
  struct Rare {
    dv::Completion completion;
    std::byte* buffer;  // of a receive
  };

  /// `kShared`: the links share receives.
  template <bool kShared>
  std::size_t reap_completions() noexcept {
    // The next message most likely comes where the last one did. Its lines then travel together with that of its CQE
    // instead of after it, which is a third of a lone call's time.
    if (expecting_ != nullptr) expecting_->qp->prefetch_next_receive();
    Arrival* const first = arrivals_.data();
    Arrival* end = first;
    std::uint64_t last = kNowhere;  // the QP of the completion before
    Link<P>* link = nullptr;
    std::uint32_t links = 0;
    // All messages of the burst are asked for before the first is looked at, so that their lines travel together.
    const std::size_t n = group_.poll(kBurst, [&](const dv::Completion& completion) {
      Arrival& arrival = *end++;
      if (const std::uint64_t from = completion.origin >> 16U; from != last) {
        link = table_.find(completion.qpn());
        last = link != nullptr ? from : kNowhere;  // so that below there always is one
        ++links;
        if (link == nullptr) [[unlikely]] {
          arrival = {};
          return keep_rare(arrival, completion);
        }
      }
      std::byte* buffer = nullptr;
      if (completion.kind != dv::CompletionKind::kSendQueue) [[likely]] {
        buffer = kShared ? link->qp->take_shared_receive(completion) : link->qp->take_own_receive(completion);
      }
      arrival.link = link;
      arrival.buffer = buffer;
      arrival.bytes = completion.byte_count;
      if (buffer != nullptr && completion.plain_receive()) [[likely]] {
        __builtin_prefetch(buffer);
        __builtin_prefetch(buffer + 64);
      } else {
        keep_rare(arrival, completion);
      }
    });
    if (links > 1) {
      prefetch_connections({first, end});
    } else if (n == 1) {
      expecting_ = link;
    }
    for (Arrival* at = first; at != end; ++at) {
      if (at->buffer != nullptr) [[likely]] {
        on_message(*at->link, at->buffer, at->bytes);
      } else {
        on_rare(*at, rare_[static_cast<std::size_t>(at - first)]);
      }
    }
    return n;
  }

  /// By value, so that a message's completion never has to be in memory.
  [[gnu::noinline]] void keep_rare(Arrival& arrival, dv::Completion completion) noexcept {
    rare_[static_cast<std::size_t>(&arrival - arrivals_.data())] = {completion, std::exchange(arrival.buffer, nullptr)};
  }

  /// A burst of many connections: asks for the state of all before it is needed, so that the misses overlap.
  [[gnu::noinline]] void prefetch_connections(std::span<const Arrival> arrivals) noexcept {
    for (const Arrival& arrival : arrivals) {
      if (arrival.link != nullptr) arrival.link->qp->prefetch_self();
    }
    for (const Arrival& arrival : arrivals) {
      if (arrival.link == nullptr) continue;
      arrival.link->qp->prefetch_next_send();
      if (arrival.link->requester != nullptr) arrival.link->requester->prefetch();
    }
  }

  [[gnu::always_inline]] void on_message(Link<P>& link, std::byte* buffer, std::uint32_t bytes) noexcept {
    if (bytes > context_.limits.message_bytes) [[unlikely]]
      return on_forged(link, buffer);
    if (link.requester != nullptr) {
      link.requester->on_message(buffer, bytes);
    } else if (link.state == LinkState::kOpen) [[likely]] {
      responder_.on_message(link, buffer, bytes);
    } else {
      responder_.credit().recycle(link, buffer);  // it came while we were closing
    }
  }

  /// A message that made one of our keys unusable.
  void on_invalidating_message(Link<P>& link, std::byte* buffer, const dv::Completion& completion) noexcept {
    if (link.requester == nullptr || completion.byte_count > context_.limits.message_bytes) {
      return on_forged(link, buffer);
    }
    link.requester->on_invalidating_message(buffer, completion.byte_count, completion.invalidated_key);
  }

  /// Completions of the send queue, errors, messages that invalidated a key of ours, and what nobody knows.
  [[gnu::noinline]] void on_rare(const Arrival& arrival, const Rare& rare) noexcept {
    if (arrival.link == nullptr) return context_.count(Count::kStaleCompletions);
    Link<P>& link = *arrival.link;
    const dv::Completion& completion = rare.completion;
    if (completion.status != dv::Status::kSuccess) return on_error(link, rare);
    if (completion.kind == dv::CompletionKind::kSendQueue) {
      link.qp->retire_send(completion, [&](dv::Token token) { on_token(link, token, dv::Status::kSuccess); });
    } else if (rare.buffer == nullptr) {
      on_forged(link, nullptr);
    } else if (completion.kind == dv::CompletionKind::kReceiveInvalidate) {
      on_invalidating_message(link, rare.buffer, completion);
    } else {
      on_message(link, rare.buffer, completion.byte_count);
    }
  }

  [[gnu::noinline, gnu::cold]] void close_those() noexcept {
    for (Link<P>* link : context_.to_close) begin_close(*link);
    context_.to_close.clear();
  }

  /// A completion that only a peer which scribbles on our queues can have made.
  [[gnu::noinline, gnu::cold]] void on_forged(Link<P>& link, std::byte* buffer) noexcept {
    context_.count(Count::kStaleCompletions);
    if (buffer != nullptr) responder_.credit().retire(link, buffer);
    begin_close(link);
  }

  [[gnu::noinline, gnu::cold]] void on_error(Link<P>& link, const Rare& rare) noexcept {
    context_.count(Count::kErrorCompletions);
    begin_close(link);
    if (rare.completion.kind == dv::CompletionKind::kSendQueue) {
      link.qp->retire_send(rare.completion, [&](dv::Token token) { on_token(link, token, rare.completion.status); });
    } else if (rare.buffer != nullptr) {
      responder_.credit().retire(link, rare.buffer);
    }
  }

  [[gnu::always_inline]] void on_token(Link<P>& link, dv::Token token, dv::Status status) noexcept {
    const std::uint32_t index = token >> 2U;
    switch (static_cast<TokenKind>(token & 3U)) {
      case TokenKind::kCall:
        responder_.on_token(index, status);
        break;
      case TokenKind::kSmallBuffer:
        context_.memory.put_small(context_.memory.memory().small().at(index));
        break;
      case TokenKind::kFence:
        // One that failed: its call ends with the connection.
        if (status == dv::Status::kSuccess) link.requester->on_fenced(index);
        break;
      case TokenKind::kDrain:
        break;
    }
  }

  std::size_t take_returned() noexcept {
    std::array<CallCore*, kBurst> calls;
    const std::size_t n = context_.returned->pop(std::span<CallCore*>(calls));
    for (std::size_t i = 0; i < n; ++i) responder_.settle(*calls[i]);
    return n;
  }

  /// They come behind the messages' answers, which do not wait for them.
  [[gnu::always_inline]] std::size_t run_pollers() noexcept {
    std::size_t work = 0;
    for (const auto& poller : pollers_) work += poller();
    responder_.flush_handoff();
    if (context_.dirty_count != 0) flush_queues();
    return work;
  }

  [[gnu::noinline]] void retry_waiters() noexcept {
    std::size_t kept = 0;
    for (std::size_t i = 0; i < context_.waiters.size(); ++i) {
      Link<P>* link = context_.waiters[i];
      if (link->requester != nullptr) link->requester->retry_fences();
      if (!link->details->waiting_for_queue.empty()) responder_.retry(*link);
      if (link->details->waiting_for_queue.empty() && (link->requester == nullptr || !link->requester->fences_wait())) {
        link->in_waiters = false;
      } else {
        context_.waiters[kept++] = link;
      }
    }
    context_.waiters.resize(kept);
  }

  [[gnu::noinline, gnu::cold]] std::size_t run_commands() noexcept {
    Command* command = nullptr;
    std::size_t n = 0;
    while (commands_->pop(command)) {
      command->work();
      command->done.store(true, std::memory_order_release);
      ++n;
    }
    return n;
  }

  void join_shared(Link<P>& link) {
    const auto found =
        std::ranges::find(context_.shared, link.qp->srq(), [](const auto& shared) { return shared->srq; });
    link.shared = found != context_.shared.end()
                      ? found->get()
                      : context_.shared.emplace_back(new SharedReceives<P>{.srq = link.qp->srq()}).get();
    ++link.shared->links;
  }
  /// The receives that the link has left there serve others.
  void leave_shared(Link<P>& link) noexcept {
    SharedReceives<P>& shared = *std::exchange(link.shared, nullptr);
    --shared.links;
    shared.spare += std::exchange(link.details->receives, 0);
    context_.receive_slots += std::exchange(link.held, 0);
  }
  void publish_shared() noexcept {
    for (const auto& shared : context_.shared) shared->srq->publish();
  }

  void flush_queues() noexcept {
    const bool shared = !context_.shared.empty();  // by all links, or none
    if (shared) publish_shared();
    const auto dirty = std::span(context_.dirty).first(context_.dirty_count);
    if (dirty.size() > 1) {
      for (const Link<P>* link : dirty) link->qp->prefetch_doorbell();
      std::uint32_t ahead = 0;
      for (const Link<P>* link : dirty) link->qp->prefetch_target(ahead++);
    }
    for (Link<P>* link : dirty) {
      link->dirty = false;
      if (!shared) link->qp->publish_receives();
      link->qp->ring_doorbell();
    }
    context_.dirty_count = 0;
  }

  [[gnu::noinline, gnu::cold]] void advance_draining() noexcept {
    std::size_t kept = 0;
    for (Link<P>* link : draining_) {
      if (!link->drain_posted) {
        link->drain_posted = link->qp->post_drain(make_token(TokenKind::kDrain, 0));
        if (link->drain_posted) link->qp->ring_doorbell();
      }
      const bool drained = link->drain_posted && link->qp->drained();
      // At once: what a Call waits for before it is answered may be a call of ours (RFC 8167).
      if (drained && !std::exchange(link->own_calls_ended, true) && link->own_calls() != nullptr) {
        link->own_calls()->fail_all();
      }
      if (drained && link->calls_out == 0) {
        detach(*link);
      } else {
        draining_[kept++] = link;
      }
    }
    draining_.resize(kept);
  }

  void detach(Link<P>& link) noexcept {
    if (link.shared != nullptr) leave_shared(link);
    table_.erase(link.qp->qpn());
    if (expecting_ == &link) expecting_ = nullptr;
    std::erase(context_.waiters, &link);
    --links_;
    context_.count(Count::kConnectionsClosed);
    std::erase(context_.to_close, &link);
    link.state = LinkState::kClosed;
    link.details->closed.store(true, std::memory_order_release);
    context_.links_closed.fetch_add(1, std::memory_order_release);
  }

  dv::Device<P>& device_;
  typename P::PollGroup& group_;
  LoopContext<P> context_;
  Responder<P> responder_;
  QpnTable<Link<P>> table_;
  std::array<Arrival, kBurst> arrivals_;
  std::array<Rare, kBurst> rare_;  // beside an arrival without a buffer
  Link<P>* expecting_ = nullptr;   // where the last lone completion came from
  std::vector<std::function<std::size_t()>> pollers_;
  std::vector<Link<P>*> draining_;
  std::unique_ptr<CommandRing> commands_;
  std::size_t links_ = 0;
};

}  // namespace rodeo
