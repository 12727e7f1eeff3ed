// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any.
//
// One pass over untrusted octets. Each loop either consumes octets that were checked to be there or stops, so the work
// is bounded by the message length and by the fixed capacities. Nothing is read twice: what was validated is what was
// kept. All sums are 64-bit; a count is compared with what remains before the loop that trusts it.

#include "engine/chunk_list.h"

#include <algorithm>
#include <limits>

#include "pools/byte_order.h"

namespace rodeo {
namespace {

constexpr std::uint64_t kMaxTotal = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kFixedBytes = 16;
constexpr std::size_t kEmptyHeaderBytes = kFixedBytes + 12;

struct Cursor {
  const std::byte* at;
  const std::byte* end;

  [[nodiscard]] std::size_t left() const noexcept { return static_cast<std::size_t>(end - at); }
  std::uint32_t word() noexcept {
    const std::uint32_t value = load_be32(at);
    at += 4;
    return value;
  }
};

bool overflows(const Segment& segment) noexcept {
  std::uint64_t end;
  return __builtin_add_overflow(segment.offset, std::uint64_t{segment.length}, &end);
}

Segment load_segment(const std::byte* p) noexcept { return {load_be32(p), load_be32(p + 4), load_be64(p + 8)}; }

std::byte* store_segment(std::byte* p, const Segment& segment, std::uint32_t length) noexcept {
  store_be32(p, segment.handle);
  store_be32(p + 4, length);
  store_be64(p + 8, segment.offset);
  return p + kSegmentBytes;
}

/// An optional-data word: exactly 0 or 1 (RFC 4506 §4.19).
HeaderOutcome take_present(Cursor& in, bool& present) noexcept {
  if (in.left() < 4) return HeaderOutcome::kTruncated;
  const std::uint32_t word = in.word();
  present = word == 1;
  return word <= 1 ? HeaderOutcome::kOk : HeaderOutcome::kBadDiscriminator;
}

/// A counted array of plain segments. `room` is how many more fit at `into`.
HeaderOutcome take_segments(Cursor& in, Segment* into, std::size_t room, std::uint16_t& count,
                            std::uint64_t& total) noexcept {
  if (in.left() < 4) return HeaderOutcome::kTruncated;
  const std::uint32_t claimed = in.word();
  if (std::uint64_t{claimed} * kSegmentBytes > in.left()) return HeaderOutcome::kTruncated;
  if (claimed > room) return HeaderOutcome::kChunkListTooComplex;
  total = 0;
  for (std::uint32_t i = 0; i < claimed; ++i, in.at += kSegmentBytes) {
    into[i] = load_segment(in.at);
    if (overflows(into[i])) return HeaderOutcome::kSegmentOverflow;
    total += into[i].length;
  }
  count = static_cast<std::uint16_t>(claimed);
  return total > kMaxTotal ? HeaderOutcome::kSegmentOverflow : HeaderOutcome::kOk;
}

HeaderOutcome take_read_list(Cursor& in, ChunkLists& out) noexcept {
  for (;;) {
    bool present = false;
    if (const auto outcome = take_present(in, present); outcome != HeaderOutcome::kOk) return outcome;
    if (!present) return HeaderOutcome::kOk;
    if (in.left() < kReadItemBytes - 4) return HeaderOutcome::kTruncated;
    if (out.read_count == kMaxReadSegments) return HeaderOutcome::kChunkListTooComplex;
    const std::uint32_t position = in.word();
    const Segment segment = load_segment(in.at);
    in.at += kSegmentBytes;
    // Positions are 32-bit offsets in one stream, so all Read chunks together cannot be longer than that.
    out.read_total += segment.length;
    if (overflows(segment) || out.read_total > kMaxTotal) return HeaderOutcome::kSegmentOverflow;
    out.read_segments[out.read_count++] = {position, segment};
  }
}

HeaderOutcome take_write_list(Cursor& in, ChunkLists& out) noexcept {
  for (;;) {
    bool present = false;
    if (const auto outcome = take_present(in, present); outcome != HeaderOutcome::kOk) return outcome;
    if (!present) return HeaderOutcome::kOk;
    if (out.write_chunk_count == kMaxWriteChunks) return HeaderOutcome::kChunkListTooComplex;
    WriteChunk chunk{out.write_segment_count, 0, 0};
    const auto outcome = take_segments(in, out.write_segments.data() + chunk.first, kMaxWriteSegments - chunk.first,
                                       chunk.count, chunk.capacity);
    if (outcome != HeaderOutcome::kOk) return outcome;
    out.write_segment_count = static_cast<std::uint16_t>(out.write_segment_count + chunk.count);
    out.write_table[out.write_chunk_count++] = chunk;
  }
}

HeaderOutcome take_reply_chunk(Cursor& in, ChunkLists& out) noexcept {
  if (const auto outcome = take_present(in, out.reply_present); outcome != HeaderOutcome::kOk) return outcome;
  if (!out.reply_present) return HeaderOutcome::kOk;
  return take_segments(in, out.reply_segments.data(), kMaxReplySegments, out.reply_count, out.reply_capacity);
}

/// Steps over a counted array; false when it is not all there.
bool skip_segments(Cursor& in) noexcept {
  if (in.left() < 4) return false;
  const std::uint64_t bytes = std::uint64_t{in.word()} * kSegmentBytes;
  if (bytes > in.left()) return false;
  in.at += bytes;
  return true;
}

/// Copies a chunk with the lengths returned, or its own when `lengths` is null.
std::byte* put_segments(std::byte* p, std::span<const Segment> segments, const std::uint32_t* lengths) noexcept {
  store_be32(p, static_cast<std::uint32_t>(segments.size()));
  p += 4;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    p = store_segment(p, segments[i], lengths == nullptr ? segments[i].length : lengths[i]);
  }
  return p;
}

std::byte* put_word(std::byte* p, std::uint32_t word) noexcept {
  store_be32(p, word);
  return p + 4;
}

std::byte* put_write_list_and_reply(std::byte* p, const ChunkLists& lists, const ReturnedLengths* returned) noexcept {
  for (std::size_t i = 0; i < lists.write_chunk_count; ++i) {
    const std::uint32_t* lengths = returned == nullptr ? nullptr : returned->write.data() + lists.write_table[i].first;
    p = put_segments(put_word(p, 1), lists.write_chunk(i), lengths);
  }
  p = put_word(p, 0);
  if (!lists.reply_present) return put_word(p, 0);
  return put_segments(put_word(p, 1), lists.reply(), returned == nullptr ? nullptr : returned->reply.data());
}

bool sum_lengths(std::span<const Segment> segments, std::uint64_t& total) noexcept {
  total = 0;
  for (const Segment& segment : segments) {
    if (overflows(segment)) return false;
    total += segment.length;
  }
  return total <= kMaxTotal;
}

/// RFC 8166 §3.4.6: a segment is used only when the one before it is full; unused ones go back with length 0.
void spread(std::span<const Segment> chunk, std::uint64_t length, std::uint32_t* lengths) noexcept {
  for (std::size_t i = 0; i < chunk.size(); ++i) {
    const std::uint64_t part = std::min<std::uint64_t>(length, chunk[i].length);
    lengths[i] = static_cast<std::uint32_t>(part);
    length -= part;
  }
}

bool same_chunk(std::span<const Segment> offered, std::span<const Segment> returned) noexcept {
  return std::ranges::equal(offered, returned, [](const Segment& a, const Segment& b) {
    return a.handle == b.handle && a.offset == b.offset && b.length <= a.length;
  });
}

}  // namespace

