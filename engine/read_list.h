// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// From a flat Read list to Read chunks, and from chunks and a reduced Payload to the layout of the unreduced stream.
// Bounded arrays; the caller keeps them with the Call so that nothing is allocated.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/chunk_list.h"

namespace rodeo {

/// All segments of one Position.
struct ReadChunk {
  std::uint32_t position;
  std::uint32_t length;  // octets, sum over its segments
  std::uint16_t first;   // in ReadChunks::order
  std::uint16_t count;
};

/// Read chunks in ascending order of Position; within each, segments in list order (RFC 8166 §3.4.5).
struct ReadChunks {
  std::uint16_t count = 0;
  std::array<ReadChunk, kMaxReadSegments> chunks;
  std::array<std::uint8_t, kMaxReadSegments> order;  // indices into ChunkLists::reads()

  ReadChunks() noexcept {}

  [[nodiscard]] std::span<const ReadChunk> all() const noexcept { return {chunks.data(), count}; }
  [[nodiscard]] bool has_position_zero() const noexcept { return count != 0 && chunks[0].position == 0; }
  /// The chunks that hold single data items: all but the Position-zero one.
  [[nodiscard]] std::span<const ReadChunk> data() const noexcept { return all().subspan(has_position_zero() ? 1 : 0); }
  /// Octets of the Position-zero Read chunk, 0 when there is none.
  [[nodiscard]] std::uint32_t position_zero_bytes() const noexcept {
    return has_position_zero() ? chunks[0].length : 0;
  }
  /// Indices into ChunkLists::reads() of one chunk's segments, in the order to concatenate them.
  [[nodiscard]] std::span<const std::uint8_t> segments_of(const ReadChunk& chunk) const noexcept {
    return {order.data() + chunk.first, chunk.count};
  }
};

/// Groups a decoded Read list. Positions may come in any order, also interleaved.
void group_read_chunks(const ChunkLists& lists, ReadChunks& out) noexcept;

enum class PieceKind : std::uint8_t {
  kReduced,  // a range of the reduced stream: the inline Payload, or the Position-zero Read chunk
  kChunk,    // the whole of one data chunk
  kPad,      // 1 to 3 zero octets that the chunk left out
};

struct StreamPiece {
  std::uint32_t position;  // octets from the start of the unreduced stream
  std::uint32_t length;    // octets, never 0
  std::uint32_t source;    // kReduced: offset in the reduced stream; kChunk: index in ReadChunks::all(); kPad: 0
  PieceKind kind;
};
inline constexpr std::size_t kMaxStreamPieces = 3 * kMaxReadSegments + 1;

/// The unreduced stream in order, without gaps.
struct StreamLayout {
  std::uint32_t total = 0;  // octets
  std::uint16_t count = 0;
  std::array<StreamPiece, kMaxStreamPieces> pieces;

  StreamLayout() noexcept {}
  [[nodiscard]] std::span<const StreamPiece> all() const noexcept { return {pieces.data(), count}; }
};

/// Places the data chunks in a reduced stream of `reduced_bytes` octets. `rpc_header_bytes` is where the RPC arguments
/// start; before a Position-zero Read chunk has been pulled that is unknown, so pass kMinCallHeaderBytes then and check
/// again with data_after_header() later. Everything is validated here: no RDMA Read is needed to refuse a bad list.
[[nodiscard]] HeaderOutcome plan_stream(const ReadChunks& chunks, std::uint64_t reduced_bytes,
                                        std::uint64_t rpc_header_bytes, StreamLayout& out) noexcept;

/// Whether no data chunk lies inside the RPC header, which is never reducible.
[[nodiscard]] bool data_after_header(const ReadChunks& chunks, std::uint64_t rpc_header_bytes) noexcept;

}  // namespace rodeo
