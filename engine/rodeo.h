// SPDX-License-Identifier: Apache-2.0
#pragma once

// Rodeo: RPC-over-RDMA version 1 (RFC 8166) on polled cores.
//
//   rodeo::Config config;
//   config.poll_cores = {0};
//   config.worker_cores = {1};
//   auto engine = rodeo::Engine::open("soft:demo", config);
//   if (!engine) return complain(engine.error().message());
//   (*engine)->add_program({.number = 0x20000099, .version = 1, .name = "demo",
//                           .procedures = {{.number = 0, .name = "NULL", .handler = [](rodeo::Call& c, void*) noexcept
//                           {
//                             c.reply(); }}}});
//   if (auto ok = (*engine)->start(); !ok) return complain(ok.error().message());
//   if (auto ok = (*engine)->listen("soft:demo"); !ok) return complain(ok.error().message());
//   wait_for_a_signal();
//   (*engine)->stop();

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/buffer.h"
#include "engine/call.h"
#include "engine/program.h"
#include "engine/registration.h"
#include "engine/requester.h"
#include "pools/result.h"

namespace rodeo {

struct Config {
  /// Cores of the poll loops, one loop each. Empty: one loop and no threads at all; whoever owns the engine calls
  /// step() (tools, tests).
  std::vector<unsigned> poll_cores;
  /// Cores that run handlers of Placement::kWorkerCore.
  std::vector<unsigned> worker_cores;
  bool hugepages = true;
  /// The process initialised the DPDK EAL itself and lends us its lcores.
  bool borrow_eal = false;

  /// Largest message of one Send, and of one Receive, as announced by RFC 8797: 1024..262144, multiples of 1024.
  std::uint32_t inline_send_bytes = 4096;
  std::uint32_t inline_receive_bytes = 4096;
  /// Credits granted to a Requester (as Responder) and asked of a Responder (as Requester).
  std::uint32_t credits = 128;
  /// Calls in reverse direction (RFC 8167) that may be outstanding to each peer that opened a connection to us; as many
  /// more receives are posted for each. Zero: we never call back. See Call::connection().
  std::uint32_t reverse_credits = 0;
  /// The connections of a poll loop take their receives from shared queues (with the software HCA, one for each poll
  /// loop of each peer process) instead of each having its own. Grants and buffers are the same; a core that serves
  /// many connections touches less memory, and one that serves few is a little slower. A peer that exceeds its grants
  /// takes receives from its other connections.
  bool shared_receives = false;

  /// Buffers of each kind in the pool, all cores together. Zero: from credits, `connections` and cores.
  std::size_t small_buffers = 0;
  std::size_t bulk_buffers = 0;
  /// Largest Read chunk pulled, Long Call, or Long Reply, in one buffer.
  std::size_t bulk_bytes = std::size_t{1} << 20U;
  /// Connections that the pools are sized for.
  std::uint32_t connections = 16;
  /// Registered memory for the application's own use: Engine::application_memory().
  std::size_t application_bytes = 0;

  /// How peers reach the memory of our Calls' chunks, and whether we announce remote invalidation.
  Registration registration = Registration::kAuto;
  /// As Responder: octets of all Read chunks of one Call together. Above it the answer is ERR_CHUNK, before any memory
  /// is taken. Zero: four times bulk_bytes.
  std::uint64_t max_read_bytes = 0;
  /// As Responder: Replies kept for procedures with remember_replies, all cores together, and octets of results of
  /// each; what is longer, or went into Write chunks, is not kept.
  std::size_t remembered_replies = 1024;
  std::size_t remembered_bytes = 1024;
  /// As Requester: a connection is closed when a Call has had no Reply for so long. Zero: never.
  std::chrono::milliseconds silence_limit = std::chrono::minutes(1);
};

/// What one connection may have different.
struct ConnectOptions {
  std::size_t loop = 0;                             // the poll loop that owns it
  std::uint32_t credits = 0;                        // to ask for; 0: Config's
  Registration registration = Registration::kAuto;  // kAuto: Config's
  /// Numbers of programs of this engine that the peer may call on this connection, in reverse direction (RFC 8167), and
  /// how many of its Calls are granted at most. Calls of others, which without any are all, are answered PROG_UNAVAIL.
  /// Those Calls and their Replies have no chunks. It is for the upper layer to tell the peer that it may call.
  std::vector<std::uint32_t> reverse_programs{};
  std::uint32_t reverse_credits = 16;
};

/// A name and a value, for `rodeod`'s report, JSON, and tests.
struct CounterValue {
  std::string_view name;
  std::string_view help;
  std::uint64_t value = 0;
};

class Engine {
 public:
  /// Opens the device that `address` names by its scheme, starts the EAL, makes and registers the pools.
  [[nodiscard]] static Result<std::unique_ptr<Engine>> open(std::string_view address, const Config& config);
  virtual ~Engine() = default;

