// SPDX-License-Identifier: Apache-2.0
#include "engine/persistent_connection.h"

#include <algorithm>
#include <random>

namespace rodeo {

PersistentConnection::PersistentConnection(Engine& engine, std::string_view address, const PersistentOptions& options)
    : engine_(engine),
      address_(address),
      options_(options),
      calls_(options.calls),
      backoff_(options.first_delay, options.longest_delay, std::random_device{}()),
      next_attempt_(Clock::now()) {
  free_.reserve(calls_.size());
  waiting_.reserve(calls_.size());
  for (Held& call : calls_) free_.push_back(&call);
}

PersistentConnection::~PersistentConnection() = default;

// ---------------------------------------------------------------------------------------------------- on the poll core

bool PersistentConnection::submit(const CallRequest& request, const PersistentCall& how) noexcept {
  if (free_.empty() || closed_) return false;
  Held& call = *free_.back();
  free_.pop_back();
  call = {.owner = this, .request = request, .how = how, .order = next_order_++, .sends = 0, .xid = 0};
  wait_in_order(call);
  send_waiting();
  return true;
}

void PersistentConnection::wait_in_order(Held& call) noexcept {
  const auto younger = [&](const Held* other) { return other->order > call.order; };
  waiting_.insert(std::ranges::find_if_not(waiting_, younger), &call);
}

void PersistentConnection::send_waiting() noexcept {
  if (sending_) return;  // from a callback of what it does
  sending_ = true;
  while (sends_on_ != nullptr && !waiting_.empty()) {
    Held& call = *waiting_.back();
    CallRequest request = call.request;
    request.on_reply = on_reply;
    request.context = &call;
    CallOptions options = call.how.options;
    options.xid = call.xid;
    CallHandle handle;
    const SubmitOutcome outcome = sends_on_->submit(request, options, handle);
    if (outcome == SubmitOutcome::kPosted) {
      waiting_.pop_back();
      call.xid = handle.xid;
      ++call.sends;
    } else if (outcome == SubmitOutcome::kTooLarge) {
      waiting_.pop_back();
      Reply reply;
      reply.error = call.sends == 0 ? CallError::kNotSent : CallError::kConnectionLost;
      end(call, reply);
    } else {
      if (outcome == SubmitOutcome::kClosed) sends_on_ = nullptr;
      break;
    }
  }
  sending_ = false;
}

void PersistentConnection::on_reply(void* context, const Reply& reply) noexcept {
  Held& call = *static_cast<Held*>(context);
  PersistentConnection& self = *call.owner;
  if (reply.error == CallError::kConnectionLost) {
    if (call.how.idempotent && call.sends < self.options_.most_sends && !self.closed_) {
      return self.wait_in_order(call);
    }
  } else if (reply.ran() != Ran::kPerhaps) {
    self.answered_.store(true, std::memory_order_relaxed);
  }
  self.end(call, reply);
  self.send_waiting();
}

void PersistentConnection::end(Held& call, const Reply& reply) noexcept {
  const ReplyHandler handler = call.request.on_reply;
  void* context = call.request.context;
  free_.push_back(&call);
  handler(context, reply);
}

void PersistentConnection::end_waiting() noexcept {
  closed_ = true;
  sends_on_ = nullptr;
  while (!waiting_.empty()) {
    Held& call = *waiting_.back();
    waiting_.pop_back();
    Reply reply;
    reply.error = call.sends == 0 ? CallError::kNotSent : CallError::kConnectionLost;
    end(call, reply);
  }
}

// -------------------------------------------------------------------------------------------------- where it is owned

void PersistentConnection::maintain() {
  if (given_up_) return;
  const auto now = Clock::now();
  const std::size_t loop = options_.connect.loop;
  if (connection_ != nullptr) {
    if (answered_.exchange(false, std::memory_order_relaxed)) backoff_.reset();
    if (connection_->open()) {
      // What had no room in a queue or a pool may have it now.
      engine_.run_on_loop(loop, [this] { send_waiting(); });
      return;
    }
    Connection* lost = std::exchange(connection_, nullptr);
    engine_.run_on_loop(loop, [this, lost] {
      if (sends_on_ == lost) sends_on_ = nullptr;
    });
    std::string why = engine_.why_closed(lost);
    engine_.disconnect(lost);
    return connection_failed(std::move(why));
  }
  if (attempt_ == 0) {
    if (now < next_attempt_) return;
    ++attempts_;
    auto begun = engine_.begin_connect(address_, options_.connect);
    if (!begun) return connection_failed(begun.error().message());
    attempt_ = *begun;
    deadline_ = now + options_.connect_timeout;
    return;
  }
  auto made = engine_.finish_connect(attempt_);
  if (!made) {
    attempt_ = 0;
    return connection_failed(made.error().message());
  }
  if (*made == nullptr) {
    if (now < deadline_) return;
    engine_.abandon_connect(std::exchange(attempt_, 0));
    return connection_failed("no answer");
  }
  attempt_ = 0;
  connection_ = *made;
  engine_.run_on_loop(loop, [this] {
    sends_on_ = connection_;
    send_waiting();
  });
}

void PersistentConnection::connection_failed(std::string why) {
  last_failure_ = std::move(why);
  next_attempt_ = Clock::now() + backoff_.next();
}

void PersistentConnection::close() {
  given_up_ = true;
  if (attempt_ != 0) engine_.abandon_connect(std::exchange(attempt_, 0));
  engine_.run_on_loop(options_.connect.loop, [this] { end_waiting(); });
  if (connection_ != nullptr) engine_.disconnect(std::exchange(connection_, nullptr));
}

}  // namespace rodeo
