// SPDX-License-Identifier: Apache-2.0

// Every combination of inline and Long Call, Read chunks, Write chunks and a Reply chunk, sent by a scripted Requester
// to our Responder. A model says what must come back and what the Requester's memory must hold then.

#include <array>
#include <cstring>
#include <optional>
#include <sstream>

#include "engine/message_matrix.h"
#include "engine/test_pair.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo::test {
namespace {

const RuntimeDirectory runtime_directory;

constexpr std::uint32_t kNoData = 0xffffffff;
constexpr std::size_t kMaxItems = 3;

[[nodiscard]] std::uint32_t digest(std::span<const std::byte> octets) noexcept {
  std::uint32_t out = 0x811c9dc5;
  for (const std::byte octet : octets) out = (out ^ std::to_integer<std::uint32_t>(octet)) * 0x01000193U;
  return out;
}

[[nodiscard]] std::uint32_t sum(const Lengths& lengths) noexcept {
  std::uint32_t out = 0;
  for (const std::uint32_t length : lengths) out += length;
  return out;
}

/// How octets are spread over segments.
enum class Split : std::uint8_t { kWhole, kBetweenEmpty, kPieces };
constexpr std::array kSplits = {Split::kWhole, Split::kBetweenEmpty, Split::kPieces};
[[nodiscard]] Lengths split(std::uint32_t total, Split how) {
  if (how == Split::kWhole) return {total};
  if (how == Split::kBetweenEmpty) return {0, total, 0};
  const std::uint32_t one = std::min(total, 1U);
  const std::uint32_t five = std::min(total - one, 5U);
  const std::uint32_t half = (total - one - five) / 2;
  return {one, five, 0, half, total - one - five - half};
}

constexpr std::size_t kResultStep = 13;  // between the places of two results in the pattern

/// The one Call that is being served.
struct Served {
  std::vector<BulkArgument> items;
  std::vector<std::uint32_t> digests;
  std::vector<std::uint32_t> results;
  std::uint32_t wide = 0;
  std::size_t calls = 0;
};
Served served;

void answer(Call& call) noexcept {
  XdrWriter& writer = call.results(12 + 8 * served.items.size() + 8 * served.results.size() + xdr_padded(served.wide));
  for (std::size_t i = 0; i < served.items.size(); ++i) {
    writer.u32(served.items[i].length);
    writer.u32(served.digests[i]);
  }
  const RegisteredBytes source = call.keep(call.make_buffer(16384));
  std::ranges::copy(pattern(16384), source.begin());
  for (std::size_t i = 0; i < served.results.size(); ++i) {
    const bool data = served.results[i] != kNoData;
    writer.boolean(data);
    if (data) call.push(source.subspan(i * kResultStep, served.results[i]));
  }
  writer.opaque(wide_octets(served.wide));
  writer.u32(kAfter);
  call.reply();
}

void take_items(Call& call) noexcept {
  const std::size_t next = served.digests.size();
  if (next == served.items.size()) return answer(call);
  call.pull(served.items[next], call.kept(0), [](Call& pulled, void*) noexcept {
    served.digests.push_back(digest(pulled.kept(0).first(served.items[served.digests.size()].length)));
    take_items(pulled);
  });
}

/// Arguments: opaque<> filler, not DDP-eligible; opaque<> items, each of which may be reduced, with a word behind each;
/// lengths of results, or kNoData for the arm of their union that has none; the length of a last result, which is not
/// eligible. Results: length and digest of each item; the results; the last one; a word.
void serve(Call& call, void*) noexcept {
  const std::size_t calls = served.calls + 1;
  served = {};
  served.calls = calls;
  XdrReader reader = call.arguments();
  bool good = digest(reader.opaque(65536)) == reader.u32();
  for (std::uint32_t left = std::min<std::uint32_t>(reader.u32(), kMaxItems); left != 0; --left) {
    served.items.push_back(call.bulk_argument(reader, 8192));
    good = good && served.items.back().ok && reader.u32() == kAfter;
  }
  for (std::uint32_t left = std::min<std::uint32_t>(reader.u32(), 16); left != 0; --left)
    served.results.push_back(reader.u32());
  served.wide = reader.u32();
  if (!good || !reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  (void)call.keep(call.make_buffer(8192));
  take_items(call);
}

/// How an item goes: inline, or as a Read chunk without its pad, with it in the last segment or in one of its own.
enum class Mode : std::uint8_t { kInline, kBare, kPadInLast, kPadApart };
constexpr std::array kModes = {Mode::kInline, Mode::kBare, Mode::kPadInLast, Mode::kPadApart};
struct Item {
  std::uint32_t length;
  Mode mode;
};

/// The order of the Read list: that of the Positions, the reverse, or a segment of each chunk in turn.
enum class Order : std::uint8_t { kAscending, kDescending, kInterleaved };
constexpr std::array kOrders = {Order::kAscending, Order::kDescending, Order::kInterleaved};

struct CallSide {
  std::vector<Item> items;
  Split read_split = Split::kWhole;
  Order order = Order::kAscending;
  std::optional<Split> long_call{};  // RDMA_NOMSG, and how its Position-Zero chunk is split
};

struct ReplySide {
  std::vector<std::uint32_t> results;
  std::uint32_t wide = 0;
  std::vector<Lengths> writes{};
  /// Lengths of the Reply chunk's segments; exact_reply: made of the Payload's length instead.
  std::optional<Lengths> reply_chunk{};
  bool exact_reply = false;
};

struct Placed {
  std::size_t at;
  std::uint32_t length;
};
using PlacedChunk = std::vector<Placed>;

enum class Outcome : std::uint8_t { kMsg, kNomsg, kErrChunk };

/// A scripted Requester, the memory that it exposes, and what that memory must hold in the end.
class ResponderMatrix {
 public:
  ResponderMatrix()
      : pair_(Program{.number = kProgram,
                      .version = 1,
                      .name = "matrix",
                      .procedures = {{.number = 1, .name = "SERVE", .handler = serve, .max_read_chunks = kMaxItems}}}),
        peer_(pair_) {}

  void run(const CallSide& call, const ReplySide& reply) {
    if (seen_++ % kStride != 0 || ::testing::Test::HasFailure()) return;
    ++ran_;
    clear();
    ++xid_;
    send(call, reply);
    expected_memory_.assign(peer_.memory(), peer_.memory() + end_ + kGap);
    const Octets expected = model(call, reply);
    Octets got = peer_.receive();
    ASSERT_GE(got.size(), kErrChunkBytes) << describe(call, reply);
    EXPECT_GE(load_be32(got.data() + kCreditOffset), 1U);
    store_be32(got.data() + kCreditOffset, 0);
    EXPECT_EQ(got, expected) << describe(call, reply);
    EXPECT_TRUE(std::ranges::equal(expected_memory_, std::span(peer_.memory(), expected_memory_.size())))
        << describe(call, reply);
    EXPECT_TRUE(peer_.receive(3).empty());
    EXPECT_EQ(served.calls, ran_) << describe(call, reply);
  }

  [[nodiscard]] std::size_t ran() const noexcept { return ran_; }
  [[nodiscard]] std::size_t count(Outcome outcome) const { return outcomes_[static_cast<std::size_t>(outcome)]; }

 private:
  static constexpr std::size_t kGap = 5;  // between two segments, so that few of them are aligned

  void clear() {
    std::memset(peer_.memory(), static_cast<int>(kCanary), end_ + kGap);
    end_ = kGap;
    writes_.clear();
    reply_chunk_.reset();
  }

  [[nodiscard]] PlacedChunk place(const Lengths& lengths) {
    PlacedChunk out;
    for (const std::uint32_t length : lengths) {
      out.push_back({end_, length});
      end_ += length + kGap;
    }
    std::memset(peer_.memory() + out.front().at, static_cast<int>(kCanary), end_ - out.front().at);
    return out;
  }
  static void spread(std::byte* memory, const PlacedChunk& chunk, std::span<const std::byte> octets) {
    for (const Placed& segment : chunk) {
      const auto part = octets.first(std::min<std::size_t>(segment.length, octets.size()));
      std::ranges::copy(part, memory + segment.at);
      octets = octets.subspan(part.size());
    }
  }
  [[nodiscard]] Words segment(const Placed& placed, std::uint32_t length) {
    const std::uint64_t offset = peer_.offset() + placed.at;
    return {peer_.handle(), length, static_cast<std::uint32_t>(offset >> 32U), static_cast<std::uint32_t>(offset)};
  }
  /// A counted array; `filled` octets of it are used where that is said, else it is as offered.
  [[nodiscard]] Words counted(const PlacedChunk& chunk, std::optional<std::uint32_t> filled) {
    Words out = {static_cast<std::uint32_t>(chunk.size())};
    for (const Placed& placed : chunk) {
      const std::uint32_t length = filled ? std::min(placed.length, *filled) : placed.length;
      if (filled) *filled -= length;
      out = joined({out, segment(placed, length)});
    }
    return out;
  }

  struct ReadChunkPlan {
    std::uint32_t position;
    PlacedChunk segments;
  };
  [[nodiscard]] Words read_list(std::vector<ReadChunkPlan> chunks, Order order) {
    Words out;
    const auto add = [&](const ReadChunkPlan& chunk, std::size_t i) {
      if (i < chunk.segments.size()) {
        out = joined({out, {1, chunk.position}, segment(chunk.segments[i], chunk.segments[i].length)});
      }
    };
    if (order == Order::kDescending) std::ranges::reverse(chunks);
    constexpr std::size_t kMost = 8;
    if (order == Order::kInterleaved) {
      for (std::size_t i = 0; i < kMost; ++i) {
        for (const ReadChunkPlan& chunk : chunks) add(chunk, i);
      }
    } else {
      for (const ReadChunkPlan& chunk : chunks) {
        for (std::size_t i = 0; i < kMost; ++i) add(chunk, i);
      }
    }
    out.push_back(0);
    return out;
  }

  [[nodiscard]] PlacedChunk place_item(const Item& item, std::size_t index, Split how) {
    Octets octets = item_octets(index, item.length);
    const std::uint32_t pad = xdr_padded(item.length) - item.length;
    Lengths lengths = split(item.length + (item.mode == Mode::kPadInLast ? pad : 0), how);
    if (item.mode == Mode::kPadApart) lengths.push_back(pad);
    octets.resize(xdr_padded(item.length), std::byte{0x77});  // nobody looks at a pad
    PlacedChunk chunk = place(lengths);
    spread(peer_.memory(), chunk, std::span(octets).first(sum(lengths)));
    return chunk;
  }

  void send(const CallSide& call, const ReplySide& reply) {
    Octets stream = bytes_of({xid_, 0, 2, kProgram, 1, 1, 0, 0, 0, 0});
    std::uint32_t moved = 0;  // octets, with pads, that Read chunks took out of the stream
    std::vector<ReadChunkPlan> chunks;
    const Octets filler = filler_octets(call.long_call ? 5001 : 21);
    append(stream, filler);
    append(stream, digest(filler));
    append(stream, static_cast<std::uint32_t>(call.items.size()));
    for (std::size_t i = 0; i < call.items.size(); ++i) {
      const Item& item = call.items[i];
      if (item.mode == Mode::kInline) {
        append(stream, item_octets(i, item.length));
      } else {
        append(stream, item.length);
        chunks.push_back({static_cast<std::uint32_t>(stream.size()) + moved, place_item(item, i, call.read_split)});
        moved += xdr_padded(item.length);
      }
      append(stream, kAfter);
    }
    append(stream, static_cast<std::uint32_t>(reply.results.size()));
    for (const std::uint32_t length : reply.results) append(stream, length);
    append(stream, reply.wide);
    if (call.long_call) {
      PlacedChunk whole = place(split(static_cast<std::uint32_t>(stream.size()), *call.long_call));
      spread(peer_.memory(), whole, stream);
      chunks.insert(chunks.begin(), {0, std::move(whole)});
    }
    for (const Lengths& lengths : reply.writes) writes_.push_back(lengths.empty() ? PlacedChunk{} : place(lengths));
    if (reply.exact_reply) {
      reply_chunk_ = place(split(static_cast<std::uint32_t>(payload(call, reply).size()), Split::kPieces));
    } else if (reply.reply_chunk) {
      reply_chunk_ = reply.reply_chunk->empty() ? PlacedChunk{} : place(*reply.reply_chunk);
    }
    Octets message = bytes_of(joined({{xid_, 1, 8, call.long_call ? 1U : 0U},
                                      read_list(std::move(chunks), call.order),
                                      write_list({}),
                                      reply_list({})}));
    if (!call.long_call) message.insert(message.end(), stream.begin(), stream.end());
    ASSERT_LE(message.size(), kThreshold);
    peer_.send(message);
  }

  /// As offered, or with the lengths that come back.
  [[nodiscard]] Words write_list(const std::optional<std::vector<std::uint32_t>>& filled) {
    Words out;
    for (std::size_t i = 0; i < writes_.size(); ++i) {
      out = joined({out, {1}, counted(writes_[i], filled ? std::optional((*filled)[i]) : std::nullopt)});
    }
    out.push_back(0);
    return out;
  }
  [[nodiscard]] Words reply_list(std::optional<std::uint32_t> filled) {
    return reply_chunk_ ? joined({{1}, counted(*reply_chunk_, filled)}) : Words{0};
  }

  [[nodiscard]] static std::uint32_t capacity(const PlacedChunk& chunk) {
    std::uint32_t out = 0;
    for (const Placed& placed : chunk) out += placed.length;
    return out;
  }

  /// The Reply's Payload when results go to `writes_` as RFC 8166 §4.3.2 says.
  [[nodiscard]] Octets payload(const CallSide& call, const ReplySide& reply) const {
    Octets out = bytes_of({xid_, 1, 0, 0, 0, 0});
    for (std::size_t i = 0; i < call.items.size(); ++i) {
      append(out, call.items[i].length);
      append(out, digest(item_octets(i, call.items[i].length)));
    }
    std::size_t next = 0;
    for (std::size_t i = 0; i < reply.results.size(); ++i) {
      const std::uint32_t length = reply.results[i];
      append(out, length == kNoData ? 0 : 1);
      if (length == kNoData) continue;
      append(out, length);
      const bool reduced = next < writes_.size() && !writes_[next].empty();
      if (!reduced) append_fixed(out, pattern(length, i * kResultStep));
      ++next;
    }
    append(out, wide_octets(reply.wide));
    append(out, kAfter);
    return out;
  }

  /// What must come back, with rdma_credit 0; expected_memory_ becomes what must be there then.
  [[nodiscard]] Octets model(const CallSide& call, const ReplySide& reply) {
    std::vector<std::uint32_t> filled(writes_.size(), 0);
    Octets memory = expected_memory_;
    std::size_t next = 0;
    for (std::size_t i = 0; i < reply.results.size(); ++i) {
      const std::uint32_t length = reply.results[i];
      if (length == kNoData || next == writes_.size()) continue;
      const PlacedChunk& chunk = writes_[next];
      if (!chunk.empty()) {
        if (capacity(chunk) < length) return err_chunk();
        filled[next] = length;
        spread(memory.data(), chunk, pattern(length, i * kResultStep));
      }
      ++next;
    }
    const Octets stream = payload(call, reply);
    Octets inline_reply = bytes_of(joined({{xid_, 1, 0, 0, 0}, write_list(filled), reply_list(0)}));
    inline_reply.insert(inline_reply.end(), stream.begin(), stream.end());
    if (inline_reply.size() <= kThreshold) {
      expected_memory_ = memory;
      return note(Outcome::kMsg, inline_reply);
    }
    if (!reply_chunk_ || capacity(*reply_chunk_) < stream.size()) return err_chunk();
    spread(memory.data(), *reply_chunk_, stream);
    expected_memory_ = memory;
    const auto octets = static_cast<std::uint32_t>(stream.size());
    return note(Outcome::kNomsg, bytes_of(joined({{xid_, 1, 0, 1, 0}, write_list(filled), reply_list(octets)})));
  }
  [[nodiscard]] Octets err_chunk() { return note(Outcome::kErrChunk, bytes_of({xid_, 1, 0, 4, 2})); }
  [[nodiscard]] Octets note(Outcome outcome, Octets message) {
    ++outcomes_[static_cast<std::size_t>(outcome)];
    return message;
  }

  [[nodiscard]] static std::string describe(const CallSide& call, const ReplySide& reply) {
    std::ostringstream out;
    const auto list = [&out](const Lengths& lengths) {
      for (const std::uint32_t length : lengths) out << ' ' << length;
    };
    out << (call.long_call ? "Long Call" : "inline") << ", split " << static_cast<int>(call.read_split) << ", order "
        << static_cast<int>(call.order) << ", items";
    for (const Item& item : call.items) out << ' ' << item.length << '/' << static_cast<int>(item.mode);
    out << "; results";
    list(reply.results);
    out << ", wide " << reply.wide << ", Write chunks";
    for (const Lengths& chunk : reply.writes) {
      out << " (";
      list(chunk);
      out << " )";
    }
    if (reply.reply_chunk) {
      out << ", Reply chunk";
      list(*reply.reply_chunk);
    }
    return out.str() + (reply.exact_reply ? ", exact Reply chunk" : "");
  }

  Pair pair_;
  RawPeer peer_;
  std::uint32_t xid_ = 100;
  std::size_t end_ = 65536;  // of the memory in use
  std::vector<PlacedChunk> writes_;
  std::optional<PlacedChunk> reply_chunk_;
  Octets expected_memory_;
  std::size_t seen_ = 0;
  std::size_t ran_ = 0;
  std::array<std::size_t, 3> outcomes_{};
};

/// Items of one Call: none, one of each mode, length and split, all pairs of modes, and triples.
[[nodiscard]] std::vector<CallSide> call_sides() {
  std::vector<CallSide> out = {{}};
  for (const Split how : kSplits) {
    for (const Mode mode : kModes) {
      for (const std::uint32_t length : {0U, 1U, 4U, 1001U, 1002U, 1003U})
        out.push_back({.items = {{length, mode}}, .read_split = how});
    }
    for (const Order order : kOrders) {
      for (const Mode a : kModes) {
        for (const Mode b : kModes) {
          out.push_back({.items = {{5, a}, {1002, b}}, .read_split = how, .order = order});
          out.push_back({.items = {{0, a}, {7, b}}, .read_split = how, .order = order});
          const Mode c = kModes[out.size() % kModes.size()];
          out.push_back({.items = {{3, a}, {1001, b}, {4, c}}, .read_split = how, .order = order});
        }
      }
    }
  }
  const std::vector<CallSide> inline_calls = out;
  for (CallSide side : inline_calls) {
    side.long_call = out.size() % 2 == 0 ? Split::kWhole : Split::kPieces;
    out.push_back(side);
  }
  return out;
}

/// A Write chunk for a result of `length` octets: exact, too large, too small, empty, in pieces, in pieces with more
/// behind.
constexpr std::size_t kFits = 6;
[[nodiscard]] Lengths write_chunk(std::uint32_t length, std::size_t fit) {
  switch (fit) {
    case 0:
      return {length};
    case 1:
      return {length + 9};
    case 2:
      return {length == 0 ? 0 : length - 1};
    case 3:
      return {};
    case 4:
      return split(length, Split::kPieces);
    default:
      return {length / 2, 0, length, 7};
  }
}

/// For some results, Write lists of up to three chunks with every fit of each.
[[nodiscard]] std::vector<std::vector<Lengths>> write_lists(const std::vector<std::uint32_t>& results) {
  std::vector<std::uint32_t> data;
  for (const std::uint32_t length : results) {
    if (length != kNoData) data.push_back(length);
  }
  data.resize(kMaxItems, 40);  // chunks that no result will come to
  std::vector<std::vector<Lengths>> out;
  std::size_t variants = 1;
  for (std::size_t chunks = 0; chunks <= kMaxItems; ++chunks, variants *= kFits) {
    for (std::size_t variant = 0; variant < variants; ++variant) {
      std::vector<Lengths>& list = out.emplace_back();
      for (std::size_t i = 0, left = variant; i < chunks; ++i, left /= kFits)
        list.push_back(write_chunk(data[i], left % kFits));
    }
  }
  return out;
}

/// Without and with a last result that fits no Send, and without Reply chunk, or with one that is exact, empty, too
/// small or too large.
constexpr std::size_t kReplyVariants = 10;
[[nodiscard]] ReplySide reply_variant(ReplySide side, std::size_t variant) {
  side.wide = variant % 2 == 0 ? 0 : 6001;
  if (variant / 2 == 1) side.exact_reply = true;
  if (variant / 2 == 2) side.reply_chunk = Lengths{};
  if (variant / 2 == 3) side.reply_chunk = Lengths{100};
  if (variant / 2 == 4) side.reply_chunk = Lengths{64, 0, 3000, 20000};
  return side;
}

[[nodiscard]] std::vector<ReplySide> reply_sides() {
  std::vector<ReplySide> out;
  const std::vector<std::vector<std::uint32_t>> all_results = {
      {}, {kNoData}, {0}, {40}, {kNoData, 41}, {41, 3000}, {3, kNoData, 4}, {5, 6, 7}, {3000, 3000, 3000}};
  for (const auto& results : all_results) {
    for (auto& writes : write_lists(results)) {
      const bool all = writes.size() < kMaxItems;  // of the many longer ones, one with each
      for (std::size_t variant = all ? 0 : out.size() % kReplyVariants; variant < kReplyVariants; ++variant) {
        out.push_back(reply_variant({.results = results, .writes = writes}, variant));
        if (!all) break;
      }
    }
  }
  return out;
}

TEST(MessageMatrix, OurResponderServesEveryCombination) {
  proves("R8166-3.4-2", "R8166-3.4-5", "R8166-3.4-7", "R8166-3.4-13", "R8166-3.4.5-3", "R8166-3.4.5-4", "R8166-3.4.5-5",
         "R8166-3.4.5-11", "R8166-3.4.6-3", "R8166-3.4.6-4", "R8166-3.4.6-5", "R8166-3.4.6-9", "R8166-3.4.6-10",
         "R8166-3.5-7", "R8166-3.5-8", "R8166-3.5-10", "R8166-4.3.2-2", "R8166-4.3.2-4", "R8166-4.3.2-7",
         "R8166-4.3.2-8", "R8166-4.3.2-12", "R8166-4.3.2-13", "R8166-4.3.3-4", "R8166-4.3.3-5", "R8166-4.3.3-6",
         "R8166-6.1-5", "R8166-6.1-6", "ENG-MX-1", "ENG-MX-2", "ENG-RC-1", "ENG-RC-2", "ENG-RC-4", "ENG-RD-1",
         "ENG-RD-3", "ENG-SEG-1", "ENG-SEG-3", "ENG-WR-3", "ENG-WR-4", "ENG-WR-5");
  ResponderMatrix matrix;
  const auto calls = call_sides();
  const auto replies = reply_sides();
  // Every Call with some Replies of each kind, and every Reply with some Calls of each kind.
  std::vector<ReplySide> some_replies;
  for (const auto& writes : {std::vector<Lengths>{}, {{40}}, {{20, 0, 30}, {7}}}) {
    for (const std::uint32_t wide : {0U, 6001U}) {
      some_replies.push_back({.results = {40}, .wide = wide, .writes = writes});
      some_replies.push_back({.results = {40}, .wide = wide, .writes = writes, .reply_chunk = Lengths{64, 0, 20000}});
    }
  }
  for (const CallSide& call : calls) {
    for (const ReplySide& reply : some_replies) matrix.run(call, reply);
  }
  for (const std::optional<Split> long_call : {std::optional<Split>{}, std::optional(Split::kPieces)}) {
    for (const auto& items : {std::vector<Item>{}, {{1001, Mode::kBare}}, {{3, Mode::kPadApart}, {9, Mode::kBare}}}) {
      for (const ReplySide& reply : replies)
        matrix.run({.items = items, .read_split = Split::kPieces, .long_call = long_call}, reply);
    }
  }
  EXPECT_GT(matrix.ran(), calls.size() * some_replies.size() / kStride);
  for (const Outcome outcome : {Outcome::kMsg, Outcome::kNomsg, Outcome::kErrChunk})
    EXPECT_GT(matrix.count(outcome), matrix.ran() / 10);
  std::printf("message matrix, our Responder: %zu cases (%zu RDMA_MSG, %zu RDMA_NOMSG, %zu ERR_CHUNK)\n", matrix.ran(),
              matrix.count(Outcome::kMsg), matrix.count(Outcome::kNomsg), matrix.count(Outcome::kErrChunk));
}

}  // namespace
}  // namespace rodeo::test
