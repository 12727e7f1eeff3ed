// SPDX-License-Identifier: Apache-2.0
#pragma once

// A connection that is made again whenever it is lost (RFC 8166 §4.5.5). Calls wait in a queue of its own for
// connection and credits. What becomes of a call that was out when the connection went depends on the call: one that is
// marked idempotent is sent again, with the same XID and new chunks; any other ends with kConnectionLost, since nobody
// knows whether it has run.
//
// Two parts: submit() and the completions run on the poll core; maintain() is called now and then by whoever owns this
// object, and connects.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/backoff.h"
#include "engine/rodeo.h"

namespace rodeo {

struct PersistentOptions {
  ConnectOptions connect;
  /// Between attempts, doubling from one to the other, with jitter. A connection counts as a success with its first
  /// Reply, so a peer that accepts and hangs up is not besieged.
  std::chrono::milliseconds first_delay{50};
  std::chrono::milliseconds longest_delay{30'000};
  std::chrono::milliseconds connect_timeout{5'000};
  std::uint32_t calls = 1024;    // that it holds, waiting and out
  std::uint32_t most_sends = 4;  // of one idempotent call; then it ends with kConnectionLost
};

/// How one call is treated.
struct PersistentCall {
  bool idempotent = false;  // may run twice
  CallOptions options{};    // xid is chosen here; timeout_ms counts from each time it is sent
};

class PersistentConnection {
 public:
  /// The engine must outlive this.
  PersistentConnection(Engine& engine, std::string_view address, const PersistentOptions& options = {});
  PersistentConnection(const PersistentConnection&) = delete;
  PersistentConnection& operator=(const PersistentConnection&) = delete;
  /// All its calls are over: after close() and the last completion, or when the engine has stopped.
  ~PersistentConnection();

  /// Takes a call; on_reply will be called once. All that the request names, target and arguments included, must stay
  /// valid until then. False: it holds as many as it can. Runs on: the connection's poll core.
  [[nodiscard]] bool submit(const CallRequest& request, const PersistentCall& how = {}) noexcept;

  /// Connects, notices losses, and lets waiting calls go on. Every few milliseconds is often enough. Runs on: any
  /// thread but a poll core's, the same one each time.
  void maintain();
  /// Gives up: closes the connection, and ends the calls that wait with kNotSent, or kConnectionLost where they have
  /// been sent before. maintain() does nothing any more. Runs on: as maintain().
  void close();

  // Runs on: as maintain().
  [[nodiscard]] bool connected() const noexcept { return connection_ != nullptr; }
  [[nodiscard]] std::uint32_t attempts() const noexcept { return attempts_; }
  /// Why there is no connection, as a sentence; empty before the first failure.
  [[nodiscard]] const std::string& last_failure() const noexcept { return last_failure_; }
  /// Calls without a completion. Runs on: the poll core.
  [[nodiscard]] std::size_t pending() const noexcept { return calls_.size() - free_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Held {
    PersistentConnection* owner = nullptr;
    CallRequest request;
    PersistentCall how;
    std::uint64_t order = 0;
    std::uint32_t sends = 0;
    std::uint32_t xid = 0;
  };

  static void on_reply(void* context, const Reply& reply) noexcept;
  void send_waiting() noexcept;
  void wait_in_order(Held& call) noexcept;
  void end(Held& call, const Reply& reply) noexcept;
  void end_waiting() noexcept;
  void connection_failed(std::string why);

  Engine& engine_;
  std::string address_;
  PersistentOptions options_;

  // On the poll core.
  Connection* sends_on_ = nullptr;
  std::vector<Held> calls_;
  std::vector<Held*> free_;
  std::vector<Held*> waiting_;  // in the order of their submission, the oldest last
  std::uint64_t next_order_ = 0;
  bool sending_ = false;
  bool closed_ = false;
  std::atomic<bool> answered_{false};  // by the present peer; relaxed: only the back-off depends on it

  // Where maintain() runs.
  Connection* connection_ = nullptr;
  Backoff backoff_;
  Clock::time_point next_attempt_;
  Clock::time_point deadline_;
  std::uint64_t attempt_ = 0;  // under way; 0: none
  std::uint32_t attempts_ = 0;
  std::string last_failure_;
  bool given_up_ = false;
};

}  // namespace rodeo
