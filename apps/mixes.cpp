// SPDX-License-Identifier: Apache-2.0
#include "apps/mixes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <random>
#include <span>

#include "apps/capture_mix.h"
#include "apps/command_line.h"
#include "apps/nfs/nfs3.h"

namespace rodeo::apps {
namespace {

constexpr const char* kWhere = "mix";
constexpr std::size_t kMaxEntries = 1000;
constexpr std::size_t kMaxSchedule = 8192;

struct NamedProc {
  std::string_view name;
  TestProc proc;
};
constexpr std::array<NamedProc, 11> kProcs{{{"null", TestProc::kNull},
                                            {"echo", TestProc::kEcho},
                                            {"checksum", TestProc::kChecksum},
                                            {"fill", TestProc::kFill},
                                            {"mirror", TestProc::kMirror},
                                            {"delay", TestProc::kDelay},
                                            {"callback", TestProc::kCallback},
                                            {"long-call", TestProc::kLongCall},
                                            {"long-reply", TestProc::kLongReply},
                                            {"nfs-read", TestProc::kNfsRead},
                                            {"nfs-write", TestProc::kNfsWrite}}};

struct RecordedMix {
  std::string_view name;
  std::span<const CaptureShape> shapes;
};
constexpr std::array<RecordedMix, 2> kRecorded{{{"kernel-nfs3", kNfs3Shapes}, {"kernel-nfs42", kNfs42Shapes}}};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

MixEntry entry_of(TestProc proc, std::uint32_t bytes, std::uint32_t delay_us) {
  MixEntry entry;
  entry.proc = proc;
  if (proc == TestProc::kDelay) {
    entry.bytes = delay_us;
  } else if (proc == TestProc::kCallback) {
    entry.bytes = 1;
  } else if (proc != TestProc::kNull) {
    entry.bytes = bytes;
  }
  return entry;
}

std::optional<TestProc> find_proc(std::string_view name) {
  for (const auto& known : kProcs) {
    if (known.name == name) return known.proc;
  }
  return std::nullopt;
}

tl::unexpected<Error> unknown_proc(std::string_view name) {
  return fail(kWhere, "\"" + std::string(name) + "\" is no procedure", "use one of " + joined(proc_names()));
}

/// "fill:1048576=20", "null=80" or "null".
Result<MixEntry> parse_entry(std::string_view text, std::uint32_t bytes, std::uint32_t delay_us) {
  const std::string_view whole = text;
  std::uint32_t weight = 1;
  if (const std::size_t equals = text.find('='); equals != std::string_view::npos) {
    const std::string_view digits = text.substr(equals + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), weight);
    if (error != std::errc{} || end != digits.data() + digits.size() || weight == 0 || weight > 1'000'000) {
      return fail(kWhere, "the weight in \"" + std::string(whole) + "\" is not a whole number from 1 to 1000000",
                  "write PROCEDURE[:BYTES]=WEIGHT, such as fill:1M=20");
    }
    text = text.substr(0, equals);
  }
  std::optional<std::uint64_t> own_bytes;
  if (const std::size_t colon = text.find(':'); colon != std::string_view::npos) {
    own_bytes = parse_bytes(text.substr(colon + 1));
    if (!own_bytes || *own_bytes > kMaxPayloadBytes) {
      return fail(kWhere, "the size in \"" + std::string(whole) + "\" is not a number of bytes up to 256M",
                  "write PROCEDURE[:BYTES]=WEIGHT, such as fill:1M=20");
    }
    text = text.substr(0, colon);
  }
  const auto proc = find_proc(text);
  if (!proc) return unknown_proc(text);
  MixEntry entry = entry_of(*proc, own_bytes ? static_cast<std::uint32_t>(*own_bytes) : bytes,
                            own_bytes ? static_cast<std::uint32_t>(*own_bytes) : delay_us);
  if (is_nfs(entry.proc) && (entry.bytes == 0 || entry.bytes > nfs::kMaxTransferBytes)) {
    return fail(kWhere, "an NFS READ or WRITE in \"" + std::string(whole) + "\" is not of 1 to 1048576 bytes",
                "write nfs-read:4K=70");
  }
  if (entry.proc == TestProc::kDelay && entry.bytes > kMaxDelayUs) {
    return fail(kWhere, "the delay in \"" + std::string(whole) + "\" is above 10000000 microseconds",
                "use a shorter one");
  }
  if (entry.proc == TestProc::kCallback) {
    if (own_bytes) entry.bytes = static_cast<std::uint32_t>(*own_bytes);
    if (entry.bytes > kMaxCallsBack) {
      return fail(kWhere, "\"" + std::string(whole) + "\" asks for more than 1000 calls back", "use fewer");
    }
  }
  entry.weight = weight;
  return entry;
}

/// A recorded call without arguments is a NULL; every other takes the shape that CAPTURE gives it.
MixEntry entry_of(const CaptureShape& shape) {
  MixEntry entry;
  entry.weight = shape.calls;
  if (shape.arguments == 0) return entry;
  entry.proc = TestProc::kCapture;
  entry.arguments = shape.arguments;
  entry.results = shape.results;
  entry.read_chunk = shape.read_chunk;
  entry.write_capacity = shape.write_capacity;
  entry.written = shape.written;
  entry.reply_capacity = shape.reply_capacity;
  return entry;
}

}  // namespace

