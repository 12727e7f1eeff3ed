// SPDX-License-Identifier: Apache-2.0
#include "engine/connections.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "dv/mlx5/provider.h"
#include "dv/verbs/provider.h"

namespace rodeo {

namespace {

/// Depth of a connection's send queue. With few credits it stays small because of its memory: the WQEs of many
/// connections in turn should find their lines in the cache.
[[nodiscard]] constexpr std::uint32_t send_depth(std::uint32_t credits) noexcept {
  constexpr std::uint32_t kFewCredits = 4;
  return std::max(credits <= kFewCredits ? 16U : 32U, 2 * credits);
}

/// Most that a peer is granted which is told that it may call us.
[[nodiscard]] std::uint32_t reverse_credits(const ConnectOptions& options) noexcept {
  return options.reverse_programs.empty() ? 0 : std::max(1U, options.reverse_credits);
}

/// Why a connect failed, and what can be done about it, where the device does not know better.
[[nodiscard]] std::string failure_of(const dv::CmEvent& event) {
  std::string text = event.reason.empty() ? std::string(to_string(event.kind)) : event.reason;
  // The peer's own words, with its own advice.
  if (event.kind == dv::CmEventKind::kRejected) return "the engine there refused the connection: " + text;
  if (text.find("; ") != std::string::npos) return text;
  return text + (event.kind == dv::CmEventKind::kUnreachable ? "; is the engine running, and is that its address?"
                                                             : "; connect again");
}

}  // namespace

template <dv::Provider P>
Connections<P>::Connections(Engine& engine, const Config& config, dv::Device<P>& device, Loops& loops)
    : engine_(engine), config_(config), device_(device), loops_(loops), xid_seed_(std::random_device{}()) {}

template <dv::Provider P>
Result<void> Connections<P>::listen(std::string_view address) {
  auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  const std::scoped_lock lock(mutex_);
  auto id = device_.listen(*parsed);
  if (!id) return tl::unexpected(id.error());
  listeners_.push_back(*id);
  return {};
}

template <dv::Provider P>
Result<std::uint64_t> Connections<P>::begin_connect(std::string_view address, const ConnectOptions& asked) {
  auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  ConnectOptions options = asked;
  const auto& capabilities = device_.capabilities();
  if (options.credits == 0) options.credits = config_.credits;
  if (options.registration == Registration::kAuto) options.registration = config_.registration;
  if (options.loop >= loops_.size()) {
    return fail(std::string(address), "there is no loop " + std::to_string(options.loop));
  }
  const std::uint64_t receives = std::uint64_t{options.credits} + reverse_credits(options) + kReceiveSlack;
  if (receives > capabilities.max_queue_depth) {
    return fail(
        std::string(address),
        std::to_string(receives - kReceiveSlack) + " credits are more than the device's queues hold",
        "ask for and grant at most " + std::to_string(capabilities.max_queue_depth - kReceiveSlack) + " together");
  }
  if (options.registration == Registration::kPoolKey && config_.registration != Registration::kPoolKey) {
    return fail(std::string(address), "this engine's pool has no key that a peer could use",
                "open the engine with Registration::kPoolKey");
  }
  if (!possible(options.registration, capabilities)) {
    return fail(std::string(address),
                capabilities.name + " cannot do \"" + std::string(to_string(options.registration)) + '"',
                "choose Registration::kPoolKey, for peers that are trusted with all of the pool");
  }
  const std::scoped_lock lock(mutex_);
  auto id = device_.connect(*parsed, loops_[options.loop]->group());
  if (!id) return tl::unexpected(id.error());
  attempts_[*id] = {std::string(address), options, false, {}};
  return static_cast<std::uint64_t>(*id);
}

template <dv::Provider P>
Result<Connection*> Connections<P>::finish_connect(std::uint64_t attempt) {
  const std::scoped_lock lock(mutex_);
  const auto id = static_cast<dv::CmId>(attempt);
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) return fail("connect", "there is no such attempt");
  if (!it->second.failure.empty()) {
    auto failure = fail(it->second.address, it->second.failure);
    attempts_.erase(it);
    return failure;
  }
  if (!it->second.established) return nullptr;
  const std::string address = it->second.address;
  attempts_.erase(it);
  const auto link = links_.find(id);
  if (link == links_.end()) {
    return fail(address, "the engine there closed the connection at once", "connect again");
  }
  link->second.handed_out = true;
  return link->second.requester.get();
}

