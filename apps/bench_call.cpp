// SPDX-License-Identifier: Apache-2.0
// Hot path, save for construction. Runs on: poll core.
#include "apps/bench_call.h"

#include <algorithm>
#include <cstring>

#include "apps/pattern.h"
#include "engine/xdr_pad.h"
#include "engine/xdr_writer.h"

namespace rodeo::apps {
namespace {

static_assert(std::size_t{kVariants} * kVariantStride <= kPatternPeriod);

constexpr std::size_t kStampBytes = 8;  // at the head of payloads that lie in the arguments
constexpr std::size_t kCaptureFixedBytes = 12;
/// status, post_op_attr, count, eof, and the length word of data<>
constexpr std::size_t kNfsReadResults = 4 + 4 + nfs::kFattr3Bytes + 12;
/// status, wcc_data, count, committed, verifier
constexpr std::size_t kNfsWriteResults = 4 + 28 + 4 + nfs::kFattr3Bytes + 16;

bool same(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

CallTarget target_of(TestProc proc, const Credential& credential) {
  if (!is_nfs(proc)) return {kTestProgram, kTestVersion, static_cast<std::uint32_t>(proc), credential};
  const auto number = proc == TestProc::kNfsRead ? nfs::NfsProc3::kRead : nfs::NfsProc3::kWrite;
  return {nfs::kNfsProgram, nfs::kNfsVersion, static_cast<std::uint32_t>(number), credential};
}

bool replies_with_checksum(const MixEntry& entry) {
  return entry.proc == TestProc::kChecksum || entry.proc == TestProc::kLongCall ||
         (entry.proc == TestProc::kCapture && entry.results >= 8);
}

}  // namespace

CallShape::CallShape(const MixEntry& from, const Credential& credential, RegisteredBytes pattern_bytes, bool verifying,
                     const nfs::FileHandle& file)
    : entry(from), target(target_of(from.proc, credential)), nfs_file(file), pattern(pattern_bytes) {
  switch (entry.proc) {
    case TestProc::kEcho:
      arguments_bytes = 4 + xdr_padded(entry.bytes);
      payload_bytes = 2 * entry.bytes;
      break;
    case TestProc::kLongCall:
      arguments_bytes = 4 + xdr_padded(entry.bytes);
      payload_bytes = entry.bytes;
      break;
    case TestProc::kChecksum:
      arguments_bytes = 4;
      payload_bytes = source_bytes = entry.bytes;
      break;
    case TestProc::kMirror:
      arguments_bytes = 4;
      source_bytes = sink_bytes = entry.bytes;
      payload_bytes = 2 * entry.bytes;
      break;
    case TestProc::kFill:
      arguments_bytes = 12;
      payload_bytes = sink_bytes = entry.bytes;
      break;
    case TestProc::kLongReply:
      arguments_bytes = 12;
      payload_bytes = entry.bytes;
      break;
    case TestProc::kNfsRead:
      arguments_bytes = 4 + xdr_padded(file.size) + 12;
      payload_bytes = sink_bytes = entry.bytes;
      break;
    case TestProc::kNfsWrite:
      arguments_bytes = 4 + xdr_padded(file.size) + 20;
      payload_bytes = source_bytes = entry.bytes;
      break;
    case TestProc::kDelay:
    case TestProc::kCallback:
      arguments_bytes = 4;
      break;
    case TestProc::kCapture:
      arguments_bytes = std::max<std::size_t>(entry.arguments, kCaptureFixedBytes);
      source_bytes = entry.read_chunk;
      sink_bytes = entry.write_capacity;
      payload_bytes = entry.arguments + entry.results + entry.read_chunk + entry.written;
      break;
    default:
      break;
  }
  if (!verifying || !replies_with_checksum(entry)) return;
  const std::size_t summed = entry.proc == TestProc::kCapture ? entry.read_chunk : entry.bytes;
  for (std::uint32_t variant = 0; variant < kVariants; ++variant) {
    checksums.push_back(checksum(pattern.subspan(std::size_t{variant} * kVariantStride, summed)));
  }
}

PreparedCall::PreparedCall(const CallShape& shape, RegisteredBytes sink, ReplyHandler on_reply, void* context)
    : proc_(shape.entry.proc),
      payload_bytes_(shape.payload_bytes),
      shape_(shape),
      arguments_(std::make_unique<std::byte[]>(shape.arguments_bytes)),
      sink_(sink.first(shape.sink_bytes)) {
  const MixEntry& entry = shape.entry;
  XdrWriter writer({arguments_.get(), shape.arguments_bytes});
  switch (proc_) {
    case TestProc::kEcho:
    case TestProc::kLongCall:
      writer.opaque(shape.pattern.first(entry.bytes));
      request_.max_results = proc_ == TestProc::kEcho ? shape.arguments_bytes : 12;
      request_.force_long_call = proc_ == TestProc::kLongCall;
      if (!shape.checksums.empty()) stamped_checksum_ = shape.checksums.front();
      break;
    case TestProc::kChecksum:
    case TestProc::kMirror:
      writer.u32(entry.bytes);
      source_.arguments_offset = 4;
      request_.max_results = proc_ == TestProc::kChecksum ? 12 : 4;
      break;
    case TestProc::kFill:
    case TestProc::kLongReply:
      writer.u64(0);
      writer.u32(entry.bytes);
      request_.max_results = proc_ == TestProc::kFill ? 4 : 4 + xdr_padded(entry.bytes);
      break;
    case TestProc::kNfsRead:
    case TestProc::kNfsWrite:
      encode_nfs(writer);
      break;
    case TestProc::kDelay:
    case TestProc::kCallback:
      writer.u32(entry.bytes);
      break;
    case TestProc::kCapture: {
      const std::uint32_t bulk_word = entry.written == 0 ? 0 : 4;
      writer.u32(entry.results - std::min(entry.results, bulk_word));
      writer.u32(entry.written);
      writer.u32(entry.read_chunk);
      source_.arguments_offset = kCaptureFixedBytes;
      // What the recorded Requester allowed for, so that a Reply chunk is offered where it offered one.
      request_.max_results = std::max(entry.results, entry.reply_capacity);
      break;
    }
    default:
      break;
  }
  request_.target = &shape.target;
  request_.arguments = {arguments_.get(), shape.arguments_bytes};
  source_.data = shape.pattern.first(shape.source_bytes);
  if (shape.source_bytes != 0) request_.sources = {&source_, 1};
  if (shape.sink_bytes != 0) request_.sinks = {&sink_, 1};
  request_.on_reply = on_reply;
  request_.context = context;
}

void PreparedCall::renew_contents() noexcept {
  variant_ = variant_ + 1 == kVariants ? 0 : variant_ + 1;
  start_ = variant_ * kVariantStride;
  switch (proc_) {
    case TestProc::kEcho:
    case TestProc::kLongCall:
      if (shape_.entry.bytes >= kStampBytes) stamp();
      return;
    case TestProc::kChecksum:
    case TestProc::kMirror:
      source_.data = shape_.pattern.subspan(start_, shape_.source_bytes);
      return;
    case TestProc::kFill:
    case TestProc::kLongReply:
      store_be64(arguments_.get(), start_);
      return;
    case TestProc::kNfsRead:
    case TestProc::kNfsWrite:
      return renew_nfs();
    case TestProc::kCapture:
      if (shape_.source_bytes != 0) source_.data = shape_.pattern.subspan(start_, shape_.source_bytes);
      if (capture_says_start()) store_be32(arguments_.get() + kCaptureFixedBytes, start_);
      return;
    default:
      return;
  }
}

void PreparedCall::encode_nfs(XdrWriter& writer) noexcept {
  const std::uint32_t bytes = shape_.entry.bytes;
  encode(writer, shape_.nfs_file);
  writer.u64(0);
  writer.u32(bytes);
  request_.max_results = kNfsReadResults;
  if (proc_ == TestProc::kNfsRead) return;
  writer.enumeration(nfs::StableHow::kUnstable);
  writer.u32(bytes);
  source_.arguments_offset = writer.size();
  request_.max_results = kNfsWriteResults;
}

/// Another place of the file, whose contents there are the pattern's.
void PreparedCall::renew_nfs() noexcept {
  const std::uint64_t offset = std::uint64_t{variant_} * nfs_stride(shape_.entry.bytes);
  start_ = static_cast<std::uint32_t>(offset % kPatternPeriod);
  store_be64(arguments_.get() + 4 + xdr_padded(shape_.nfs_file.size), offset);
  if (proc_ == TestProc::kNfsWrite) source_.data = shape_.pattern.subspan(start_, shape_.source_bytes);
}

/// Counts up the payload's first word, in the arguments and in the checksum that is expected.
void PreparedCall::stamp() noexcept {
  std::uint64_t word;
  std::memcpy(&word, arguments_.get() + 4, kStampBytes);
  stamped_checksum_ += checksum_term(0, word + 1) - checksum_term(0, word);
  ++word;
  std::memcpy(arguments_.get() + 4, &word, kStampBytes);
}

/// Without room for it the pattern in the results begins at 0 always.
bool PreparedCall::capture_says_start() const noexcept { return shape_.arguments_bytes >= kCaptureFixedBytes + 4; }

bool PreparedCall::verify_contents(const Reply& reply) const noexcept {
  const std::uint32_t bytes = shape_.entry.bytes;
  switch (proc_) {
    case TestProc::kEcho:
      return same(reply.results, request_.arguments);
    case TestProc::kChecksum:
      return verify_checksum(reply, shape_.checksums[variant_]);
    case TestProc::kLongCall:
      return verify_checksum(reply, stamped_checksum_);
    case TestProc::kFill:
    case TestProc::kMirror:
      return reply.results.size() == 4 && verify_written(reply, 0, start_, bytes);
    case TestProc::kLongReply:
      return reply.results.size() == 4 + xdr_padded(bytes) && load_be32(reply.results.data()) == bytes &&
             same(reply.results.subspan(4, bytes), shape_.pattern.subspan(start_, bytes));
    case TestProc::kCapture:
      return verify_capture(reply);
    case TestProc::kNfsRead:
    case TestProc::kNfsWrite:
      return verify_nfs(reply);
    default:
      return reply.results.empty();
  }
}

bool PreparedCall::verify_checksum(const Reply& reply, std::uint64_t expected_sum) const noexcept {
  return reply.results.size() == 12 && load_be32(reply.results.data()) == shape_.entry.bytes &&
         load_be64(reply.results.data() + 4) == expected_sum;
}

/// A result that came by Write chunk: its length word at `length_at` of the results, its octets in the sink.
bool PreparedCall::verify_written(const Reply& reply, std::size_t length_at, std::uint32_t start,
                                  std::uint32_t length) const noexcept {
  if (load_be32(reply.results.data() + length_at) != length) return false;
  if (sink_.empty()) return length == 0;
  return reply.written.size() == 1 && reply.written[0] == length &&
         same(sink_.first(length), shape_.pattern.subspan(start, length));
}

bool PreparedCall::verify_capture(const Reply& reply) const noexcept {
  const MixEntry& entry = shape_.entry;
  const std::size_t bulk_word = entry.written == 0 ? 0 : 4;
  const std::size_t fixed = entry.results - std::min<std::size_t>(entry.results, bulk_word);
  if (reply.results.size() != xdr_padded(fixed) + bulk_word) return false;
  const std::uint32_t start = capture_says_start() ? start_ : 0;
  const auto pattern = shape_.pattern.subspan(start, fixed);
  const std::size_t sum_bytes = fixed >= 8 ? 8 : 0;
  if (sum_bytes != 0 && load_be64(reply.results.data()) != shape_.checksums[variant_]) return false;
  if (!same(reply.results.subspan(sum_bytes, fixed - sum_bytes), pattern.subspan(sum_bytes))) return false;
  return bulk_word == 0 || verify_written(reply, xdr_padded(fixed), start, entry.written);
}

bool PreparedCall::verify_nfs(const Reply& reply) const noexcept {
  const std::uint32_t bytes = shape_.entry.bytes;
  if (proc_ == TestProc::kNfsRead) {
    return reply.results.size() == kNfsReadResults && load_be32(reply.results.data()) == 0 &&
           verify_written(reply, kNfsReadResults - 4, start_, bytes);
  }
  return reply.results.size() == kNfsWriteResults && load_be32(reply.results.data()) == 0 &&
         load_be32(reply.results.data() + kNfsWriteResults - 16) == bytes;
}

}  // namespace rodeo::apps
