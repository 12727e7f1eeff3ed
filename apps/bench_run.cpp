// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_run.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "apps/callback.h"
#include "apps/command_line.h"
#include "apps/nfs_bench_file.h"
#include "apps/pattern.h"
#include "pools/clock.h"

namespace rodeo::apps {
namespace {

using Clock = std::chrono::steady_clock;

/// How soon an interruption or a stall is noticed. Each look takes the control thread to a core, which may be one that
/// is being measured; the cores themselves say when they have finished or failed.
constexpr int kLookMs = 100;
constexpr std::chrono::seconds kConnectTimeout{5};
constexpr std::size_t kBulkHeadroom = 4096;  // headers and arguments around a payload in a long message

/// Part `index` of `total` split into `parts` as evenly as whole numbers allow.
std::uint64_t share_of(std::uint64_t total, std::size_t index, std::size_t parts) {
  return total / parts + (index < total % parts ? 1 : 0);
}

Config engine_config(const BenchOptions& options) {
  Config config;
  config.poll_cores = options.cores;
  config.hugepages = !options.no_hugepages;
  config.inline_send_bytes = options.inline_send_bytes;
  config.inline_receive_bytes = options.inline_receive_bytes;
  config.registration = options.registration;
  config.connections = options.connections;
  config.credits = options.credits != 0 ? options.credits : window_per_connection(options);
  config.shared_receives = options.shared_receives;
  const std::size_t largest = largest_bytes(options.mix);
  config.bulk_bytes = std::max(config.bulk_bytes, (largest + kBulkHeadroom + 4095) & ~std::size_t{4095});
  const std::size_t pattern = (kPatternPeriod + largest + 63) & ~std::size_t{63};
  config.application_bytes = pattern + options.window * BenchCore::sink_bytes(options.mix);
  return config;
}

/// Everything that lives as long as the run. The cores outlive the engine, which calls them until it has stopped.
class Run {
 public:
  explicit Run(const BenchOptions& options) : options_(options) {}
  ~Run() {
    engine_.reset();  // its cores write to the descriptor
    if (news_fd_ >= 0) ::close(news_fd_);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  Result<BenchResult> execute() {
    if (const std::uint64_t bytes = nfs_file_bytes(options_.mix); bytes != 0) {
      auto file = make_nfs_bench_file(options_.address, options_.nfs_export, bytes, !options_.no_hugepages);
      if (!file) return tl::unexpected(file.error());
      nfs_file_ = *file;
    }
    auto opened = Engine::open(options_.address, engine_config(options_));
    if (!opened) return tl::unexpected(opened.error());
    engine_ = std::move(*opened);
    news_fd_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (news_fd_ < 0) return fail("rodeo bench", "eventfd failed", "raise the limit of open files (ulimit -n)");
    make_cores();
    if (calls_back()) {
      if (auto added = engine_->add_program(callback_program()); !added) return tl::unexpected(added.error());
    }
    if (auto started = engine_->start(); !started) return tl::unexpected(started.error());
    if (auto connected = connect(); !connected) return tl::unexpected(connected.error());
    begin();
    std::string failure = wait();
    finish();
    return add_up(std::move(failure));
  }

 private:
  [[nodiscard]] bool calls_back() const {
    return std::ranges::any_of(options_.mix.entries,
                               [](const MixEntry& entry) { return entry.proc == TestProc::kCallback; });
  }
  void make_cores() {
    const RegisteredBytes memory = engine_->application_memory();
    const std::size_t pattern_bytes = kPatternPeriod + largest_bytes(options_.mix);
    const RegisteredBytes pattern = memory.first(pattern_bytes);
    fill_pattern(pattern, 0);
    RegisteredBytes sinks = memory.subspan((pattern_bytes + 63) & ~std::size_t{63});
    const std::size_t loops = engine_->loop_count();
    for (std::size_t loop = 0; loop < loops; ++loop) {
      BenchCore::Setup setup;
      setup.mix = &options_.mix;
      setup.window = static_cast<std::uint32_t>(share_of(options_.window, loop, loops));
      setup.pattern = pattern;
      const std::size_t sink_bytes = setup.window * BenchCore::sink_bytes(options_.mix);
      setup.sinks = sinks.first(sink_bytes);
      sinks = sinks.subspan(sink_bytes);
      setup.verify = !options_.no_verify;
      setup.nfs_file = nfs_file_;
      setup.news_fd = news_fd_;
      if (options_.count != 0) setup.quota = share_of(options_.count, loop, loops);
      cores_.push_back(std::make_unique<BenchCore>(setup));
      engine_->add_poller(loop, [core = cores_.back().get()] { return core->turn(); });
    }
  }

  Result<void> connect() {
    connections_.resize(cores_.size());
    for (std::uint32_t i = 0; i < options_.connections; ++i) {
      if (stop_signalled()) return fail("rodeo bench", "interrupted while connecting");
      const std::size_t loop = i % cores_.size();
      ConnectOptions how{.loop = loop, .credits = options_.credits};
      if (calls_back()) how.reverse_programs = {kCallbackProgram};
      auto connection = engine_->connect(options_.address, how, kConnectTimeout);
      if (!connection) return tl::unexpected(connection.error());
      connections_[loop].push_back(*connection);
    }
    return {};
  }

  void begin() {
    const std::uint64_t from = pools::tsc_now() + pools::ns_to_ticks(options_.warmup_seconds * 1e9);
    const std::uint64_t until = options_.count != 0 ? std::numeric_limits<std::uint64_t>::max()
                                                    : from + pools::ns_to_ticks(options_.seconds * 1e9);
    for (std::size_t loop = 0; loop < cores_.size(); ++loop) {
      engine_->run_on_loop(loop, [this, loop, from, until] { cores_[loop]->begin(connections_[loop], from, until); });
    }
  }

  /// Until all cores have finished, or why that was not waited for.
  std::string wait() {
    std::uint64_t replies = 0;
    Clock::time_point heard = Clock::now();
    for (;;) {
      await_news();
      if (std::all_of(cores_.begin(), cores_.end(), [](const auto& core) { return core->finished(); })) {
        return any_failed() ? lost() : std::string();
      }
      if (any_failed()) return lost();
      if (stop_signalled()) return "interrupted";
      std::uint64_t now_replies = 0;
      for (const auto& core : cores_) now_replies += core->replies();
      if (now_replies != replies) {
        replies = now_replies;
        heard = Clock::now();
      } else if (Clock::now() - heard > std::chrono::duration<double>(patience_seconds())) {
        return fmt::format("no reply for {} s", patience_seconds());
      }
    }
  }

  /// Until a core has finished or failed, or it is time for a look.
  void await_news() const {
    pollfd news{.fd = news_fd_, .events = POLLIN, .revents = 0};
    if (::poll(&news, 1, kLookMs) <= 0) return;
    std::uint64_t count = 0;
    static_cast<void>(!::read(news_fd_, &count, sizeof count));
  }

  bool any_failed() const {
    return std::any_of(cores_.begin(), cores_.end(), [](const auto& core) { return core->failed(); });
  }

  std::string lost() const {
    for (const auto& on_core : connections_) {
      for (const Connection* connection : on_core) {
        if (connection->open()) continue;
        return fmt::format("the connection to {} was lost: {}", options_.address, engine_->why_closed(connection));
      }
    }
    return {};  // calls that could not be sent at all; the counts say so
  }

  /// A delay call is no stall.
  double patience_seconds() const {
    double longest = 0;
    for (const MixEntry& entry : options_.mix.entries) {
      if (entry.proc == TestProc::kDelay) longest = std::max(longest, entry.bytes / 1e6);
    }
    return options_.stall_seconds + longest;
  }

  void finish() {
    for (std::size_t loop = 0; loop < cores_.size(); ++loop) {
      engine_->run_on_loop(loop, [this, loop] {
        cores_[loop]->stop_sending();
        for (const Connection* connection : connections_[loop]) {
          credits_seen_ = std::max(credits_seen_, connection->credits_left() + connection->in_flight());
        }
      });
    }
    engine_->stop();
  }

  BenchResult add_up(std::string failure) {
    BenchResult result;
    result.histogram = std::make_unique<Histogram>();
    std::uint64_t ticks = 0;
    for (const auto& core : cores_) {
      result.counts.add(core->counts());
      result.histogram->merge(core->histogram());
      ticks = std::max(ticks, core->measured_ticks());
    }
    result.seconds = pools::ticks_to_ns(ticks) / 1e9;
    result.ns_per_tick = 1e9 / pools::tsc_hz();
    result.credits_seen = credits_seen_;
    result.warnings = engine_->warnings();
    result.failure = std::move(failure);
    return result;
  }

  const BenchOptions& options_;
  std::vector<std::unique_ptr<BenchCore>> cores_;
  std::vector<std::vector<Connection*>> connections_;  // by core
  std::uint32_t credits_seen_ = 0;
  nfs::FileHandle nfs_file_;
  int news_fd_ = -1;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

Result<BenchResult> run_bench(const BenchOptions& options) { return Run(options).execute(); }

}  // namespace rodeo::apps
