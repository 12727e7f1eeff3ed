// SPDX-License-Identifier: Apache-2.0

// Every combination of arguments, sources, sinks and room for results, called by our Requester, and every kind of Reply
// from a scripted Responder. A model says what the Call must be and what the application must get.

#include <cstring>

#include "engine/message_matrix.h"
#include "engine/raw_responder.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo::test {
namespace {

const RuntimeDirectory runtime_directory;

[[nodiscard]] Octets tail(const Octets& octets, std::size_t from) {
  const auto part = std::span(octets).subspan(from);
  return {part.begin(), part.end()};
}

struct Request {
  std::vector<std::uint32_t> sources;
  std::vector<std::uint32_t> sinks;
  std::uint32_t filler = 0;  // octets of an argument that is not DDP-eligible
  std::uint32_t max_results = 0;
  bool force_long_call = false;
};

/// Whether the largest Reply might not fit a Send.
[[nodiscard]] bool needs_reply_chunk(const Request& request) noexcept {
  return kMinHeaderBytes + 24 * request.sinks.size() + kAcceptedReplyBytes + request.max_results > kThreshold;
}

/// What the Responder makes of a Call.
struct Response {
  enum class Form : std::uint8_t { kMsg, kNomsg, kErrChunk };
  Form form = Form::kMsg;
  std::uint32_t results = 0;      // octets
  std::size_t fill = 0;           // of the Write chunks: 0 none, 1 all of each, 2 a part of each, 3 the first only
  bool leave_out_unused = false;  // chunks that come back unused are left out altogether
};

/// A scripted Responder. It takes each Call apart, reads what it names, and answers as it is told.
class RequesterMatrix {
 public:
  explicit RequesterMatrix(Registration registration)
      : raw_(encode_private_data({.send_size = kThreshold, .receive_size = kThreshold}), config_with(registration)),
        connection_(raw_.connect(4)),
        memory_(raw_.client().application_memory()) {}

  void run(const Request& request, const Response& response) {
    if (seen_cases_++ % kStride != 0 || ::testing::Test::HasFailure()) return;
    SCOPED_TRACE(::testing::Message() << "case " << seen_cases_);
    lay_out(request);
    const Octets arguments = arguments_of(request);
    Seen seen;
    ASSERT_EQ(connection_->submit({.target = &target_,
                                   .arguments = arguments,
                                   .sources = sources_,
                                   .sinks = sinks_,
                                   .max_results = request.max_results,
                                   .force_long_call = request.force_long_call,
                                   .on_reply = Seen::on_reply,
                                   .context = &seen}),
              SubmitOutcome::kPosted);
    const Octets message = raw_.receive();
    TransportHeader header;
    ASSERT_EQ(decode_call_header(message, header, lists_), HeaderOutcome::kOk);
    check_call(request, arguments, message, header);
    ++ran_;
    raw_.send(reply_of(request, response, header.xid));
    raw_.until([&] { return seen.times == 1; });
    check_completion(request, response, seen);
    EXPECT_EQ(raw_.waiting(), 0U);
    EXPECT_EQ(connection_->in_flight(), 0U);
  }
  [[nodiscard]] std::size_t ran() const noexcept { return ran_; }
  [[nodiscard]] std::size_t long_calls() const noexcept { return long_calls_; }
  [[nodiscard]] std::size_t long_replies() const noexcept { return long_replies_; }

 private:
  [[nodiscard]] static Config config_with(Registration registration) {
    Config config = small_config();
    config.registration = registration;
    return config;
  }

  static constexpr std::size_t kRpcBytes = 40;
  static constexpr std::size_t kSinksAt = 32768;
  static constexpr std::size_t kMemory = 65536;

  /// Sources and sinks lie in the application's memory, at odd places, with gaps that nobody may touch.
  void lay_out(const Request& request) {
    std::memset(memory_.data(), static_cast<int>(kCanary), kMemory);
    sources_.clear();
    sinks_.clear();
    std::size_t at = 3;
    std::size_t arguments = 4 + xdr_padded(request.filler);
    for (std::size_t i = 0; i < request.sources.size(); ++i) {
      const std::uint32_t length = request.sources[i];
      std::ranges::copy(item_octets(i, length), memory_.data() + at);
      sources_.push_back({arguments += 4, memory_.subspan(at, length)});
      arguments += 4;
      at += length + 5;
    }
    at = kSinksAt + 1;
    for (const std::uint32_t length : request.sinks) {
      sinks_.push_back(memory_.subspan(at, length));
      at += length + 5;
    }
    expected_memory_.assign(memory_.begin(), memory_.begin() + kMemory);
  }
  [[nodiscard]] static Octets arguments_of(const Request& request) {
    Octets out;
    append(out, filler_octets(request.filler));
    for (const std::uint32_t length : request.sources) {
      append(out, length);
      append(out, kAfter);
    }
    return out;
  }

