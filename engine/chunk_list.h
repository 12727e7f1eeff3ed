// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: any.
// The three chunk lists of a header, decoded into private memory of fixed capacity. A peer that rewrites the receive
// buffer after validation therefore gains nothing, and a list that does not fit is refused instead of allocated for.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/header_outcome.h"

namespace rodeo {

/// One contiguous range of the Requester's memory. Handle and Offset are opaque to us.
struct Segment {
  std::uint32_t handle;
  std::uint32_t length;
  std::uint64_t offset;
  bool operator==(const Segment&) const = default;
};
inline constexpr std::size_t kSegmentBytes = 16;  // on the wire: handle, length, offset

/// A segment of the Read list. Segments of equal Position form one Read chunk.
struct ReadSegment {
  std::uint32_t position;
  Segment target;
  bool operator==(const ReadSegment&) const = default;
};
inline constexpr std::size_t kReadItemBytes = 24;  // on the wire: discriminator, Position, segment

inline constexpr std::size_t kMaxReadSegments = 64;
inline constexpr std::size_t kMaxWriteChunks = 16;
inline constexpr std::size_t kMaxWriteSegments = 64;
inline constexpr std::size_t kMaxReplySegments = 64;

/// Segments [first, first + count) of ChunkLists::write_segments. Count 0 is an empty chunk.
struct WriteChunk {
  std::uint16_t first;
  std::uint16_t count;
  std::uint64_t capacity;  // octets, sum of the segment lengths
};

/// Only the first *_count elements of each array mean anything; the rest is left uninitialised on purpose.
struct ChunkLists {
  std::uint16_t read_count = 0;
  std::uint16_t write_chunk_count = 0;
  std::uint16_t write_segment_count = 0;
  std::uint16_t reply_count = 0;
  bool reply_present = false;
  std::uint64_t read_total = 0;      // octets of all Read chunks together
  std::uint64_t reply_capacity = 0;  // octets; in a decoded Reply the octets returned
  std::array<ReadSegment, kMaxReadSegments> read_segments;
  std::array<WriteChunk, kMaxWriteChunks> write_table;
  std::array<Segment, kMaxWriteSegments> write_segments;
  std::array<Segment, kMaxReplySegments> reply_segments;

  ChunkLists() noexcept {}  // not defaulted: value-initialisation must not clear kilobytes

  /// Empties all three lists. Resets counts only.
  void clear() noexcept {
    read_count = write_chunk_count = write_segment_count = reply_count = 0;
    reply_present = false;
    read_total = reply_capacity = 0;
  }

  [[nodiscard]] bool empty() const noexcept { return read_count == 0 && write_chunk_count == 0 && !reply_present; }
  [[nodiscard]] std::span<const ReadSegment> reads() const noexcept { return {read_segments.data(), read_count}; }
  [[nodiscard]] std::span<const WriteChunk> write_chunks() const noexcept {
    return {write_table.data(), write_chunk_count};
  }
  /// Segments of Write chunk `index`, which must be below write_chunk_count.
  [[nodiscard]] std::span<const Segment> write_chunk(std::size_t index) const noexcept {
    return {write_segments.data() + write_table[index].first, write_table[index].count};
  }
  [[nodiscard]] std::span<const Segment> reply() const noexcept { return {reply_segments.data(), reply_count}; }

  /// For the Requester that builds a Call. False, with nothing changed, when the list is full or a sum overflows.
  [[nodiscard]] bool add_read(std::uint32_t position, const Segment& segment) noexcept;
  [[nodiscard]] bool add_write_chunk(std::span<const Segment> segments) noexcept;
  [[nodiscard]] bool set_reply(std::span<const Segment> segments) noexcept;
};

/// Octets a Responder placed in each segment it was offered, parallel to the Call's arrays. Call clear() first.
struct ReturnedLengths {
  std::array<std::uint32_t, kMaxWriteSegments> write;
  std::array<std::uint32_t, kMaxReplySegments> reply;

  ReturnedLengths() noexcept {}

  /// Zero for every segment the Call offered: nothing was returned yet.
  void clear(const ChunkLists& call) noexcept;
  /// Spreads `length` octets over a chunk in segment order. False when the chunk is too small; nothing is changed then.
  [[nodiscard]] bool fill_write(const ChunkLists& call, std::size_t chunk_index, std::uint64_t length) noexcept;
  [[nodiscard]] bool fill_reply(const ChunkLists& call, std::uint64_t length) noexcept;
};

/// Decodes the Read list, Write list and Reply chunk that start at `bytes`, clearing `out` first. On kOk `consumed` is
/// the octets they take. The lists are checked for form and sums only; what they mean depends on the message.
[[nodiscard]] HeaderOutcome decode_chunk_lists(std::span<const std::byte> bytes, ChunkLists& out,
                                               std::size_t& consumed) noexcept;

/// Walks the same lists without keeping them. Reports which are present; false when they are malformed.
struct ChunkListShape {
  bool reads_present = false;
  bool writes_present = false;
  bool reply_present = false;
  std::size_t consumed = 0;
};
[[nodiscard]] bool scan_chunk_lists(std::span<const std::byte> bytes, ChunkListShape& shape) noexcept;

/// Octets of a whole header (fixed words included) that carries these lists.
[[nodiscard]] std::size_t header_size(const ChunkLists& lists) noexcept;
/// Same for the Reply to a Call with these lists: Read chunks are never echoed.
[[nodiscard]] std::size_t reply_header_size(const ChunkLists& call) noexcept;

/// Encodes the lists at `out`, which has room for them. Returns the octets written.
std::size_t encode_chunk_lists(std::byte* out, const ChunkLists& lists) noexcept;
/// Encodes them as a Reply returns them: no Read list, all else copied with the lengths returned.
std::size_t encode_returned_lists(std::byte* out, const ChunkLists& call, const ReturnedLengths& returned) noexcept;

/// For the Requester: whether a Reply's lists are the Call's, with no length above what was offered. A Write list or
/// Reply chunk that did not come back at all is tolerated, as some Responders leave them out.
[[nodiscard]] HeaderOutcome check_returned_lists(const ChunkLists& call, const ChunkLists& reply) noexcept;

/// The handle that every segment of the Call carries, in all lists, when there is exactly one: the only case in which a
/// Responder may invalidate it with its Reply. Empty segments count, as they name a handle too.
[[nodiscard]] std::optional<std::uint32_t> only_handle(const ChunkLists& call) noexcept;

}  // namespace rodeo
