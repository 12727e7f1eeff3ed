// SPDX-License-Identifier: Apache-2.0
// Any octets as a message, for both roles. What decodes encodes back to the same octets, and what an engine would do
// with its lists next stays inside its arrays.

#include <algorithm>

#include "engine/fuzz.h"
#include "engine/read_list.h"
#include "engine/rpc_message.h"
#include "engine/transport_header.h"

namespace rodeo {
namespace {

using fuzz::check;

void check_round_trip(const fuzz::Octets& octets, const TransportHeader& header, const ChunkLists& lists) {
  check(header.header_bytes <= octets.size(), "the header is longer than the message");
  check(lists.read_count <= kMaxReadSegments && lists.write_segment_count <= kMaxWriteSegments &&
            lists.write_chunk_count <= kMaxWriteChunks && lists.reply_count <= kMaxReplySegments,
        "a list is longer than its array");
  fuzz::Octets again(header_size(lists));
  check(again.size() == header.header_bytes, "the header encodes to another size");
  check(encode_header(again, header.xid, header.credit, header.proc, lists) == again.size(), "it does not encode");
  check(std::equal(again.begin(), again.end(), octets.begin()), "the header encodes to other octets");
}

void as_responder(const fuzz::Octets& octets) {
  TransportHeader header;
  ChunkLists lists;
  const HeaderOutcome outcome = decode_call_header(octets, header, lists);
  TransportHeader plain;
  const bool is_plain = is_plain_msg(octets.data(), octets.size(), plain);
  // Whether the payload's XID is the header's is left to the caller of is_plain_msg().
  check(!is_plain || outcome == HeaderOutcome::kOk || outcome == HeaderOutcome::kXidMismatch,
        "plain, and yet it does not decode so");
  if (outcome != HeaderOutcome::kOk) return;
  check_round_trip(octets, header, lists);
  check(is_plain == (lists.empty() && header.proc == Proc::kMsg), "it decodes as plain, and is not taken as such");

  ReadChunks chunks;
  group_read_chunks(lists, chunks);
  std::uint64_t grouped = 0;
  for (const ReadChunk& chunk : chunks.all()) {
    std::uint64_t of_chunk = 0;
    for (const std::uint8_t index : chunks.segments_of(chunk)) of_chunk += lists.read_segments[index].target.length;
    check(of_chunk == chunk.length, "a Read chunk's length is not the sum of its segments");
    grouped += of_chunk;
  }
  check(grouped == lists.read_total, "grouping loses octets");
  const std::size_t inline_bytes = octets.size() - header.header_bytes;
  StreamLayout layout;
  const std::size_t reduced = chunks.has_position_zero() ? chunks.position_zero_bytes() : inline_bytes;
  if (plan_stream(chunks, reduced, kMinCallHeaderBytes, layout) == HeaderOutcome::kOk) {
    check(layout.count <= kMaxStreamPieces, "too many pieces");
    std::uint64_t at = 0;
    for (const StreamPiece& piece : layout.all()) {
      check(piece.position == at && piece.length != 0, "the stream has a gap");
      at += piece.length;
    }
    check(at == layout.total, "the pieces do not sum up to the stream");
  }

  // The Reply that returns the lists: its Requester has to find them to be those of its Call.
  ReturnedLengths returned;
  returned.clear(lists);
  for (std::size_t i = 0; i < lists.write_chunk_count; ++i) {
    const std::uint64_t capacity = lists.write_table[i].capacity;
    check(returned.fill_write(lists, i, capacity), "a Write chunk does not hold its capacity");
    check(!returned.fill_write(lists, i, capacity + 1), "a Write chunk holds more than its capacity");
  }
  fuzz::Octets reply(reply_header_size(lists));
  check(encode_reply_header(reply, header.xid, 1, Proc::kMsg, lists, returned) == reply.size(), "no Reply header");
  TransportHeader reply_header;
  ChunkLists echoed;
  if (decode_reply_header(reply, reply_header, echoed) == HeaderOutcome::kOk) {
    check(check_returned_lists(lists, echoed) == HeaderOutcome::kOk, "the lists of the Reply are not the Call's");
  }
}

void as_requester(const fuzz::Octets& octets) {
  TransportHeader header;
  ChunkLists lists;
  if (decode_reply_header(octets, header, lists) != HeaderOutcome::kOk) return;
  if (header.proc != Proc::kError) return check_round_trip(octets, header, lists);
  fuzz::Octets again(header.rdma_err == RdmaErr::kVers ? kErrVersBytes : kErrChunkBytes);
  check(again.size() <= octets.size(), "the error is longer than the message");
  if (header.rdma_err == RdmaErr::kVers) {
    encode_err_vers(again.data(), header.xid, header.vers, header.credit);
    store_be32(again.data() + 20, header.vers_low);
    store_be32(again.data() + 24, header.vers_high);
  } else {
    encode_err_chunk(again.data(), header.xid, header.vers, header.credit);
  }
  check(std::equal(again.begin(), again.end(), octets.begin()), "the error encodes to other octets");
}

}  // namespace
}  // namespace rodeo

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto octets = rodeo::fuzz::octets_of(data, size);
  rodeo::as_responder(octets);
  rodeo::as_requester(octets);
  static_cast<void>(rodeo::classify(octets));
  return 0;
}
