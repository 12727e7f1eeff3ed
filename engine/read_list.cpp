// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
//
// Positions count octets of the unreduced stream, pads included (RFC 8166 §3.4.5). We walk the data chunks in ascending
// order and copy, between them, as much of the reduced stream as the next Position asks for. A chunk whose length is
// not a multiple of 4 left its XDR pad out; the pad is supplied here, or later Positions would not line up.

#include "engine/read_list.h"

#include <limits>

#include "engine/xdr_pad.h"

namespace rodeo {
namespace {

void append(StreamLayout& out, PieceKind kind, std::uint64_t position, std::uint64_t length,
            std::uint64_t source) noexcept {
  if (length == 0) return;
  out.pieces[out.count++] = {static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(length),
                             static_cast<std::uint32_t>(source), kind};
}

}  // namespace

void group_read_chunks(const ChunkLists& lists, ReadChunks& out) noexcept {
  const auto reads = lists.reads();
  // Stable insertion sort: Requesters send ascending Positions, for which it is one comparison per segment.
  for (std::size_t i = 0; i < reads.size(); ++i) {
    std::size_t at = i;
    for (; at > 0 && reads[out.order[at - 1]].position > reads[i].position; --at) out.order[at] = out.order[at - 1];
    out.order[at] = static_cast<std::uint8_t>(i);
  }
  out.count = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    const ReadSegment& read = reads[out.order[i]];
    if (out.count == 0 || out.chunks[out.count - 1U].position != read.position) {
      out.chunks[out.count++] = {read.position, 0, static_cast<std::uint16_t>(i), 0};
    }
    ReadChunk& chunk = out.chunks[out.count - 1U];
    chunk.length += read.target.length;  // cannot wrap: the decoder bounds the sum over the whole list
    ++chunk.count;
  }
}

HeaderOutcome plan_stream(const ReadChunks& chunks, std::uint64_t reduced_bytes, std::uint64_t rpc_header_bytes,
                          StreamLayout& out) noexcept {
  out.total = 0;
  out.count = 0;
  if (!data_after_header(chunks, rpc_header_bytes)) return HeaderOutcome::kPositionInRpcHeader;
  std::uint64_t position = 0;  // in the unreduced stream
  std::uint64_t taken = 0;     // of the reduced stream
  std::uint64_t index = chunks.has_position_zero() ? 1 : 0;
  for (const ReadChunk& chunk : chunks.data()) {
    if (chunk.position < position) return HeaderOutcome::kPositionOverlap;
    const std::uint64_t gap = chunk.position - position;
    if (gap > reduced_bytes - taken) return HeaderOutcome::kPositionBeyondEnd;
    append(out, PieceKind::kReduced, position, gap, taken);
    taken += gap;
    position = chunk.position;
    append(out, PieceKind::kChunk, position, chunk.length, index++);
    position += chunk.length;
    const std::uint64_t pad = xdr_pad(chunk.length);
    append(out, PieceKind::kPad, position, pad, 0);
    position += pad;
  }
  const std::uint64_t total = position + (reduced_bytes - taken);
  if (total > std::numeric_limits<std::uint32_t>::max()) return HeaderOutcome::kSegmentOverflow;
  append(out, PieceKind::kReduced, position, reduced_bytes - taken, taken);
  out.total = static_cast<std::uint32_t>(total);
  return HeaderOutcome::kOk;
}

bool data_after_header(const ReadChunks& chunks, std::uint64_t rpc_header_bytes) noexcept {
  const auto data = chunks.data();
  return data.empty() || data.front().position >= rpc_header_bytes;
}

}  // namespace rodeo