template <dv::Provider P>
void Connections<P>::abandon_connect(std::uint64_t attempt) {
  const std::scoped_lock lock(mutex_);
  const auto id = static_cast<dv::CmId>(attempt);
  attempts_.erase(id);
  device_.disconnect(id);
  close_or_destroy(id);
}

template <dv::Provider P>
void Connections<P>::disconnect(const Connection* connection) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(husks_, [&](const Managed& husk) { return husk.requester.get() == connection; });
  for (auto& [id, managed] : links_) {
    if (managed.requester.get() != connection || connection == nullptr) continue;
    managed.handed_out = false;
    if (!managed.closing) device_.disconnect(id);
    close_link(id);
    return;
  }
}

template <dv::Provider P>
std::string Connections<P>::why_closed(const Connection* connection) const {
  const std::scoped_lock lock(mutex_);
  for (const auto& [id, managed] : links_) {
    if (managed.requester.get() == connection) return managed.loss;
  }
  for (const Managed& husk : husks_) {
    if (husk.requester.get() == connection) return husk.loss;
  }
  return "the connection was given up";
}

template <dv::Provider P>
bool Connections<P>::stop_accepting() {
  const std::scoped_lock lock(mutex_);
  if (stopped_) return false;
  stopped_ = true;
  for (const dv::CmId listener : listeners_) device_.destroy(listener);
  listeners_.clear();
  return true;
}

template <dv::Provider P>
void Connections<P>::close_all() {
  const std::scoped_lock lock(mutex_);
  for (auto& [id, managed] : links_) {
    if (!managed.closing) device_.disconnect(id);
    close_link(id);
  }
}

template <dv::Provider P>
PrivateData Connections<P>::own_private_data(Registration registration) const {
  // A Requester says R only where each of its handles may be invalidated remotely, which a key of the pool may never be
  // (RFC 8797 §3.2).
  return {.send_size = config_.inline_send_bytes,
          .receive_size = config_.inline_receive_bytes,
          .remote_invalidation = registration == Registration::kRemoteInvalidation};
}

template <dv::Provider P>
std::size_t Connections<P>::process_events() {
  const std::scoped_lock lock(mutex_);
  std::size_t work = 0;
  while (auto event = device_.next_event()) {
    ++work;
    switch (event->kind) {
      case dv::CmEventKind::kConnectRequest:
        on_connect_request(*event);
        break;
      case dv::CmEventKind::kRouteResolved:
        on_route_resolved(*event);
        break;
      case dv::CmEventKind::kEstablished:
        on_established(*event);
        break;
      case dv::CmEventKind::kRejected:
      case dv::CmEventKind::kUnreachable:
      case dv::CmEventKind::kDisconnected:
        on_disconnected(*event);
        break;
    }
  }
  return work + reap_closed();
}

template <dv::Provider P>
void Connections<P>::on_connect_request(const dv::CmEvent& event) {
  const std::size_t loop = event.group % loops_.size();
  if (stopped_) {
    device_.reject(event.id, {}, "the engine is stopping");
    device_.destroy(event.id);
    return;
  }
  if (auto made = make_link(event.id, loop, nullptr, event.peer); !made) {
    if (const auto link = links_.find(event.id); link != links_.end()) {
      // The device destroys what it rejects, and this QP has receives that must come back first.
      link->second.refusal = made.error().message();
    } else {
      device_.reject(event.id, {}, made.error().message());
      device_.destroy(event.id);
    }
    return;
  }
  const PrivateData own = own_private_data(config_.registration);
  const PrivateData peer = decode_private_data(event.private_data);
  const InlineThresholds thresholds = inline_thresholds(own, peer);
  Link<P>& link = *links_[event.id].link;
  link.may_invalidate = may_invalidate(own, peer);
  // Before accept(): the first Call may arrive as soon as the peer has the answer.
  engine_.run_on_loop(loop, [&] { loops_[loop]->establish(link, thresholds.outgoing, thresholds.incoming); });
  if (auto accepted = device_.accept(event.id, encode_private_data(own)); !accepted) close_link(event.id);
}

template <dv::Provider P>
void Connections<P>::on_route_resolved(const dv::CmEvent& event) {
  const auto attempt = attempts_.find(event.id);
  if (attempt == attempts_.end()) {
    device_.destroy(event.id);
    return;
  }
  const ConnectOptions& options = attempt->second.options;
  auto made = make_link(event.id, options.loop, &options, event.peer);
  if (made) made = device_.finish_connect(event.id, encode_private_data(own_private_data(options.registration)));
  if (made) return;
  attempt->second.failure = made.error().message();
  close_or_destroy(event.id);
}