  /// Before start().
  [[nodiscard]] virtual Result<void> add_program(Program program) = 0;
  /// Called once per turn of loop `loop`, on its core, after its completions; returns how much it did. It may submit
  /// calls and answer deferred ones, and goes on being called while stop() lets calls finish. Before start().
  virtual void add_poller(std::size_t loop, std::function<std::size_t()> poller) = 0;

  /// Starts the loops and the control thread (with poll cores), or readies step() (without).
  [[nodiscard]] virtual Result<void> start() = 0;
  [[nodiscard]] virtual Result<void> listen(std::string_view address) = 0;

  /// Opens a connection. Blocks until it is established; runs the loop itself where there are no poll cores. Runs on:
  /// any thread but a poll core's.
  [[nodiscard]] virtual Result<Connection*> connect(std::string_view address, const ConnectOptions& options,
                                                    std::chrono::milliseconds timeout) = 0;
  [[nodiscard]] Result<Connection*> connect(std::string_view address, std::size_t loop = 0, std::uint32_t credits = 0,
                                            std::chrono::milliseconds timeout = std::chrono::seconds(5)) {
    return connect(address, {.loop = loop, .credits = credits}, timeout);
  }
  /// The two halves of connect, for a caller that runs both ends in one thread: begin, step both engines, ask.
  [[nodiscard]] virtual Result<std::uint64_t> begin_connect(std::string_view address,
                                                            const ConnectOptions& options) = 0;
  [[nodiscard]] Result<std::uint64_t> begin_connect(std::string_view address, std::size_t loop, std::uint32_t credits) {
    return begin_connect(address, {.loop = loop, .credits = credits});
  }
  /// nullptr while it is under way.
  [[nodiscard]] virtual Result<Connection*> finish_connect(std::uint64_t attempt) = 0;
  /// Gives up an attempt that finish_connect has not ended.
  virtual void abandon_connect(std::uint64_t attempt) = 0;
  /// Closes a connection; its outstanding calls end with kConnectionLost. A Connection is valid until this, also when
  /// the peer has long gone. Runs on: any thread but a poll core's.
  virtual void disconnect(Connection* connection) = 0;

  /// Why a connection is not open any more, as a sentence. A queue pair may fail before the device tells why, so this
  /// waits for it, some milliseconds at most; without poll cores it steps meanwhile. Runs on: any thread but a poll
  /// core's.
  [[nodiscard]] virtual std::string why_closed(const Connection* connection) = 0;

  /// One turn of the loop and of connection management. Only without poll cores. Returns how much was done.
  virtual std::size_t step() = 0;

  /// Runs `work` once on loop `loop` and waits for it. Runs on: any thread but a poll core's.
  virtual void run_on_loop(std::size_t loop, std::function<void()> work) = 0;

  /// Lets outstanding calls finish (bounded by `patience`), closes every connection, stops the loops, and returns every
  /// buffer. Idempotent. A DeferredCall that comes back later, even when the engine is gone, is dropped; the memory
  /// that it may touch is kept until the process ends.
  virtual void stop(std::chrono::milliseconds patience = std::chrono::milliseconds(500)) = 0;

  [[nodiscard]] virtual std::size_t loop_count() const noexcept = 0;
  [[nodiscard]] virtual RegisteredBytes application_memory() const noexcept = 0;
  /// One line each: ordinary pages instead of hugepages, NUMA nodes that differ.
  [[nodiscard]] virtual const std::vector<std::string>& warnings() const noexcept = 0;
  /// A few lines about device, pools, cores: what a start-up banner shows.
  [[nodiscard]] virtual std::vector<std::string> describe() const = 0;
  /// Sums over the loops.
  [[nodiscard]] virtual std::vector<CounterValue> counters() const = 0;
  [[nodiscard]] virtual std::size_t connection_count() const noexcept = 0;
  /// Where every buffer is. After stop(), and without poll cores also when the last connection is gone, all of them are
  /// in the pools, and no Call, granted receive, QP or memory window is left. `ok` says whether it adds up.
  [[nodiscard]] virtual std::pair<bool, std::string> audit() const = 0;
};

}  // namespace rodeo
