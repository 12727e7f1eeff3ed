// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "dv/mlx5/provider.h"
#include "dv/providers.h"
#include "pools/clock.h"
#include "pools/relax.h"

namespace rodeo {

namespace {

/// Room for RPC headers beside the largest item, in a bulk buffer.
constexpr std::size_t kBulkSlack = 4096;
constexpr std::uint32_t kMaxCalls = 65536;
/// Receives of a Responder's QP beyond its credits: messages that are discarded use them, too.
constexpr std::uint32_t kReceiveSlack = 8;
/// Depth of the send queue of a connection with few credits. It stays small because of its memory: the WQEs of many
/// connections in turn should find their lines in the cache.
constexpr std::uint32_t kLeastSends = 16;
constexpr std::size_t kCommands = 1024;

[[nodiscard]] std::uint32_t calls_per_loop(const Config& config) {
  const std::uint64_t wanted = std::uint64_t{config.credits} * config.connections + 64;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1024, kMaxCalls));
}

/// One lcore's job: a loop until told to stop, spinning in between.
template <class Loop>
struct LcoreTask {
  Loop* loop;
  const std::atomic<bool>* stop;
};

}  // namespace

template <dv::Provider P>
Result<std::unique_ptr<Engine>> EngineCore<P>::open_on(std::unique_ptr<dv::Device<P>> device, const Config& config) {
  std::unique_ptr<EngineCore> engine(new EngineCore(std::move(device), config));
  if (auto ready = engine->prepare(); !ready) return tl::unexpected(ready.error());
  return std::unique_ptr<Engine>(std::move(engine));
}

template <dv::Provider P>
Result<void> EngineCore<P>::prepare() {
  for (std::uint32_t* size : {&config_.inline_send_bytes, &config_.inline_receive_bytes}) {
    auto rounded = check_inline_size(*size);
    if (!rounded) return tl::unexpected(rounded.error());
    *size = *rounded;
  }
  const auto& capabilities = device_->capabilities();
  if (config_.credits == 0 || config_.credits + kReceiveSlack > capabilities.max_queue_depth) {
    return fail("credits", std::to_string(config_.credits) + " credits are not possible",
                "choose 1 to " + std::to_string(capabilities.max_queue_depth - kReceiveSlack));
  }
  if (config_.bulk_bytes < 4096 || config_.bulk_bytes > (std::size_t{1} << 29U)) {
    return fail("bulk buffers", std::to_string(config_.bulk_bytes) + " bytes each is not possible",
                "choose 4096 to 536870912");
  }
  auto topology = pools::Topology::load();
  if (!topology) return tl::unexpected(topology.error());
  topology_ = std::make_unique<pools::Topology>(std::move(*topology));
  std::vector<unsigned> cores = config_.poll_cores;
  cores.insert(cores.end(), config_.worker_cores.begin(), config_.worker_cores.end());
  if (auto known = topology_->check_cores(cores); !known) return known;
  for (std::size_t i = 0; i < cores.size(); ++i) {
    if (std::find(cores.begin(), cores.begin() + static_cast<std::ptrdiff_t>(i), cores[i]) !=
        cores.begin() + static_cast<std::ptrdiff_t>(i)) {
      return fail("cores", "core " + std::to_string(cores[i]) + " is named twice",
                  "give each poll core and each worker core a core of its own");
    }
  }
  if (threaded()) {
    auto eal = config_.borrow_eal
                   ? pools::Eal::borrow()
                   : pools::Eal::start({.program = "rodeo", .cores = cores, .hugepages = config_.hugepages});
    if (!eal) return tl::unexpected(eal.error());
    eal_ = std::move(*eal);
    for (const unsigned core : cores) {
      if (!eal_->has_core(core)) {
        return fail("cores", "the EAL has no lcore on core " + std::to_string(core),
                    "name it in the EAL's own core list");
      }
    }
  }

  MemorySizes sizes;
  sizes.small_bytes = std::max(config_.inline_send_bytes, config_.inline_receive_bytes);
  const std::size_t cores_here = std::max<std::size_t>(1, cores.size());
  sizes.small_count = config_.small_buffers != 0
                          ? config_.small_buffers
                          : std::size_t{2} * config_.credits * config_.connections + cores_here * 1024;
  sizes.bulk_count = config_.bulk_buffers != 0 ? config_.bulk_buffers : 32 + cores_here * 32;
  sizes.bulk_bytes = config_.bulk_bytes + kBulkSlack;
  sizes.application_bytes = config_.application_bytes;
  sizes.hugepages = config_.hugepages;
  sizes.numa_node = cores.empty() ? -1 : topology_->numa_node_of_core(cores.front());
  auto memory = Memory::create(sizes);
  if (!memory) return tl::unexpected(memory.error());
  memory_ = std::move(*memory);
  if (const auto& warning = memory_->arena().warning()) warnings_.push_back(*warning);
  const int memory_node = topology_->numa_node_of_memory(memory_->arena().bytes().data());
  for (auto& sentence : topology_->numa_warnings(cores, memory_node, capabilities.numa_node)) {
    warnings_.push_back(std::move(sentence));
  }
  auto region =
      device_->register_memory(memory_->arena().bytes(), memory_->arena().fd(), 0, dv::Access::kRemoteReadWrite);
  if (!region) return tl::unexpected(region.error());
  region_ = *region;
  look_ticks_ = static_cast<std::uint64_t>(pools::tsc_hz() * 20e-6);
  xid_seed_ = std::random_device{}();
  return make_loops();
}