  /// The Call must be what RFC 8166 makes of the request, and what it names must hold the sources.
  void check_call(const Request& request, const Octets& arguments, const Octets& message,
                  const TransportHeader& header) {
    const bool reply_chunk = needs_reply_chunk(request);
    std::size_t pads = 0;
    for (std::size_t i = 0; i + 1 < request.sources.size(); ++i) pads += request.sources[i] % 4 != 0 ? 1U : 0U;
    const std::size_t inline_bytes = kMinHeaderBytes + 24 * (request.sources.size() + pads + request.sinks.size()) +
                                     (reply_chunk ? 20U : 0U) + kRpcBytes + arguments.size();
    const bool long_call = request.force_long_call || inline_bytes > kThreshold;
    long_calls_ += long_call ? 1U : 0U;
    EXPECT_EQ(header.proc, long_call ? Proc::kNomsg : Proc::kMsg);
    EXPECT_EQ(header.credit, 4U);

    Octets stream = bytes_of({header.xid, 0, 2, kProgram, 1, 1, 0, 0, 0, 0});
    stream.insert(stream.end(), arguments.begin(), arguments.end());
    auto reads = lists_.reads();
    const auto pull = [&](std::uint32_t position, std::size_t length) {
      EXPECT_FALSE(reads.empty());
      if (reads.empty()) return Octets{};
      const ReadSegment read = reads.front();
      reads = reads.subspan(1);
      EXPECT_EQ(read.position, position);
      EXPECT_EQ(read.target.length, length);
      EXPECT_NE(read.target.handle, 0U);
      return length == 0 ? Octets{} : raw_.read(length, read.target.handle, read.target.offset);
    };
    const Octets payload = long_call ? pull(0, stream.size()) : tail(message, header.header_bytes);
    EXPECT_EQ(payload, stream);
    EXPECT_TRUE(!long_call || message.size() == header.header_bytes);
    auto position = static_cast<std::uint32_t>(kRpcBytes + 4 + xdr_padded(request.filler));
    for (std::size_t i = 0; i < request.sources.size(); ++i) {
      const std::uint32_t length = request.sources[i];
      position += 4;
      EXPECT_EQ(pull(position, length), item_octets(i, length));
      const std::uint32_t pad = xdr_padded(length) - length;
      if (pad != 0 && i + 1 < request.sources.size()) {
        EXPECT_EQ(pull(position, pad), Octets(pad));
      }
      position += xdr_padded(length) + 4;
    }
    EXPECT_TRUE(reads.empty());
    ASSERT_EQ(lists_.write_chunk_count, request.sinks.size());
    for (std::size_t i = 0; i < request.sinks.size(); ++i) {
      ASSERT_EQ(lists_.write_chunk(i).size(), 1U);
      EXPECT_EQ(lists_.write_chunk(i)[0].length, request.sinks[i]);
      EXPECT_NE(lists_.write_chunk(i)[0].handle, 0U);
    }
    EXPECT_EQ(lists_.reply_present, reply_chunk);
    if (!reply_chunk) return;
    ASSERT_EQ(lists_.reply_count, 1U);
    EXPECT_EQ(lists_.reply_capacity, xdr_padded(static_cast<std::uint32_t>(kAcceptedReplyBytes + request.max_results)));
  }

  [[nodiscard]] static std::uint32_t filled(std::uint32_t length, std::size_t index, std::size_t fill) {
    if (fill == 1 || (fill == 3 && index == 0)) return length;
    return fill == 2 ? length / 2 : 0;
  }
  [[nodiscard]] static Words segment(const Segment& offered, std::uint32_t length) {
    return {offered.handle, length, static_cast<std::uint32_t>(offered.offset >> 32U),
            static_cast<std::uint32_t>(offered.offset)};
  }

  /// Writes what goes into chunks, here and in expected_memory_, and makes the message.
  [[nodiscard]] Octets reply_of(const Request& request, const Response& response, std::uint32_t xid) {
    if (response.form == Response::Form::kErrChunk) return bytes_of({xid, 1, 4, 4, 2});
    Words writes;
    bool any = false;
    for (std::size_t i = 0; i < request.sinks.size(); ++i) {
      const Segment offered = lists_.write_chunk(i)[0];
      const std::uint32_t length = filled(request.sinks[i], i, response.fill);
      any = any || length != 0;
      writes = joined({writes, {1, 1}, segment(offered, length)});
      if (length == 0) continue;
      raw_.write(item_octets(i, length), offered.handle, offered.offset);
      const auto at = static_cast<std::size_t>(sinks_[i].data() - memory_.data());
      std::ranges::copy(item_octets(i, length), expected_memory_.data() + at);
    }
    if (!any && response.leave_out_unused) writes.clear();
    Octets stream = bytes_of({xid, 1, 0, 0, 0, 0});
    append_fixed(stream, wide_octets(response.results));
    Words reply_chunk = {0};
    const bool nomsg = response.form == Response::Form::kNomsg;
    if (lists_.reply_present && (nomsg || !response.leave_out_unused)) {
      const Segment offered = lists_.reply()[0];
      reply_chunk = joined({{1, 1}, segment(offered, nomsg ? static_cast<std::uint32_t>(stream.size()) : 0)});
      if (nomsg) raw_.write(stream, offered.handle, offered.offset);
    }
    Octets out = bytes_of(joined({{xid, 1, 4, nomsg ? 1U : 0U, 0}, writes, {0}, reply_chunk}));
    if (!nomsg) out.insert(out.end(), stream.begin(), stream.end());
    long_replies_ += nomsg ? 1U : 0U;
    return out;
  }

