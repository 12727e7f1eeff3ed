// SPDX-License-Identifier: Apache-2.0
#pragma once

// How the tables of apps/capture_mix.h come out of recorded traffic. Only their test does this.

#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "apps/capture_mix.h"
#include "engine/capture_reader.h"
#include "engine/rpc_message.h"
#include "engine/transport_header.h"

namespace rodeo::apps {

/// Shapes of all RPCs of a recording whose Call and Reply are both there, in rising order. Packets sent again count
/// once.
inline Result<std::vector<CaptureShape>> derive_shapes(const std::filesystem::path& file) {
  const auto messages = capture::read_messages(file);
  if (!messages) return tl::unexpected(messages.error());
  std::map<std::pair<std::uint32_t, std::uint32_t>, CaptureShape> calls;  // by Responder's address and XID
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>,
           std::uint32_t>
      counts;
  for (const capture::Message& message : *messages) {
    if (message.management || message.retransmission) continue;
    const std::span<const std::byte> octets{message.octets};
    TransportHeader header;
    ChunkLists lists;
    if (classify(octets) == Direction::kCall) {
      CallHeader call;
      if (decode_call_header(octets, header, lists) != HeaderOutcome::kOk) continue;
      const auto payload = octets.subspan(header.header_bytes);
      if (decode_call(payload, call) != CallOutcome::kOk) continue;
      std::uint64_t write_capacity = 0;
      for (const WriteChunk& chunk : lists.write_chunks()) write_capacity += chunk.capacity;
      CaptureShape shape;
      shape.arguments = static_cast<std::uint32_t>(payload.size()) - call.args_offset;
      shape.read_chunk = static_cast<std::uint32_t>(lists.read_total);
      shape.write_capacity = static_cast<std::uint32_t>(write_capacity);
      shape.reply_capacity = static_cast<std::uint32_t>(lists.reply_capacity);
      calls[{message.route.destination, header.xid}] = shape;
      continue;
    }
    if (decode_reply_header(octets, header, lists) != HeaderOutcome::kOk) continue;
    const auto call = calls.find({message.route.source, header.xid});
    if (call == calls.end()) continue;
    CaptureShape& shape = call->second;
    for (const WriteChunk& chunk : lists.write_chunks()) shape.written += static_cast<std::uint32_t>(chunk.capacity);
    const std::uint64_t reply_bytes = octets.size() - header.header_bytes + lists.reply_capacity;
    shape.results = static_cast<std::uint32_t>(reply_bytes - kAcceptedReplyBytes);
    ++counts[{shape.arguments, shape.results, shape.read_chunk, shape.write_capacity, shape.written,
              shape.reply_capacity}];
    calls.erase(call);
  }
  std::vector<CaptureShape> shapes;
  for (const auto& [key, number] : counts) {
    const auto& [arguments, results, read_chunk, write_capacity, written, reply_capacity] = key;
    shapes.push_back({arguments, results, read_chunk, write_capacity, written, reply_capacity, number});
  }
  return shapes;
}

/// The rows as they stand in the header, for whoever must bring it up to date.
inline std::string table_text(std::span<const CaptureShape> shapes) {
  std::string text;
  for (const CaptureShape& s : shapes) {
    text += "    {";
    for (const std::uint32_t value :
         {s.arguments, s.results, s.read_chunk, s.write_capacity, s.written, s.reply_capacity}) {
      text += std::to_string(value) + ", ";
    }
    text += std::to_string(s.calls) + "},\n";
  }
  return text;
}

}  // namespace rodeo::apps
