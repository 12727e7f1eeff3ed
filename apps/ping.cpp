// SPDX-License-Identifier: Apache-2.0
#include "apps/ping.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <optional>
#include <thread>
#include <vector>

#include "apps/command_line.h"
#include "apps/pattern.h"
#include "apps/test_protocol.h"
#include "engine/client.h"
#include "engine/xdr_writer.h"
#include "pools/clock.h"

namespace rodeo::apps {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr const char* kName = "rodeo ping";
constexpr std::uint32_t kMaxBytes = 1U << 20U;

constexpr const char* kFooter = R"(
Examples:
  rodeo ping soft:rodeo                         a NULL call every second, until Ctrl-C
  rodeo ping soft:rodeo --count 5 --interval 10 five of them, 10 ms apart
  rodeo ping soft:rodeo --size 64K              64 KiB there and back; above the inline size by Long Call and Long Reply
  rodeo ping rdma://server --program 100003 --version 3      does an NFS server answer there?

The exit status is 0 when at least one reply came.
)";

Config small_config() {
  Config config;
  config.hugepages = false;
  config.connections = 1;
  config.credits = 2;
  config.bulk_bytes = kMaxBytes + 4096;
  config.bulk_buffers = 8;
  return config;
}

class Pinger {
 public:
  explicit Pinger(const PingOptions& options)
      : options_(options),
        target_(options.program == 0 ? kTestProgram : options.program,
                options.program == 0 ? kTestVersion : options.version,
                static_cast<std::uint32_t>(options.size_bytes == 0 ? TestProc::kNull : TestProc::kEcho), {}),
        payload_(options.size_bytes),
        arguments_(options.size_bytes == 0 ? 0 : 4 + (options.size_bytes + 3) / 4 * 4) {}

  /// One call; the nanoseconds that it took.
  Result<double> call(std::uint64_t sequence) {
    if (!client_) {
      if (auto opened = open(); !opened) return tl::unexpected(opened.error());
    }
    if (options_.size_bytes != 0) {
      fill_pattern(payload_, sequence * 8);
      XdrWriter(arguments_).opaque(payload_);
    }
    CallRequest request;
    request.target = &target_;
    request.arguments = arguments_;
    request.max_results = arguments_.size();
    const std::uint64_t before = pools::tsc_now();
    const auto reply = client_->call(request, milliseconds(options_.timeout_ms));
    const std::uint64_t after = pools::tsc_now();
    if (!reply || reply->error == CallError::kConnectionLost) client_.reset();  // the next call connects anew
    if (!reply) return tl::unexpected(reply.error());
    if (reply->error != CallError::kNone) return fail("", std::string(to_string(reply->error)));
    if (reply->accept_stat != AcceptStat::kSuccess) {
      return fail("", fmt::format("refused with accept_stat {}", static_cast<unsigned>(reply->accept_stat)));
    }
    if (reply->results != arguments_) return fail("", "the reply does not hold what was sent");
    return pools::ticks_to_ns(after - before);
  }

  Result<void> open() {
    auto opened = Client::open(options_.address, small_config());
    if (!opened) return tl::unexpected(opened.error());
    client_.emplace(std::move(*opened));
    return {};
  }

  /// Waits while keeping the connection alive.
  void idle_until(Clock::time_point when) {
    while (!stop_signalled() && Clock::now() < when) {
      if (client_) client_->engine().step();
      const auto left = std::chrono::duration_cast<std::chrono::microseconds>(when - Clock::now());
      std::this_thread::sleep_for(std::clamp(left, std::chrono::microseconds(0), std::chrono::microseconds(5000)));
    }
  }

 private:
  const PingOptions& options_;
  CallTarget target_;
  std::vector<std::byte> payload_;
  std::vector<std::byte> arguments_;
  std::optional<Client> client_;
};

}  // namespace

void PingStatistics::received(double ns) noexcept {
  min_ns_ = received_ == 0 ? ns : std::min(min_ns_, ns);
  max_ns_ = std::max(max_ns_, ns);
  sum_ns_ += ns;
  sum_squares_ += ns * ns;
  ++received_;
}

std::string PingStatistics::text() const {
  const double loss = sent_ == 0 ? 0 : 100.0 * static_cast<double>(sent_ - received_) / static_cast<double>(sent_);
  std::string text = fmt::format("{} call{}, {} repl{}, {:.3g}% loss\n", sent_, sent_ == 1 ? "" : "s", received_,
                                 received_ == 1 ? "y" : "ies", loss);
  if (received_ == 0) return text;
  const auto replies = static_cast<double>(received_);
  const double mean = sum_ns_ / replies;
  const double deviation = std::sqrt(std::max(0.0, sum_squares_ / replies - mean * mean));
  return text + fmt::format("round trip min/avg/max/mdev = {:.3f}/{:.3f}/{:.3f}/{:.3f} us\n", min_ns_ / 1e3, mean / 1e3,
                            max_ns_ / 1e3, deviation / 1e3);
}

void add_ping_options(CLI::App& app, PingOptions& options) {
  app.footer(kFooter);
  app.option_defaults()->always_capture_default();
  app.add_option("address", options.address, "Where the engine listens, such as soft:rodeo")->required();
  app.add_option("-c,--count", options.count, "Calls to make. 0: until Ctrl-C")->check(whole_number(0, 1'000'000'000));
  app.add_option("-i,--interval", options.interval_ms, "Milliseconds from one call to the next")
      ->check(whole_number(0, 3'600'000));
  CLI::Option* size =
      app.add_option("-s,--size", options.size_bytes, "Octets to send and get back, up to 1M. 0: a NULL call")
          ->transform(byte_size(0, kMaxBytes));
  app.add_option("-W,--timeout", options.timeout_ms, "Milliseconds to wait for a reply")
      ->check(whole_number(1, 3'600'000));
  CLI::Option* program =
      app.add_option("--program", options.program, "RPC program to call, such as 100003 for NFS. 0: rodeod's own")
          ->check(whole_number(0, 0xffff'ffff));
  app.add_option("--version", options.version, "Its version")->check(whole_number(0, 0xffff'ffff))->needs(program);
  // Only the test program sends back what it gets.
  program->excludes(size);
}

int run_ping(const PingOptions& options) {
  Pinger pinger(options);
  if (auto opened = pinger.open(); !opened) {
    complain(kName, opened.error().message());
    return kExitFailure;
  }
  fmt::print("PING {}: {}\n", options.address,
             options.size_bytes == 0 ? std::string("NULL calls") : fmt::format("{} octets", options.size_bytes));
  PingStatistics statistics;
  Clock::time_point next = Clock::now();
  for (std::uint64_t sequence = 1; !stop_signalled(); ++sequence) {
    statistics.sent();
    if (const auto ns = pinger.call(sequence)) {
      statistics.received(*ns);
      fmt::print("reply from {}: seq={} time={}\n", options.address, sequence, human_ns(*ns));
    } else {
      fmt::print("no reply from {}: seq={} {}\n", options.address, sequence, ns.error().message());
    }
    std::fflush(stdout);
    if (sequence == options.count) break;
    next = std::max(next + milliseconds(options.interval_ms), Clock::now());
    pinger.idle_until(next);
  }
  fmt::print("--- {} ---\n{}", options.address, statistics.text());
  return statistics.received_count() == 0 ? kExitFailure : kExitOk;
}

}  // namespace rodeo::apps
