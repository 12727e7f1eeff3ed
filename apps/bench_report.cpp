// SPDX-License-Identifier: Apache-2.0
#include "apps/bench_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "apps/command_line.h"

namespace rodeo::apps {
namespace {

using Json = nlohmann::ordered_json;

struct Quantile {
  const char* key;
  const char* label;
  double percent;
};
constexpr Quantile kQuantiles[] = {
    {"p50", "p50", 50}, {"p90", "p90", 90}, {"p99", "p99", 99}, {"p999", "p99.9", 99.9}, {"p9999", "p99.99", 99.99}};

double per_second(std::uint64_t number, const BenchResult& result) {
  return result.seconds > 0 ? static_cast<double>(number) / result.seconds : 0;
}

double in_ns(std::uint64_t ticks, const BenchResult& result) { return static_cast<double>(ticks) * result.ns_per_tick; }

std::string human_rate(double rate) {
  if (rate >= 1e6) return fmt::format("{:.3f} M", rate / 1e6);
  if (rate >= 1e3) return fmt::format("{:.1f} k", rate / 1e3);
  return fmt::format("{:.1f} ", rate);
}

/// Calls f(name, number) for each kind of error, also those that did not happen.
template <class F>
void for_each_error(const BenchCounts& counts, F&& f) {
  f("not_success", counts.errors[static_cast<std::size_t>(CallError::kNone)]);
  for (std::size_t i = 1; i < kCallErrors; ++i) f(to_string(static_cast<CallError>(i)), counts.errors[i]);
  f("wrong_contents", counts.mismatches);
  f("too_large_to_send", counts.unsendable);
}

template <class F>
void for_each_refusal(const BenchCounts& counts, F&& f) {
  for (const auto outcome : {SubmitOutcome::kNoCredit, SubmitOutcome::kSendQueueFull, SubmitOutcome::kNoBuffer}) {
    f(to_string(outcome), counts.refusals[static_cast<std::size_t>(outcome)]);
  }
}

std::string cores_text(const BenchOptions& options) { return pools::core_list_text(options.cores); }

}  // namespace

std::string bench_table(const BenchOptions& options, const BenchResult& result) {
  const BenchCounts& counts = result.counts;
  std::string text = fmt::format("{} from core{} {}: {} connection{}, window {}, {}\n", options.mix.name,
                                 options.cores.size() == 1 ? "" : "s", cores_text(options), options.connections,
                                 options.connections == 1 ? "" : "s", options.window,
                                 options.no_verify ? "contents not compared" : "contents compared");
  for (const std::string& warning : result.warnings) text += fmt::format("  warning     {}\n", warning);
  text += fmt::format("  calls       {} in {:.3f} s\n", counts.calls, result.seconds);
  text += fmt::format("  rate        {}calls/s\n", human_rate(per_second(counts.calls, result)));
  if (counts.payload_bytes != 0) {
    text += fmt::format("  payload     {}/s\n", human_bytes(per_second(counts.payload_bytes, result)));
  }
  const Histogram& latency = *result.histogram;
  for (const Quantile& quantile : kQuantiles) {
    text += fmt::format("  {:<11} {}\n", quantile.label, human_ns(in_ns(latency.percentile(quantile.percent), result)));
  }
  text += fmt::format("  max         {}\n", human_ns(in_ns(latency.max(), result)));
  for_each_refusal(counts, [&text](std::string_view name, std::uint64_t number) {
    if (number != 0) text += fmt::format("  had to wait {} ({})\n", number, name);
  });
  text += fmt::format("  errors      {}\n", counts.error_count());
  for_each_error(counts, [&text](std::string_view name, std::uint64_t number) {
    if (number != 0) text += fmt::format("    {:<20} {}\n", name, number);
  });
  return text;
}

std::string bench_json(const BenchOptions& options, const BenchResult& result) {
  const BenchCounts& counts = result.counts;
  const Histogram& latency = *result.histogram;
  Json quantiles;
  for (const Quantile& quantile : kQuantiles)
    quantiles[quantile.key] = in_ns(latency.percentile(quantile.percent), result);
  quantiles["max"] = in_ns(latency.max(), result);
  quantiles["min"] = in_ns(latency.min(), result);
  quantiles["mean"] = latency.mean() * result.ns_per_tick;
  Json errors_by_kind;
  for_each_error(counts,
                 [&](std::string_view name, std::uint64_t number) { errors_by_kind[std::string(name)] = number; });
  Json waits;
  for_each_refusal(counts, [&](std::string_view name, std::uint64_t number) { waits[std::string(name)] = number; });
  const Json report{{"calls_per_second", per_second(counts.calls, result)},
                    {"bytes_per_second", per_second(counts.payload_bytes, result)},
                    {"calls", counts.calls},
                    {"seconds", result.seconds},
                    {"latency_ns", quantiles},
                    {"errors", counts.error_count()},
                    {"errors_by_kind", errors_by_kind},
                    {"retries", waits},
                    {"failure", result.failure},
                    {"credits_seen", result.credits_seen},
                    {"warnings", result.warnings},
                    {"verify", !options.no_verify},
                    {"address", options.address},
                    {"cores", options.cores},
                    {"connections", options.connections},
                    {"window", options.window},
                    {"mix", options.mix.name},
                    {"size", options.size_bytes},
                    {"delay_us", options.delay_us},
                    {"seconds_asked", options.count != 0 ? 0.0 : options.seconds},
                    {"count_asked", options.count},
                    {"warmup", options.warmup_seconds},
                    {"stall", options.stall_seconds},
                    {"inline_send", options.inline_send_bytes},
                    {"inline_receive", options.inline_receive_bytes},
                    {"credits", options.credits},
                    {"shared_receives", options.shared_receives},
                    {"hugepages", !options.no_hugepages},
                    {"version", kVersion}};
  return report.dump() + "\n";
}

int bench_exit_status(const BenchResult& result) {
  return result.failure.empty() && result.counts.error_count() == 0 ? kExitOk : kExitFailure;
}

}  // namespace rodeo::apps