template <dv::Provider P>
void Connections<P>::on_established(const dv::CmEvent& event) {
  const auto attempt = attempts_.find(event.id);
  const auto managed = links_.find(event.id);
  if (attempt == attempts_.end() || managed == links_.end()) return;  // the passive side was ready before
  const PrivateData own = own_private_data(attempt->second.options.registration);
  const InlineThresholds thresholds = inline_thresholds(own, decode_private_data(event.private_data));
  Link<P>& link = *managed->second.link;
  engine_.run_on_loop(link.details->loop,
                      [&] { loops_[link.details->loop]->establish(link, thresholds.outgoing, thresholds.incoming); });
  attempt->second.established = true;
}

template <dv::Provider P>
void Connections<P>::on_disconnected(const dv::CmEvent& event) {
  if (const auto attempt = attempts_.find(event.id); attempt != attempts_.end() && !attempt->second.established) {
    attempt->second.failure = failure_of(event);
  }
  if (const auto managed = links_.find(event.id); managed != links_.end() && managed->second.loss.empty()) {
    managed->second.loss = event.reason;
  }
  device_.disconnect(event.id);
  close_or_destroy(event.id);
}

template <dv::Provider P>
Result<void> Connections<P>::make_link(dv::CmId id, std::size_t loop, const ConnectOptions* options, const Peer& peer) {
  const std::uint32_t credits = options != nullptr ? options->credits : config_.credits;
  const std::uint32_t reverse = options != nullptr ? reverse_credits(*options) : config_.reverse_credits;
  // Each window may be bound and invalidated while all calls are out.
  const std::uint32_t windows = options != nullptr ? windows_of(*options) : 0;
  auto qp = device_.make_qp(id, {.send_depth = send_depth(credits) + 2 * windows + 2 * reverse,
                                 .receive_depth = config_.shared_receives ? 0 : credits + reverse + kReceiveSlack});
  if (!qp) return tl::unexpected(qp.error());
  Managed& managed = links_[id];
  managed.link = Link<P>::make();
  managed.peer = std::make_unique<const Peer>(peer);
  link_count_.store(links_.size(), std::memory_order_relaxed);
  Link<P>& link = *managed.link;
  link.qp = *qp;
  link.details->cm = id;
  link.details->loop = loop;
  link.opened_here = options != nullptr;
  link.details->grant_limit = options != nullptr ? std::max(1U, reverse) : config_.credits;
  link.details->peer = managed.peer.get();
  Result<void> made;
  if (options != nullptr) {
    link.details->reverse_programs = options->reverse_programs;
    made = make_requester(id, managed, *options);
    link.requester = managed.requester.get();
  } else if (reverse != 0) {
    make_requester(managed, reverse);
    managed.requester->set_registration(Registration::kNone);
    link.reverse = managed.requester.get();
  }
  link.details->calls_by = managed.requester;
  bool enough = false;
  engine_.run_on_loop(loop, [&] { enough = loops_[loop]->attach(link); });
  if (made && !enough) {
    made = fail("connection",
                "there are not enough small buffers, Calls, or places in a shared receive queue for its receives",
                "raise --small-buffers or --connections, or lower --credits");
  }
  if (!made) close_link(id);
  return made;
}

template <dv::Provider P>
Result<void> Connections<P>::make_requester(dv::CmId id, Managed& managed, const ConnectOptions& options) {
  make_requester(managed, options.credits);
  managed.requester->set_registration(options.registration);
  managed.requester->set_silence_limit(static_cast<std::uint32_t>(config_.silence_limit.count()));
  for (std::uint32_t left = windows_of(options); left != 0; --left) {
    auto key = device_.allocate_window(id);
    if (!key) return tl::unexpected(key.error());
    managed.requester->add_window(*key);
  }
  return {};
}

template <dv::Provider P>
void Connections<P>::make_requester(Managed& managed, std::uint32_t credits) {
  xid_seed_ = xid_seed_ * 1664525U + 1013904223U;
  managed.requester = std::allocate_shared<Requester<P>>(pools::state_allocator<Requester<P>>(),
                                                         loops_[managed.link->details->loop]->context(), managed.link,
                                                         credits, xid_seed_);
  requesters_.fetch_add(1, std::memory_order_relaxed);
}