bool ChunkLists::add_read(std::uint32_t position, const Segment& segment) noexcept {
  if (read_count == kMaxReadSegments || overflows(segment) || read_total + segment.length > kMaxTotal) return false;
  read_segments[read_count++] = {position, segment};
  read_total += segment.length;
  return true;
}

bool ChunkLists::add_write_chunk(std::span<const Segment> segments) noexcept {
  std::uint64_t total = 0;
  if (write_chunk_count == kMaxWriteChunks || segments.size() > kMaxWriteSegments - write_segment_count) return false;
  if (!sum_lengths(segments, total)) return false;
  std::ranges::copy(segments, write_segments.data() + write_segment_count);
  write_table[write_chunk_count++] = {write_segment_count, static_cast<std::uint16_t>(segments.size()), total};
  write_segment_count = static_cast<std::uint16_t>(write_segment_count + segments.size());
  return true;
}

bool ChunkLists::set_reply(std::span<const Segment> segments) noexcept {
  std::uint64_t total = 0;
  if (segments.size() > kMaxReplySegments || !sum_lengths(segments, total)) return false;
  std::ranges::copy(segments, reply_segments.data());
  reply_present = true;
  reply_count = static_cast<std::uint16_t>(segments.size());
  reply_capacity = total;
  return true;
}

void ReturnedLengths::clear(const ChunkLists& call) noexcept {
  std::fill_n(write.data(), call.write_segment_count, 0U);
  std::fill_n(reply.data(), call.reply_count, 0U);
}

bool ReturnedLengths::fill_write(const ChunkLists& call, std::size_t chunk_index, std::uint64_t length) noexcept {
  if (chunk_index >= call.write_chunk_count || length > call.write_table[chunk_index].capacity) return false;
  spread(call.write_chunk(chunk_index), length, write.data() + call.write_table[chunk_index].first);
  return true;
}