  void check_completion(const Request& request, const Response& response, const Seen& seen) {
    EXPECT_TRUE(std::ranges::equal(memory_.first(kMemory), expected_memory_));
    if (response.form == Response::Form::kErrChunk) {
      EXPECT_EQ(seen.error, CallError::kErrChunk);
      return;
    }
    EXPECT_EQ(seen.error, CallError::kNone);
    EXPECT_EQ(seen.accept_stat, AcceptStat::kSuccess);
    Octets results;
    append_fixed(results, wide_octets(response.results));
    EXPECT_EQ(seen.results, results);
    ASSERT_EQ(seen.written.size(), request.sinks.size());
    for (std::size_t i = 0; i < request.sinks.size(); ++i) {
      EXPECT_EQ(seen.written[i], filled(request.sinks[i], i, response.fill));
    }
  }

  RawResponder raw_;
  Connection* connection_;
  RegisteredBytes memory_;
  CallTarget target_{kProgram, 1, 1, Credential{}};
  std::vector<BulkSource> sources_;
  std::vector<RegisteredBytes> sinks_;
  Octets expected_memory_;
  ChunkLists lists_;
  std::size_t seen_cases_ = 0;
  std::size_t ran_ = 0;
  std::size_t long_calls_ = 0;
  std::size_t long_replies_ = 0;
};

[[nodiscard]] std::vector<Request> requests() {
  std::vector<Request> out;
  for (const auto& sources : {Lengths{}, {1}, {4096}, {1003}, {5, 8}, {0, 1001}, {7, 4, 2000}}) {
    for (const auto& sinks : {Lengths{}, {1}, {3001}, {40, 0}, {1001, 7, 4096}}) {
      for (const std::uint32_t filler : {0U, 21U, 3000U, 9001U}) {
        for (const std::uint32_t max_results : {100U, 3000U, 9000U}) {
          for (const bool force : {false, true}) out.push_back({sources, sinks, filler, max_results, force});
        }
      }
    }
  }
  return out;
}

[[nodiscard]] std::vector<Response> responses(const Request& request) {
  std::vector<Response> out = {{.form = Response::Form::kErrChunk}};
  for (const Response::Form form : {Response::Form::kMsg, Response::Form::kNomsg}) {
    if (form == Response::Form::kNomsg && !needs_reply_chunk(request)) continue;
    const std::uint32_t most =
        form == Response::Form::kMsg ? std::min(request.max_results, 3000U) : request.max_results;
    for (const std::uint32_t results : {0U, 100U, most}) {
      for (std::size_t fill = 0; fill < (request.sinks.empty() ? 1U : 4U); ++fill) {
        for (const bool leave_out : {false, true}) out.push_back({form, results, fill, leave_out});
      }
    }
  }
  return out;
}

TEST(MessageMatrix, OurRequesterMakesEveryCombinationAndTakesEveryReply) {
  proves("R8166-3.4-2", "R8166-3.4-7", "R8166-3.4-13", "R8166-3.4.5-1", "R8166-3.4.5-2", "R8166-3.4.5-8",
         "R8166-3.4.5-9", "R8166-3.4.5-10", "R8166-3.4.6-1", "R8166-3.4.6-2", "R8166-3.4.6-7", "R8166-3.4.6-8",
         "R8166-3.5-3", "R8166-3.5-4", "R8166-3.5-6", "R8166-3.5-9", "R8166-3.5-10", "R8166-3.5-11", "R8166-4.3.1-1",
         "R8166-4.3.1-2", "R8166-4.3.2-1", "R8166-4.3.2-3", "R8166-4.3.2-6", "R8166-4.3.2-9", "R8166-4.3.3-1",
         "R8166-4.3.3-2", "R8166-6.1-6", "R8267-6.4-8", "ENG-RC-3", "ENG-RD-4", "ENG-SEG-4", "ENG-SEG-5");
  for (const Registration registration :
       {Registration::kPoolKey, Registration::kKeyPerCall, Registration::kRemoteInvalidation}) {
    RequesterMatrix matrix(registration);
    for (const Request& request : requests()) {
      for (const Response& response : responses(request)) matrix.run(request, response);
    }
    EXPECT_GT(matrix.long_calls(), matrix.ran() / 10);
    EXPECT_GT(matrix.long_replies(), matrix.ran() / 10);
    std::printf("message matrix, our Requester, %s: %zu cases (%zu Long Calls, %zu Long Replies)\n",
                std::string(to_string(registration)).c_str(), matrix.ran(), matrix.long_calls(), matrix.long_replies());
  }
}

}  // namespace
}  // namespace rodeo::test
