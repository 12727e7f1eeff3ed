// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// Read chunks → RDMA Reads into registered memory (RFC 8166 §3.4.5). Segments are read in list order, one Read each, or
// one for each piece of memory that a segment goes to; RC completes them in order, so only the last carries the Call's
// token, and its completion says that all octets are there. A full send queue makes post() return false; called again,
// it goes on where it stopped.

#include <algorithm>

#include "engine/loop_context.h"

namespace rodeo {

template <dv::Provider P>
class ReadPuller {
 public:
  enum class Progress : std::uint8_t { kPosted, kNothingToPull, kQueueFull };

  explicit ReadPuller(LoopContext<P>& loop) noexcept : loop_(loop) {}

  /// Pulls `pull_left` octets of chunk `pull_chunk` to `pull_sink` and `pull_more`, which hold them.
  [[nodiscard]] Progress post(CallCore& call, const ReadChunk& chunk) noexcept {
    auto& link = *static_cast<Link<P>*>(call.link);
    if (call.pull_left == 0) return Progress::kNothingToPull;
    call.pulling = true;
    const auto order = call.chunks->reads.segments_of(chunk);
    while (call.pull_segment < order.size()) {
      const Segment& segment = call.chunks->lists.read_segments[order[call.pull_segment]].target;
      const std::uint32_t wanted = std::min(segment.length - call.pull_segment_done, call.pull_left);
      if (wanted == 0) {
        ++call.pull_segment;
        call.pull_segment_done = 0;
        continue;
      }
      if (call.pull_sink.empty()) {
        call.pull_sink = call.pull_more.front();
        call.pull_more = call.pull_more.subspan(1);
        continue;
      }
      const auto length = static_cast<std::uint32_t>(std::min<std::size_t>(wanted, call.pull_sink.size()));
      const bool last = length == call.pull_left;
      const dv::Sge sge = loop_.sge(call.pull_sink.data(), length);
      if (!link.qp->post_read({&sge, 1}, {segment.offset + call.pull_segment_done, segment.handle},
                              last ? make_token(TokenKind::kCall, call.index) : dv::kNoToken)) {
        return Progress::kQueueFull;
      }
      loop_.mark_dirty(link);
      loop_.count(Count::kReadBytesPulled, length);
      call.pull_sink = call.pull_sink.subspan(length);
      call.pull_segment_done += length;
      call.pull_left -= length;
      if (last) {
        ++call.tokens_out;
        return Progress::kPosted;
      }
    }
    return Progress::kPosted;  // cannot be: a chunk's segments sum up to its length, which pull_left never exceeds
  }

 private:
  LoopContext<P>& loop_;
};

}  // namespace rodeo
