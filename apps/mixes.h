// SPDX-License-Identifier: Apache-2.0
#pragma once

// What `rodeo bench` sends: shapes of calls and how often each comes.
// Runs on: control thread.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/test_protocol.h"
#include "pools/result.h"

namespace rodeo::apps {

/// One shape of call. For all but CAPTURE, `bytes` says it: payload octets, or microseconds of a DELAY.
struct MixEntry {
  TestProc proc = TestProc::kNull;
  std::uint32_t bytes = 0;
  std::uint32_t weight = 1;
  // CAPTURE alone; octets.
  std::uint32_t arguments = 0;       // XDR arguments, without what goes by Read chunk
  std::uint32_t results = 0;         // XDR results, without what comes by Write chunk
  std::uint32_t read_chunk = 0;      // 0: none
  std::uint32_t write_capacity = 0;  // of the Write chunk offered; 0: none
  std::uint32_t written = 0;         // of it, used
  std::uint32_t reply_capacity = 0;  // of the Reply chunk offered; 0: none

  bool operator==(const MixEntry&) const = default;
};

struct Mix {
  std::string name;  // as it was asked for
  std::vector<MixEntry> entries;
};

/// The names --proc takes, in the order of its help.
[[nodiscard]] std::vector<std::string> proc_names();
[[nodiscard]] std::vector<std::string> recorded_mix_names();

/// One procedure with payloads of `bytes`, or delays of `delay_us`.
[[nodiscard]] Result<Mix> mix_of_proc(std::string_view name, std::uint32_t bytes, std::uint32_t delay_us);

/// A recorded mix by name, or "null=80,fill:1048576=20": procedure, octets (`bytes` where there are none), weight.
[[nodiscard]] Result<Mix> parse_mix(std::string_view text, std::uint32_t bytes, std::uint32_t delay_us);

/// Indices of entries in the order in which they are to be sent, over and over: each as often as its weight says, well
/// mixed, the same every time.
[[nodiscard]] std::vector<std::uint16_t> schedule(const Mix& mix);

/// The largest payload, chunk or result of any entry.
[[nodiscard]] std::uint32_t largest_bytes(const Mix& mix);

}  // namespace rodeo::apps