/// Two for each call, and at least as many as the largest call needs.
template <dv::Provider P>
std::uint32_t Connections<P>::windows_of(const ConnectOptions& options) const {
  if (options.registration == Registration::kPoolKey || options.registration == Registration::kNone) return 0;
  constexpr std::uint32_t kLargestCall = kMaxReadSegments + kMaxWriteChunks + 1;
  const std::uint32_t most = std::min<std::uint32_t>(device_.capabilities().max_windows, WindowPool::kMost);
  return std::min(std::max(2 * options.credits, kLargestCall), most);
}

template <dv::Provider P>
void Connections<P>::close_link(dv::CmId id) {
  Managed& managed = links_[id];
  if (managed.closing) return;
  managed.closing = true;
  Link<P>& link = *managed.link;
  engine_.run_on_loop(link.details->loop, [&] { loops_[link.details->loop]->begin_close(link); });
}

template <dv::Provider P>
void Connections<P>::close_or_destroy(dv::CmId id) {
  if (links_.contains(id)) {
    close_link(id);
  } else {
    device_.destroy(id);
  }
}

template <dv::Provider P>
std::size_t Connections<P>::reap_closed() {
  std::uint32_t closed = 0;
  // Acquire: pairs with the loop's release.
  for (const auto& loop : loops_) closed += loop->context().links_closed.load(std::memory_order_acquire);
  if (closed == reaped_) return 0;
  std::size_t reaped = 0;
  for (auto it = links_.begin(); it != links_.end();) {
    // Acquire: pairs with the loop's release; it will not touch the link again.
    if (!it->second.link->details->closed.load(std::memory_order_acquire)) {
      ++it;
      continue;
    }
    if (!it->second.closing) device_.disconnect(it->first);
    if (!it->second.refusal.empty()) device_.reject(it->first, {}, it->second.refusal);
    if (config_.shared_receives) {
      const std::size_t loop = it->second.link->details->loop;
      engine_.run_on_loop(loop, [&] { loops_[loop]->empty_idle_shared(); });
    }
    device_.destroy(it->first);
    if (it->second.requester != nullptr) requesters_.fetch_sub(1, std::memory_order_relaxed);
    if (it->second.handed_out) husks_.push_back(std::move(it->second));
    it = links_.erase(it);
    ++reaped;
  }
  reaped_ += static_cast<std::uint32_t>(reaped);
  link_count_.store(links_.size(), std::memory_order_relaxed);
  return reaped;
}

template <dv::Provider P>
std::size_t Connections<P>::husk_count() const {
  const std::scoped_lock lock(mutex_);
  return husks_.size();
}

namespace {

/// Never 0.
[[nodiscard]] std::uint64_t coarse_ms() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) + 1;
}

}  // namespace

template <dv::Provider P>
int Connections<P>::until_sweep() const {
  constexpr std::uint32_t kSweepsPerTimeout = 8;
  if (requesters_.load(std::memory_order_relaxed) == 0) return -1;
  auto least = static_cast<std::uint32_t>(config_.silence_limit.count());
  for (const auto& loop : loops_) {
    const std::uint32_t shortest = loop->context().shortest_timeout_ms.load(std::memory_order_relaxed);
    if (shortest != 0 && (least == 0 || shortest < least)) least = shortest;
  }
  if (least == 0) return -1;
  const std::uint32_t period = std::max(1U, least / kSweepsPerTimeout);
  const std::uint64_t passed = coarse_ms() - swept_ms_;
  return passed >= period ? 0 : static_cast<int>(period - passed);
}

template <dv::Provider P>
void Connections<P>::sweep() {
  if (until_sweep() != 0) return;
  const std::uint64_t now = swept_ms_ = coarse_ms();
  for (std::size_t loop = 0; loop < loops_.size(); ++loop) {
    std::vector<Requester<P>*> requesters;
    {
      const std::scoped_lock lock(mutex_);
      for (const auto& [id, managed] : links_) {
        if (managed.requester != nullptr && managed.link->details->loop == loop)
          requesters.push_back(managed.requester.get());
      }
    }
    if (requesters.empty()) continue;
    // Unlocked, as calls end in it: what goes away is destroyed by process_events() alone, which this thread runs.
    engine_.run_on_loop(loop, [&] {
      for (Requester<P>* requester : requesters) requester->sweep(now);
    });
  }
}

template <dv::Provider P>
bool Connections<P>::anything_closing() const {
  const std::scoped_lock lock(mutex_);
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.closing; });
}

template class Connections<dv::mlx5::Provider>;
template class Connections<dv::verbs::Provider>;

}  // namespace rodeo
