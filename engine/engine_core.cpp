// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_core.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <variant>

#include "dv/mlx5/provider.h"
#include "dv/providers.h"
#include "dv/verbs/provider.h"
#include "pools/clock.h"

namespace rodeo {

namespace {

/// Room for RPC headers beside the largest item, in a bulk buffer.
constexpr std::size_t kBulkSlack = 4096;
constexpr std::uint32_t kMaxCalls = 65536;
constexpr std::size_t kCommands = 1024;

[[nodiscard]] std::uint32_t calls_per_loop(const Config& config) {
  const std::uint64_t wanted = std::uint64_t{config.credits} * config.connections + 64;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, 1024, kMaxCalls));
}

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
  if (config_.credits == 0 ||
      std::uint64_t{config_.credits} + config_.reverse_credits + kReceiveSlack > capabilities.max_queue_depth) {
    return fail("credits",
                fmt::format("{} credits and {} in reverse are not possible", config_.credits, config_.reverse_credits),
                fmt::format("choose 1 to {}, both together", capabilities.max_queue_depth - kReceiveSlack));
  }
  if (config_.shared_receives && capabilities.max_shared_receives == 0) {
    return fail("shared receives", capabilities.name + " has no shared receive queue that we use",
                "leave shared_receives (--shared-receives) off");
  }
  if (config_.bulk_bytes < 4096 || config_.bulk_bytes > (std::size_t{1} << 29U)) {
    return fail("bulk buffers", std::to_string(config_.bulk_bytes) + " bytes each is not possible",
                "choose 4096 to 536870912");
  }
  if (config_.max_read_bytes == 0) config_.max_read_bytes = 4 * std::uint64_t{config_.bulk_bytes};
  if (auto chosen = choose_registration(); !chosen) return chosen;
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
  sizes.small_count =
      config_.small_buffers != 0
          ? config_.small_buffers
          : std::size_t{2} * (config_.credits + config_.reverse_credits) * config_.connections + cores_here * 1024;
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
  // Whoever exposes memory by windows, or not at all, gives nobody a key of the pool.
  const auto access =
      config_.registration == Registration::kPoolKey ? dv::Access::kRemoteReadWrite : dv::Access::kLocal;
  auto region = device_->register_memory(memory_->arena().bytes(), memory_->arena().fd(), 0, access);
  if (!region) return tl::unexpected(region.error());
  region_ = *region;
  look_ticks_ = static_cast<std::uint64_t>(pools::tsc_hz() * 20e-6);
  return make_loops();
}

template <dv::Provider P>
Result<void> EngineCore<P>::choose_registration() {
  const auto& capabilities = device_->capabilities();
  Registration& registration = config_.registration;
  if (registration == Registration::kAuto) {
    registration = automatic_registration(capabilities);
    if (registration == Registration::kPoolKey && !capabilities.one_host) {
      warnings_.push_back(
          capabilities.name +
          " has no memory windows of type 2B, so peers get a key of the whole pool; connect to trusted ones only");
    }
  }
  if (possible(registration, capabilities)) return {};
  return fail("registration", capabilities.name + " cannot do \"" + std::string(to_string(registration)) + '"',
              "choose the pool key, for peers that are trusted with all of the pool");
}

