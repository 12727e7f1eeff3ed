// SPDX-License-Identifier: Apache-2.0
#include "engine/binding.h"

#include <cstring>

#include "engine/rpc_message.h"
#include "engine/transport_header.h"
#include "engine/xdr_pad.h"

namespace rodeo {

Procedure serve(const ProcedureBinding& binding, Handler handler, void* context) {
  Procedure procedure;
  procedure.number = binding.number;
  procedure.name = binding.name;
  procedure.handler = handler;
  procedure.context = context;
  procedure.max_read_chunks = static_cast<std::uint32_t>(binding.arguments.size());
  procedure.max_write_chunks = static_cast<std::uint32_t>(binding.results.size());
  return procedure;
}

BoundCall::BoundCall(const ProcedureBinding& binding, const CallTarget& target, std::span<std::byte> room) noexcept
    : binding_(binding), room_(room), writer_(room), max_results_(binding.max_results) {
  request_.target = &target;
}

void BoundCall::eligible_argument(RegisteredBytes data) noexcept {
  if (source_count_ == binding_.arguments.size() || source_count_ == kMostItems) {
    outcome_ = Outcome::kNotEligible;
  } else if (data.size() > binding_.arguments[source_count_]) {
    outcome_ = Outcome::kTooLong;
  } else {
    writer_.u32(static_cast<std::uint32_t>(data.size()));
    sources_[source_count_++] = {writer_.size(), data};
  }
}

void BoundCall::eligible_result(RegisteredBytes into) noexcept {
  if (sink_count_ == binding_.results.size() || sink_count_ == kMostItems) {
    outcome_ = Outcome::kNotEligible;
  } else if (into.size() > binding_.results[sink_count_]) {
    outcome_ = Outcome::kTooLong;
  } else {
    sinks_[sink_count_++] = into;
  }
}

BoundCall::Outcome BoundCall::plan(const Connection& connection) noexcept {
  if (outcome_ != Outcome::kPlanned) return outcome_;
  if (!writer_.ok()) return outcome_ = Outcome::kNoRoom;
  // The Reply first, as its chunks take room in the Call (RFC 8166 §4.3.3).
  constexpr std::size_t kWriteChunkBytes = 8 + kSegmentBytes;
  constexpr std::size_t kReplyChunkBytes = 4 + kSegmentBytes;
  std::size_t all_inline = max_results_;
  for (std::size_t i = 0; i < sink_count_; ++i) all_inline += xdr_padded(sinks_[i].size());
  std::size_t header = kMinHeaderBytes;
  if (header + kAcceptedReplyBytes + all_inline <= connection.reply_threshold()) {
    request_.max_results = all_inline;
  } else {
    request_.sinks = std::span(sinks_).first(sink_count_);
    request_.max_results = max_results_;
    header += sink_count_ * kWriteChunkBytes;
    if (header + kAcceptedReplyBytes + max_results_ > connection.reply_threshold()) header += kReplyChunkBytes;
  }
  std::size_t unreduced = writer_.size();
  for (std::size_t i = 0; i < source_count_; ++i) unreduced += xdr_padded(sources_[i].data.size());
  const bool fits = header + request_.target->rpc_header().size() + unreduced <= connection.call_threshold();
  if (fits && unreduced <= room_.size()) {
    put_inline(unreduced);
    request_.arguments = room_.first(unreduced);
  } else {
    request_.arguments = writer_.written();
    request_.sources = std::span(sources_).first(source_count_);
  }
  return outcome_;
}

/// Makes room for the items from the back, so that nothing is overwritten.
void BoundCall::put_inline(std::size_t unreduced) noexcept {
  std::size_t end = writer_.size();
  std::size_t to = unreduced;
  for (std::size_t i = source_count_; i != 0; --i) {
    const BulkSource& source = sources_[i - 1];
    const std::size_t behind = end - source.arguments_offset;
    to -= behind;
    std::memmove(room_.data() + to, room_.data() + source.arguments_offset, behind);
    const std::size_t length = source.data.size();
    to -= xdr_padded(length);
    if (length != 0) std::memcpy(room_.data() + to, source.data.data(), length);
    std::memset(room_.data() + to + length, 0, xdr_pad(length));
    end = source.arguments_offset;
  }
}

std::span<const std::byte> BoundResults::eligible_result() noexcept {
  const std::uint32_t length = reader_.u32();
  if (!reader_.ok() || length == 0) return {};
  if (request_.sinks.empty()) return reader_.opaque_fixed(length);
  // RFC 8166 §4.3.2: a chunk that no result took is for the next one.
  if (next_ < reply_.written.size() && reply_.written[next_] == length) return request_.sinks[next_++].first(length);
  ok_ = false;
  return {};
}

}  // namespace rodeo