std::vector<std::string> proc_names() {
  std::vector<std::string> names;
  for (const auto& known : kProcs) names.emplace_back(known.name);
  return names;
}

std::vector<std::string> recorded_mix_names() {
  std::vector<std::string> names;
  for (const auto& known : kRecorded) names.emplace_back(known.name);
  return names;
}

Result<Mix> mix_of_proc(std::string_view name, std::uint32_t bytes, std::uint32_t delay_us) {
  const auto proc = find_proc(name);
  if (!proc) return unknown_proc(name);
  if (is_nfs(*proc) && (bytes == 0 || bytes > nfs::kMaxTransferBytes)) {
    return fail(kWhere, "an NFS READ or WRITE is of 1 to 1048576 bytes", "use --size 4K");
  }
  return Mix{std::string(name), {entry_of(*proc, bytes, delay_us)}};
}

Result<Mix> parse_mix(std::string_view text, std::uint32_t bytes, std::uint32_t delay_us) {
  Mix mix{std::string(text), {}};
  for (const auto& recorded : kRecorded) {
    if (recorded.name != text) continue;
    for (const CaptureShape& shape : recorded.shapes) mix.entries.push_back(entry_of(shape));
    return mix;
  }
  if (text.starts_with("kernel")) {
    return fail(kWhere, "\"" + mix.name + "\" is no recorded mix", "use one of " + joined(recorded_mix_names()));
  }
  for (std::string_view rest = text; mix.entries.size() < kMaxEntries;) {
    const std::size_t comma = rest.find(',');
    auto entry = parse_entry(rest.substr(0, comma), bytes, delay_us);
    if (!entry) return tl::unexpected(entry.error());
    mix.entries.push_back(*entry);
    if (comma == std::string_view::npos) return mix;
    rest = rest.substr(comma + 1);
  }
  return fail(kWhere, "the mix has more than 1000 entries", "use fewer");
}

std::vector<std::uint16_t> schedule(const Mix& mix) {
  std::uint64_t total = 0;
  std::uint64_t divisor = 0;
  for (const MixEntry& entry : mix.entries) {
    total += entry.weight;
    divisor = std::gcd(divisor, std::uint64_t{entry.weight});
  }
  if (divisor == 0) return {};
  // Exact where it fits; otherwise as close as whole turns come, and nothing left out.
  const std::uint64_t turns = std::min<std::uint64_t>(total / divisor, kMaxSchedule);
  std::vector<std::uint16_t> order;
  for (std::size_t i = 0; i < mix.entries.size(); ++i) {
    const std::uint64_t share = (mix.entries[i].weight * turns + total / 2) / total;
    order.insert(order.end(), std::max<std::uint64_t>(share, 1), static_cast<std::uint16_t>(i));
  }
  std::mt19937 fixed(20'049);  // NOLINT: two runs are to send the same
  std::shuffle(order.begin(), order.end(), fixed);
  return order;
}

std::uint32_t largest_bytes(const Mix& mix) {
  std::uint32_t largest = 0;
  for (const MixEntry& entry : mix.entries) {
    const bool moves = entry.proc != TestProc::kDelay && entry.proc != TestProc::kCallback;
    const std::uint32_t payload = moves ? entry.bytes : 0;
    largest = std::max({largest, payload, entry.arguments, entry.results, entry.read_chunk, entry.write_capacity,
                        entry.reply_capacity});
  }
  return largest;
}

}  // namespace rodeo::apps
