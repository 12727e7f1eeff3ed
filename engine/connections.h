// SPDX-License-Identifier: Apache-2.0
#pragma once

// An engine's connections, at either end: how they are made from the device's connection events, which loop has which,
// and how they go again. Everything that is slow about a connection happens here.
//
// Runs on: control thread, or any thread but a poll core's; a mutex serialises them. The loops never take it: what
// concerns a loop's own state is sent to it, by Engine::run_on_loop.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/poll_loop.h"
#include "engine/private_data.h"
#include "engine/registration_choice.h"
#include "engine/rodeo.h"

namespace rodeo {

/// Receives of a Responder's QP beyond its credits: messages that are discarded use them, too.
inline constexpr std::uint32_t kReceiveSlack = 8;

template <dv::Provider P>
class Connections {
 public:
  using Loops = std::vector<std::unique_ptr<PollLoop<P>>>;

  Connections(Engine& engine, const Config& config, dv::Device<P>& device, Loops& loops);

  [[nodiscard]] Result<void> listen(std::string_view address);
  /// As Engine says.
  [[nodiscard]] Result<std::uint64_t> begin_connect(std::string_view address, const ConnectOptions& options);
  [[nodiscard]] Result<Connection*> finish_connect(std::uint64_t attempt);
  void abandon_connect(std::uint64_t attempt);
  void disconnect(const Connection* connection);
  /// Empty: the device has not told yet.
  [[nodiscard]] std::string why_closed(const Connection* connection) const;

  /// Handles what has happened since the last call. Returns how much that was.
  std::size_t process_events();
  /// Ends calls that have waited for too long, where it is time to look. Not from a callback of a call's.
  void sweep();
  /// What is left of the links, for Calls of theirs that outlive the engine. Nothing runs any more.
  [[nodiscard]] std::shared_ptr<void> take_links() {
    return std::make_shared<std::map<dv::CmId, Managed>>(std::exchange(links_, {}));
  }
  /// Milliseconds until sweep() has something to do; negative: it will not have.
  [[nodiscard]] int until_sweep() const;
  /// Whether process_events() should soon be called again.
  [[nodiscard]] bool anything_closing() const;

  /// Ends the listeners; whoever still asks is refused. False when that was so already.
  [[nodiscard]] bool stop_accepting();
  void close_all();
  /// Any thread.
  [[nodiscard]] std::size_t count() const noexcept { return link_count_.load(std::memory_order_relaxed); }
  /// Lost connections that the application has not given up yet.
  [[nodiscard]] std::size_t husk_count() const;

 private:
  /// One connection as the control side sees it.
  struct Managed {
    std::shared_ptr<Link<P>> link;
    std::unique_ptr<const Peer> peer;
    std::shared_ptr<Requester<P>> requester;  // keeps the link; at an accepted one, of calls in reverse direction
    bool closing = false;
    bool handed_out = false;  // the application has its Requester, and has not called disconnect()
    std::string loss;         // why the device says that the connection has ended
    std::string refusal;      // not empty: the connection is rejected with this once its QP has drained
  };
  /// A connect that is under way, or that failed.
  struct Attempt {
    std::string address;
    ConnectOptions options;  // with nothing left open
    bool established = false;
    std::string failure;  // with what can be done about it
  };

  // With the mutex held.
  void on_connect_request(const dv::CmEvent& event);
  void on_route_resolved(const dv::CmEvent& event);
  void on_established(const dv::CmEvent& event);
  void on_disconnected(const dv::CmEvent& event);
  /// `options`: of a connection that we open; null at a Responder.
  Result<void> make_link(dv::CmId id, std::size_t loop, const ConnectOptions* options, const Peer& peer);
  Result<void> make_requester(dv::CmId id, Managed& managed, const ConnectOptions& options);
  void make_requester(Managed& managed, std::uint32_t credits);
  [[nodiscard]] std::uint32_t windows_of(const ConnectOptions& options) const;
  void close_link(dv::CmId id);
  /// Closes the link of `id`, or forgets the id when it never had one.
  void close_or_destroy(dv::CmId id);
  std::size_t reap_closed();
  [[nodiscard]] PrivateData own_private_data(Registration registration) const;

  Engine& engine_;
  const Config& config_;
  dv::Device<P>& device_;
  Loops& loops_;

  mutable std::mutex mutex_;
  std::map<dv::CmId, Managed> links_;
  std::map<dv::CmId, Attempt> attempts_;
  std::vector<Managed> husks_;  // connections that were lost, until the application gives them up by disconnect()
  std::vector<dv::CmId> listeners_;
  std::atomic<std::size_t> link_count_{0};
  std::atomic<std::size_t> requesters_{0};
  std::uint32_t reaped_ = 0;  // links, ever
  std::uint32_t xid_seed_;
  std::uint64_t swept_ms_ = 0;
  bool stopped_ = false;
};

}  // namespace rodeo