bool ReturnedLengths::fill_reply(const ChunkLists& call, std::uint64_t length) noexcept {
  if (length > call.reply_capacity) return false;
  spread(call.reply(), length, reply.data());
  return true;
}

HeaderOutcome decode_chunk_lists(std::span<const std::byte> bytes, ChunkLists& out, std::size_t& consumed) noexcept {
  out.clear();
  Cursor in{bytes.data(), bytes.data() + bytes.size()};
  if (const auto outcome = take_read_list(in, out); outcome != HeaderOutcome::kOk) return outcome;
  if (const auto outcome = take_write_list(in, out); outcome != HeaderOutcome::kOk) return outcome;
  if (const auto outcome = take_reply_chunk(in, out); outcome != HeaderOutcome::kOk) return outcome;
  consumed = bytes.size() - in.left();
  return HeaderOutcome::kOk;
}

bool scan_chunk_lists(std::span<const std::byte> bytes, ChunkListShape& shape) noexcept {
  shape = {};
  Cursor in{bytes.data(), bytes.data() + bytes.size()};
  bool present = false;
  for (;;) {
    if (take_present(in, present) != HeaderOutcome::kOk) return false;
    if (!present) break;
    if (in.left() < kReadItemBytes - 4) return false;
    in.at += kReadItemBytes - 4;
    shape.reads_present = true;
  }
  for (;;) {
    if (take_present(in, present) != HeaderOutcome::kOk) return false;
    if (!present) break;
    if (!skip_segments(in)) return false;
    shape.writes_present = true;
  }
  if (take_present(in, shape.reply_present) != HeaderOutcome::kOk) return false;
  if (shape.reply_present && !skip_segments(in)) return false;
  shape.consumed = bytes.size() - in.left();
  return true;
}

std::size_t reply_header_size(const ChunkLists& call) noexcept {
  std::size_t size = kEmptyHeaderBytes + std::size_t{call.write_chunk_count} * 8;
  size += std::size_t{call.write_segment_count} * kSegmentBytes;
  if (call.reply_present) size += 4 + std::size_t{call.reply_count} * kSegmentBytes;
  return size;
}

std::size_t header_size(const ChunkLists& lists) noexcept {
  return reply_header_size(lists) + std::size_t{lists.read_count} * kReadItemBytes;
}

std::size_t encode_chunk_lists(std::byte* out, const ChunkLists& lists) noexcept {
  std::byte* p = out;
  for (const ReadSegment& read : lists.reads()) {
    p = put_word(put_word(p, 1), read.position);
    p = store_segment(p, read.target, read.target.length);
  }
  p = put_write_list_and_reply(put_word(p, 0), lists, nullptr);
  return static_cast<std::size_t>(p - out);
}

std::size_t encode_returned_lists(std::byte* out, const ChunkLists& call, const ReturnedLengths& returned) noexcept {
  // RFC 8166 §4.3.1: the Read list is absent in every Reply.
  std::byte* p = put_write_list_and_reply(put_word(out, 0), call, &returned);
  return static_cast<std::size_t>(p - out);
}

HeaderOutcome check_returned_lists(const ChunkLists& call, const ChunkLists& reply) noexcept {
  if (reply.write_chunk_count != 0) {
    if (reply.write_chunk_count != call.write_chunk_count) return HeaderOutcome::kReturnedListMismatch;
    for (std::size_t i = 0; i < call.write_chunk_count; ++i) {
      if (!same_chunk(call.write_chunk(i), reply.write_chunk(i))) return HeaderOutcome::kReturnedListMismatch;
    }
  }
  if (reply.reply_present && !(call.reply_present && same_chunk(call.reply(), reply.reply()))) {
    return HeaderOutcome::kReturnedListMismatch;
  }
  return HeaderOutcome::kOk;
}

std::optional<std::uint32_t> only_handle(const ChunkLists& call) noexcept {
  std::optional<std::uint32_t> handle;
  const auto agrees = [&handle](std::uint32_t candidate) noexcept {
    if (!handle) handle = candidate;
    return *handle == candidate;
  };
  const std::span<const Segment> writes{call.write_segments.data(), call.write_segment_count};
  const bool one = std::ranges::all_of(call.reads(), agrees, [](const ReadSegment& r) { return r.target.handle; }) &&
                   std::ranges::all_of(writes, agrees, &Segment::handle) &&
                   std::ranges::all_of(call.reply(), agrees, &Segment::handle);
  return one ? handle : std::nullopt;
}

}  // namespace rodeo