template <dv::Provider P>
Result<void> EngineCore<P>::make_loops() {
  const std::size_t loop_count = std::max<std::size_t>(1, config_.poll_cores.size());
  const LoopLimits limits{.credits = config_.credits,
                          .message_bytes = static_cast<std::uint32_t>(memory_->small().buffer_bytes()),
                          .calls = calls_per_loop(config_)};
  std::vector<WorkRing*> rings;
  for (std::size_t i = 0; i < config_.worker_cores.size(); ++i) {
    auto ring = WorkRing::create(2 * loop_count * limits.calls);
    if (!ring) return tl::unexpected(ring.error());
    rings.push_back(ring->get());
    workers_.push_back(std::make_unique<Worker>(*memory_, std::move(*ring)));
  }
  for (std::size_t i = 0; i < loop_count; ++i) {
    auto group = device_->make_poll_group();
    if (!group) return tl::unexpected(group.error());
    auto returned = ReturnRing::create(2 * limits.calls);
    if (!returned) return tl::unexpected(returned.error());
    auto commands = CommandRing::create(kCommands);
    if (!commands) return tl::unexpected(commands.error());
    loops_.push_back(std::make_unique<PollLoop<P>>(*device_, **group, *memory_, region_, programs_, limits,
                                                   std::move(*returned), std::move(*commands)));
    loops_.back()->set_workers(rings);
  }
  return {};
}

template <dv::Provider P>
EngineCore<P>::~EngineCore() {
  stop(std::chrono::milliseconds(0));
  device_.reset();  // before the memory it has registered
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

template <dv::Provider P>
Result<void> EngineCore<P>::add_program(Program program) {
  if (started_) return fail(program.name, "the engine is running already", "add programs before start()");
  return programs_.add(std::move(program));
}

template <dv::Provider P>
void EngineCore<P>::add_poller(std::size_t loop, std::function<std::size_t()> poller) {
  loops_.at(loop)->add_poller(std::move(poller));
}

template <dv::Provider P>
Result<void> EngineCore<P>::start() {
  if (started_) return {};
  started_ = true;
  if (!threaded()) return {};
  wake_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) return fail("control thread", "eventfd failed", "raise the limit of open files (ulimit -n)");
  for (std::size_t i = 0; i < loops_.size(); ++i) {
    using Task = LcoreTask<PollLoop<P>>;
    auto* task = new Task{loops_[i].get(), &stop_loops_};
    auto launched = eal_->launch(
        config_.poll_cores[i],
        [](void* argument) {
          const std::unique_ptr<Task> mine(static_cast<Task*>(argument));
          const OnCore on_core(mine->loop->context().memory);
          while (!mine->stop->load(std::memory_order_relaxed)) {
            if (mine->loop->step() == 0) pools::relax();
          }
        },
        task);
    if (!launched) {
      delete task;
      stop_threads();
      return launched;
    }
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    using Task = LcoreTask<Worker>;
    auto* task = new Task{workers_[i].get(), &stop_workers_};
    auto launched = eal_->launch(
        config_.worker_cores[i],
        [](void* argument) {
          const std::unique_ptr<Task> mine(static_cast<Task*>(argument));
          mine->loop->run(*mine->stop);
        },
        task);
    if (!launched) {
      delete task;
      stop_threads();
      return launched;
    }
  }
  control_ = std::thread([this] { control_thread(); });
  return {};
}

