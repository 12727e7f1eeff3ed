// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll core.
//
// Read chunks → RDMA Reads into registered memory (RFC 8166 §3.4.5). Segments are read in list order, one Read each;
// RC completes them in order, so only the last carries the Call's token, and its completion says that all octets are
// there. A full send queue makes post() return false; called again, it goes on where it stopped.

#include <algorithm>

#include "engine/loop_context.h"

namespace rodeo {

template <dv::Provider P>
class ReadPuller {
 public:
  enum class Progress : std::uint8_t { kPosted, kNothingToPull, kQueueFull };

  explicit ReadPuller(LoopContext<P>& loop) noexcept : loop_(loop) {}

  /// Pulls `pull_left` octets of chunk `pull_chunk` to `pull_sink`.
  [[nodiscard]] Progress post(CallCore& call, const ReadChunk& chunk) noexcept {
    auto& link = *static_cast<Link<P>*>(call.link);
    if (call.pull_left == 0) return Progress::kNothingToPull;
    call.pulling = true;
    const auto order = call.chunks->reads.segments_of(chunk);
    for (; call.pull_segment < order.size(); ++call.pull_segment) {
      const Segment& segment = call.chunks->lists.read_segments[order[call.pull_segment]].target;
      const std::uint32_t length = std::min(segment.length, call.pull_left);
      if (length == 0) continue;
      const bool last = length == call.pull_left;
      const dv::Sge sge = loop_.sge(call.pull_sink, length);
      if (!link.qp->post_read({&sge, 1}, {segment.offset, segment.handle},
                              last ? make_token(TokenKind::kCall, call.index) : dv::kNoToken)) {
        return Progress::kQueueFull;
      }
      loop_.mark_dirty(link);
      loop_.count(Count::kReadBytesPulled, length);
      call.pull_sink += length;
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