template <dv::Provider P>
Result<void> EngineCore<P>::make_loops() {
  const std::size_t loop_count = std::max<std::size_t>(1, config_.poll_cores.size());
  const LoopLimits limits{.credits = config_.credits,
                          .message_bytes = static_cast<std::uint32_t>(memory_->small().buffer_bytes()),
                          .calls = calls_per_loop(config_),
                          .read_bytes = config_.max_read_bytes};
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

namespace {

/// What deferred Calls that never came back may touch yet: each is kept until the process ends.
void keep_for_ever(std::vector<std::shared_ptr<void>> things) {
  static std::mutex mutex;
  // Never destroyed: other threads may run while the process exits.
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::scoped_lock lock(mutex);
  kept.insert(kept.end(), things.begin(), things.end());
}

}  // namespace

template <dv::Provider P>
EngineCore<P>::~EngineCore() {
  stop(std::chrono::milliseconds(0));
  device_.reset();  // before the memory it has registered
  std::vector<std::shared_ptr<void>> touched;
  for (auto& loop : loops_) {
    if (loop->context().calls.out() != 0) touched.emplace_back(std::move(loop));
  }
  if (!touched.empty()) {
    touched.emplace_back(connections_.take_links());
    touched.emplace_back(std::move(memory_));
    touched.emplace_back(std::move(eal_));
    keep_for_ever(std::move(touched));
  }
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

template <dv::Provider P>
Result<void> EngineCore<P>::add_program(Program program) {
  if (started_) return fail(program.name, "the engine is running already", "add programs before start()");
  for (Procedure& procedure : program.procedures) {
    if (!procedure.remember_replies || procedure.handler == nullptr || config_.remembered_replies == 0) continue;
    if (reply_cache_ == nullptr) {
      reply_cache_ = std::make_unique<ReplyCache>(config_.remembered_replies, config_.remembered_bytes);
    }
    procedure = reply_cache_->wrap(program, procedure);
  }
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
    if (auto ok = launch(config_.poll_cores[i], [this, loop = loops_[i].get()] { run_loop(*loop); }); !ok) return ok;
  }
  for (std::size_t i = 0; i < workers_.size(); ++i) {
    auto ok = launch(config_.worker_cores[i], [this, worker = workers_[i].get()] { worker->run(stop_workers_); });
    if (!ok) return ok;
  }
  control_ = std::thread([this] { control_thread(); });
  return {};
}

template <dv::Provider P>
template <class Work>
Result<void> EngineCore<P>::launch(unsigned core, Work work) {
  auto* task = new Work(std::move(work));
  auto launched = eal_->launch(
      core,
      [](void* argument) {
        const std::unique_ptr<Work> mine(static_cast<Work*>(argument));
        (*mine)();
      },
      task);
  if (!launched) {
    delete task;
    stop_threads();
  }
  return launched;
}

template <dv::Provider P>
void EngineCore<P>::run_loop(PollLoop<P>& loop) noexcept {
  const OnCore on_core(loop.context().memory);
  while (!stop_loops_.load(std::memory_order_relaxed)) {
    if (loop.step() == 0) loop.await_work();
  }
}

template <dv::Provider P>
Result<void> EngineCore<P>::listen(std::string_view address) {
  return connections_.listen(address);
}

template <dv::Provider P>
Result<std::uint64_t> EngineCore<P>::begin_connect(std::string_view address, const ConnectOptions& options) {
  auto attempt = connections_.begin_connect(address, options);
  wake_control();
  return attempt;
}

template <dv::Provider P>
Result<Connection*> EngineCore<P>::finish_connect(std::uint64_t attempt) {
  return connections_.finish_connect(attempt);
}

template <dv::Provider P>
Result<Connection*> EngineCore<P>::connect(std::string_view address, const ConnectOptions& options,
                                           std::chrono::milliseconds timeout) {
  auto attempt = begin_connect(address, options);
  if (!attempt) return tl::unexpected(attempt.error());
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    if (!threaded()) step();
    auto connection = finish_connect(*attempt);
    if (!connection || *connection != nullptr) return connection;
    if (std::chrono::steady_clock::now() >= deadline) break;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  connections_.abandon_connect(*attempt);
  return fail(std::string(address), "no answer within " + std::to_string(timeout.count()) + " ms",
              "is the engine there stopped or overloaded?");
}

template <dv::Provider P>
void EngineCore<P>::disconnect(Connection* connection) {
  connections_.disconnect(connection);
  wake_control();
}

template <dv::Provider P>
std::string EngineCore<P>::why_closed(const Connection* connection) {
  constexpr std::chrono::milliseconds kTimeToLearnWhy{20};
  const auto until = std::chrono::steady_clock::now() + kTimeToLearnWhy;
  do {
    if (std::string why = connections_.why_closed(connection); !why.empty()) return why;
    threaded() ? std::this_thread::sleep_for(std::chrono::milliseconds(1)) : static_cast<void>(step());
  } while (std::chrono::steady_clock::now() < until);
  return "the connection failed";
}

template <dv::Provider P>
std::size_t EngineCore<P>::step() {
  std::size_t work = 0;
  for (auto& loop : loops_) {
    const OnCore on_core(loop->context().memory);
    work += loop->step();
  }
  if (time_to_look(work)) {
    work += connections_.process_events();
    connections_.sweep();
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
    connections_.process_events();
    connections_.sweep();
    int timeout = connections_.anything_closing() ? kClosingMs : kIdleMs;
    if (const int sweep = connections_.until_sweep(); sweep >= 0) timeout = std::min(timeout, std::max(sweep, 1));
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
  if (!connections_.stop_accepting()) return;
  stopped_ = true;
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
  if (running) connections_.close_all();
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
  const dv::Capabilities& can = device_->capabilities();
  lines.push_back(fmt::format("device: {}{}", can.name, can.name == can.driver ? "" : ", " + can.driver));
  const auto list = [](const std::vector<unsigned>& cores) { return fmt::format("{}", fmt::join(cores, ",")); };
  lines.push_back(fmt::format("cores: poll {}, worker {}", threaded() ? list(config_.poll_cores) : "none (stepped)",
                              config_.worker_cores.empty() ? "none" : list(config_.worker_cores)));
  lines.push_back(fmt::format("registration: {}", to_string(config_.registration)));
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
  out.push_back({"calls_replayed", "duplicates of Calls, answered with the Reply of their first run",
                 reply_cache_ == nullptr ? 0 : reply_cache_->replayed()});
  return out;
}

template <dv::Provider P>
std::pair<bool, std::string> EngineCore<P>::audit() const {
  const pools::Audit small = memory_->small().audit();
  const pools::Audit bulk = memory_->bulk().audit();
  bool ok = small.adds_up() && bulk.adds_up();
  std::string text = "small buffers: " + small.to_string() + "; bulk buffers: " + bulk.to_string();
  if (!stopped_ && (threaded() || connections_.count() != 0)) return {ok, text};
  // Nothing runs any more, or only when the caller says so and there is nothing to do; so what belongs to the loops and
  // the device may be looked at, too.
  ok = ok && small.held == 0 && bulk.held == 0;
  std::uint32_t calls = 0;
  std::uint32_t chunk_lists = 0;
  std::uint32_t receives = 0;
  for (const auto& loop : loops_) {
    const LoopContext<P>& context = loop->context();
    calls += context.calls.out();
    chunk_lists += context.chunks.out();
    receives += context.limits.calls - context.receive_slots;
  }
  const dv::Usage usage = device_->usage();
  ok = ok && calls == 0 && chunk_lists == 0 && receives == 0 && usage.queue_pairs == 0 && usage.memory_windows == 0 &&
       usage.memory_regions == 1;
  text += fmt::format("; Calls: {}; chunk lists: {}; receives granted: {}; QPs: {}; memory windows: {}; regions: {}",
                      calls, chunk_lists, receives, usage.queue_pairs, usage.memory_windows, usage.memory_regions);
  text += fmt::format("; lost connections kept: {}", connections_.husk_count());
  return {ok, text};
}

template class EngineCore<dv::mlx5::Provider>;
template class EngineCore<dv::verbs::Provider>;

Result<std::unique_ptr<Engine>> Engine::open(std::string_view address, const Config& config) {
  auto parsed = dv::Address::parse(address);
  if (!parsed) return tl::unexpected(parsed.error());
  auto opened = dv::open_device(*parsed);
  if (!opened) return tl::unexpected(opened.error());
  if (auto* plain = std::get_if<std::unique_ptr<dv::verbs::Device>>(&*opened)) {
    return EngineCore<dv::verbs::Provider>::open_on(std::move(*plain), config);
  }
  return EngineCore<dv::mlx5::Provider>::open_on(std::get<std::unique_ptr<dv::mlx5::Device>>(std::move(*opened)),
                                                 config);
}

}  // namespace rodeo