template <dv::Provider P>
Result<void> EngineCore<P>::listen(std::string_view address) {
  auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  const std::scoped_lock lock(mutex_);
  auto id = device_->listen(*parsed);
  if (!id) return tl::unexpected(id.error());
  listeners_.push_back(*id);
  return {};
}

template <dv::Provider P>
Result<std::uint64_t> EngineCore<P>::begin_connect(std::string_view address, std::size_t loop, std::uint32_t credits) {
  auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  if (credits == 0) credits = config_.credits;
  if (loop >= loops_.size()) return fail(std::string(address), "there is no loop " + std::to_string(loop));
  if (credits + kReceiveSlack > device_->capabilities().max_queue_depth) {
    return fail(std::string(address), std::to_string(credits) + " credits are more than the device's queues hold",
                "ask for at most " + std::to_string(device_->capabilities().max_queue_depth - kReceiveSlack));
  }
  const std::scoped_lock lock(mutex_);
  auto id = device_->connect(*parsed, loops_[loop]->group());
  if (!id) return tl::unexpected(id.error());
  attempts_[*id] = {std::string(address), loop, credits, false, {}};
  wake_control();
  return static_cast<std::uint64_t>(*id);
}

template <dv::Provider P>
Result<Connection*> EngineCore<P>::finish_connect(std::uint64_t attempt) {
  const std::scoped_lock lock(mutex_);
  const auto id = static_cast<dv::CmId>(attempt);
  const auto it = attempts_.find(id);
  if (it == attempts_.end()) return fail("connect", "there is no such attempt");
  if (!it->second.failure.empty()) {
    auto failure = fail(it->second.address, it->second.failure, "is the engine running, and is that its address?");
    attempts_.erase(it);
    return failure;
  }
  if (!it->second.established) return nullptr;
  attempts_.erase(it);
  const auto link = links_.find(id);
  if (link == links_.end()) return fail("connect", "the peer closed the connection at once");
  return link->second.requester.get();
}

template <dv::Provider P>
Result<Connection*> EngineCore<P>::connect(std::string_view address, std::size_t loop, std::uint32_t credits,
                                           std::chrono::milliseconds timeout) {
  auto attempt = begin_connect(address, loop, credits);
  if (!attempt) return tl::unexpected(attempt.error());
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (!threaded()) step();
    auto connection = finish_connect(*attempt);
    if (!connection || *connection != nullptr) return connection;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  const std::scoped_lock lock(mutex_);
  const auto id = static_cast<dv::CmId>(*attempt);
  attempts_.erase(id);
  device_->disconnect(id);
  if (links_.contains(id)) {
    close_link(id);
  } else {
    device_->destroy(id);
  }
  return fail(std::string(address), "no answer within " + std::to_string(timeout.count()) + " ms",
              "is the engine there stopped or overloaded?");
}

template <dv::Provider P>
void EngineCore<P>::disconnect(Connection* connection) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(husks_, [&](const Managed& husk) { return husk.requester.get() == connection; });
  for (auto& [id, managed] : links_) {
    if (managed.requester.get() != connection || connection == nullptr) continue;
    managed.released = true;
    if (!managed.closing) device_->disconnect(id);
    close_link(id);
    wake_control();
    return;
  }
}

template <dv::Provider P>
std::size_t EngineCore<P>::step() {
  std::size_t work = 0;
  for (auto& loop : loops_) {
    const OnCore on_core(loop->context().memory);
    work += loop->step();
  }
  if (time_to_look(work)) {
    const std::scoped_lock lock(mutex_);
    work += process_events();
  }
  return work;
}

template <dv::Provider P>
bool EngineCore<P>::time_to_look(std::size_t work) noexcept {
  // Connection management is rare, and between processes a look costs system calls; calls must not pay for it.
  if (work != 0 && ++busy_turns_ % kBusyTurnsPerLook != 0) return false;
  if (device_->event_fd() < 0) return ++idle_turns_ % kIdleTurnsPerLook == 0;
  const std::uint64_t now = pools::tsc_now();
  if (now < next_look_) return false;
  next_look_ = now + look_ticks_;
  return true;
}

template <dv::Provider P>
void EngineCore<P>::run_on_loop(std::size_t loop, std::function<void()> work) {
  if (!threaded() || !started_ || stop_loops_.load()) {
    const OnCore on_core(loops_[loop]->context().memory);
    work();
    return;
  }
  Command command;
  command.work = std::move(work);
  while (!loops_[loop]->commands().push(&command)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  // Acquire: pairs with the loop's release; what the work wrote is visible.
  while (!command.done.load(std::memory_order_acquire)) std::this_thread::sleep_for(std::chrono::microseconds(20));
}

template <dv::Provider P>
PrivateData EngineCore<P>::own_private_data() const {
  // R stays 0: the pool's key is persistent and must never be invalidated remotely (RFC 8797 §3.2).
  return {.send_size = config_.inline_send_bytes, .receive_size = config_.inline_receive_bytes};
}

template <dv::Provider P>
std::size_t EngineCore<P>::process_events() {
  std::size_t work = 0;
  while (auto event = device_->next_event()) {
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
Result<void> EngineCore<P>::make_link(dv::CmId id, std::size_t loop, std::uint32_t requester_credits) {
  const std::uint32_t credits = requester_credits != 0 ? requester_credits : config_.credits;
  auto qp = device_->make_qp(
      id, {.send_depth = std::max(kLeastSends, 2 * credits), .receive_depth = credits + kReceiveSlack});
  if (!qp) return tl::unexpected(qp.error());
  Managed& managed = links_[id];
  managed.link = std::make_unique<Link<P>>();
  link_count_.store(links_.size(), std::memory_order_relaxed);
  Link<P>& link = *managed.link;
  link.qp = *qp;
  link.cm = id;
  link.loop = loop;
  if (requester_credits != 0) {
    xid_seed_ = xid_seed_ * 1664525U + 1013904223U;
    managed.requester = std::make_unique<Requester<P>>(loops_[loop]->context(), link, requester_credits, xid_seed_);
    link.requester = managed.requester.get();
  }
  bool enough = false;
  run_on_loop(loop, [&] { enough = loops_[loop]->attach(link); });
  managed.attached = true;
  if (!enough) {
    close_link(id);
    return fail("connection", "there are not enough small buffers or Calls for its receives",
                "raise --small-buffers or --connections, or lower --credits");
  }
  return {};
}

template <dv::Provider P>
void EngineCore<P>::on_connect_request(const dv::CmEvent& event) {
  const std::size_t loop = event.group % loops_.size();
  if (stopped_) {
    device_->reject(event.id, {}, "the engine is stopping");
    device_->destroy(event.id);
    return;
  }
  if (auto made = make_link(event.id, loop, 0); !made) {
    device_->reject(event.id, {}, made.error().message());
    if (!links_.contains(event.id)) device_->destroy(event.id);
    return;
  }
  const PrivateData own = own_private_data();
  const InlineThresholds thresholds = inline_thresholds(own, decode_private_data(event.private_data));
  Link<P>& link = *links_[event.id].link;
  // Before accept(): the first Call may arrive as soon as the peer has the answer.
  run_on_loop(loop, [&] { loops_[loop]->establish(link, thresholds.outgoing, thresholds.incoming); });
  if (auto accepted = device_->accept(event.id, encode_private_data(own)); !accepted) close_link(event.id);
}

template <dv::Provider P>
void EngineCore<P>::on_route_resolved(const dv::CmEvent& event) {
  const auto attempt = attempts_.find(event.id);
  if (attempt == attempts_.end()) {
    device_->destroy(event.id);
    return;
  }
  auto made = make_link(event.id, attempt->second.loop, attempt->second.credits);
  if (made) made = device_->finish_connect(event.id, encode_private_data(own_private_data()));
  if (made) return;
  attempt->second.failure = made.error().message();
  if (links_.contains(event.id)) {
    close_link(event.id);
  } else {
    device_->destroy(event.id);
  }
}

template <dv::Provider P>
void EngineCore<P>::on_established(const dv::CmEvent& event) {
  const auto attempt = attempts_.find(event.id);
  const auto managed = links_.find(event.id);
  if (attempt == attempts_.end() || managed == links_.end()) return;  // the passive side was ready before
  const InlineThresholds thresholds = inline_thresholds(own_private_data(), decode_private_data(event.private_data));
  Link<P>& link = *managed->second.link;
  run_on_loop(link.loop, [&] { loops_[link.loop]->establish(link, thresholds.outgoing, thresholds.incoming); });
  attempt->second.established = true;
}

template <dv::Provider P>
void EngineCore<P>::on_disconnected(const dv::CmEvent& event) {
  if (const auto attempt = attempts_.find(event.id); attempt != attempts_.end() && !attempt->second.established) {
    attempt->second.failure = event.reason.empty() ? std::string(to_string(event.kind)) : event.reason;
  }
  if (links_.contains(event.id)) {
    device_->disconnect(event.id);
    close_link(event.id);
  } else {
    device_->destroy(event.id);
  }
}

template <dv::Provider P>
void EngineCore<P>::close_link(dv::CmId id) {
  Managed& managed = links_[id];
  if (managed.closing) return;
  managed.closing = true;
  Link<P>& link = *managed.link;
  run_on_loop(link.loop, [&] { loops_[link.loop]->begin_close(link); });
}

template <dv::Provider P>
std::size_t EngineCore<P>::reap_closed() {
  std::size_t reaped = 0;
  for (auto it = links_.begin(); it != links_.end();) {
    // Acquire: pairs with the loop's release; it will not touch the link again.
    if (!it->second.link->closed.load(std::memory_order_acquire)) {
      ++it;
      continue;
    }
    if (!it->second.closing) device_->disconnect(it->first);
    device_->destroy(it->first);
    if (it->second.requester != nullptr && !it->second.released) husks_.push_back(std::move(it->second));
    it = links_.erase(it);
    ++reaped;
  }
  link_count_.store(links_.size(), std::memory_order_relaxed);
  return reaped;
}

template <dv::Provider P>
bool EngineCore<P>::anything_closing() const {
  return std::any_of(links_.begin(), links_.end(), [](const auto& entry) { return entry.second.closing; });
}

template <dv::Provider P>
void EngineCore<P>::control_thread() {
  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  for (const int fd : {device_->event_fd(), wake_fd_}) {
    if (fd < 0) continue;
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
  }
  // A link may also fail by itself, on its loop; nobody sends an event for that, so look now and then.
  constexpr int kIdleMs = 100;
  constexpr int kClosingMs = 1;
  while (!stop_control_.load()) {
    int timeout = kIdleMs;
    {
      const std::scoped_lock lock(mutex_);
      process_events();
      if (anything_closing()) timeout = kClosingMs;
    }
    epoll_event ready[2];
    ::epoll_wait(epoll, ready, 2, timeout);
    std::uint64_t count = 0;
    (void)!::read(wake_fd_, &count, sizeof count);
  }
  ::close(epoll);
}

template <dv::Provider P>
void EngineCore<P>::wake_control() const {
  if (wake_fd_ < 0) return;
  const std::uint64_t one = 1;
  (void)!::write(wake_fd_, &one, sizeof one);
}

template <dv::Provider P>
void EngineCore<P>::stop_threads() {
  stop_control_.store(true);
  wake_control();
  if (control_.joinable()) control_.join();
  stop_workers_.store(true);
  for (const unsigned core : config_.worker_cores) eal_->join(core);
  stop_loops_.store(true);
  for (const unsigned core : config_.poll_cores) eal_->join(core);
}

template <dv::Provider P>
void EngineCore<P>::stop(std::chrono::milliseconds patience) {
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    for (const dv::CmId listener : listeners_) device_->destroy(listener);
    listeners_.clear();
  }
  using Clock = std::chrono::steady_clock;
  const auto turn = [&] {
    if (threaded()) {
      wake_control();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      step();
    }
  };
  const bool running = started_ && (!threaded() || control_.joinable());
  // 1. Calls that are being served get their answers.
  const auto calls_out = [&] {
    std::size_t out = 0;
    for (std::size_t i = 0; i < loops_.size(); ++i) run_on_loop(i, [&] { out += loops_[i]->calls_out(); });
    return out;
  };
  for (const auto deadline = Clock::now() + patience; running && Clock::now() < deadline && calls_out() != 0;) turn();
  // 2. Every connection says goodbye and drains.
  if (running) {
    const std::scoped_lock lock(mutex_);
    for (auto& [id, managed] : links_) {
      if (!managed.closing) device_->disconnect(id);
      close_link(id);
    }
  }
  constexpr auto kDrain = std::chrono::milliseconds(300);
  for (const auto deadline = Clock::now() + kDrain; running && Clock::now() < deadline && connection_count() != 0;) {
    turn();
  }
  // 3. Nothing runs any more; what caches hold goes home.
  if (threaded() && started_) stop_threads();
  for (auto& loop : loops_) loop->context().memory.flush();
}

template <dv::Provider P>
std::vector<std::string> EngineCore<P>::describe() const {
  std::vector<std::string> lines;
  lines.push_back(fmt::format("device: {}", device_->capabilities().name));
  const auto list = [](const std::vector<unsigned>& cores) { return fmt::format("{}", fmt::join(cores, ",")); };
  lines.push_back(fmt::format("cores: poll {}, worker {}", threaded() ? list(config_.poll_cores) : "none (stepped)",
                              config_.worker_cores.empty() ? "none" : list(config_.worker_cores)));
  auto& memory = *memory_;
  lines.push_back(
      fmt::format("memory: {} MiB in {} KiB pages; {} small buffers of {} bytes, {} bulk buffers of {} bytes",
                  memory.arena().size() >> 20U, memory.arena().page_bytes() >> 10U, memory.small().count(),
                  memory.small().buffer_bytes(), memory.bulk().count(), config_.bulk_bytes));
  lines.push_back(fmt::format("inline: send {}, receive {} bytes; credits {}", config_.inline_send_bytes,
                              config_.inline_receive_bytes, config_.credits));
  return lines;
}

template <dv::Provider P>
std::vector<CounterValue> EngineCore<P>::counters() const {
  std::vector<CounterValue> out;
  for (std::size_t i = 0; i < static_cast<std::size_t>(Count::kCount); ++i) {
    const auto info = pools::CounterBlock<Count>::info(static_cast<Count>(i));
    CounterValue value{info.name, info.help, 0};
    for (const auto& loop : loops_) value.value += loop->context().counters.read(static_cast<Count>(i));
    out.push_back(value);
  }
  for (std::size_t i = 1; i < kHeaderOutcomeCount; ++i) {
    CounterValue value{kHeaderOutcomes[i].name, "messages whose header was refused for this reason", 0};
    for (const auto& loop : loops_) {
      auto& count = const_cast<std::uint64_t&>(loop->context().header_outcomes[i]);  // a load does not write
      value.value += std::atomic_ref<std::uint64_t>(count).load(std::memory_order_relaxed);
    }
    out.push_back(value);
  }
  return out;
}

template <dv::Provider P>
std::pair<bool, std::string> EngineCore<P>::audit() const {
  const pools::Audit small = memory_->small().audit();
  const pools::Audit bulk = memory_->bulk().audit();
  const bool ok = small.adds_up() && bulk.adds_up() && (!stopped_ || (small.held == 0 && bulk.held == 0));
  return {ok, "small buffers: " + small.to_string() + "; bulk buffers: " + bulk.to_string()};
}

template class EngineCore<dv::mlx5::Provider>;

Result<std::unique_ptr<Engine>> Engine::open(std::string_view address, const Config& config) {
  auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  auto device = dv::open_device(*parsed);
  if (!device) return tl::unexpected(device.error());
  return EngineCore<dv::mlx5::Provider>::open_on(std::move(*device), config);
}

}  // namespace rodeo
