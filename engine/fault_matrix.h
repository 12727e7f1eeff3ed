// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the fault matrix: engines on one simulated fabric, calls of every message shape between them with contents that
// either end can check, and connections beside the one that faults hit. One seed decides the order of everything.

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/soft/fabric.h"
#include "engine/engine_core.h"
#include "engine/xdr_pad.h"
#include "engine/xdr_writer.h"

namespace rodeo::test {

/// What one call carries and how.
struct Shape {
  std::string name;
  std::size_t sources = 0;  // Read chunks at Positions of their own
  std::size_t sinks = 0;    // Write chunks
  bool sinks_used = true;
  std::size_t filler = 0;   // octets of an argument that is not DDP-eligible
  std::size_t answer = 0;   // octets of a result that is not DDP-eligible
  std::size_t offered = 0;  // the Reply chunk offered, where it is more than the results need
  bool long_call = false;
  bool deferred = false;
};

/// Every message shape of RFC 8166 §3.5, and the combinations that a Requester makes of them.
[[nodiscard]] inline std::vector<Shape> shapes() {
  constexpr std::size_t kSmall = 40;  // fits an inline WQE
  // The longest inline WQE: in a burst, the send queue is full between a Reply's Writes and its Send.
  constexpr std::size_t kLongInline = 850;
  constexpr std::size_t kMedium = 3000;  // fits the inline threshold, from a buffer
  constexpr std::size_t kLarge = 9000;   // needs a Long Call or a Long Reply
  constexpr std::size_t kMany = 16;      // as many Write chunks as there can be
  return {{.name = "inline", .filler = kSmall, .answer = kSmall},
          {.name = "from_buffers", .filler = kMedium, .answer = kMedium},
          {.name = "read_chunk", .sources = 1},
          {.name = "read_chunks", .sources = 3, .filler = kSmall},
          {.name = "write_chunk", .sinks = 1},
          {.name = "write_chunks", .sinks = kMany, .answer = kSmall},
          {.name = "write_chunk_long_send", .sinks = 1, .answer = kLongInline},
          {.name = "write_chunk_unused", .sinks = 2, .sinks_used = false, .answer = kSmall},
          {.name = "reply_chunk_unused", .answer = kSmall, .offered = kLarge},
          {.name = "long_reply", .answer = kLarge},
          {.name = "long_call", .filler = kLarge},
          {.name = "long_call_small", .long_call = true},
          {.name = "long_call_read_chunks", .sources = 2, .filler = kLarge},
          {.name = "long_call_long_reply", .filler = kLarge, .answer = kLarge},
          {.name = "read_and_write_chunks", .sources = 2, .sinks = 2, .filler = kMedium, .answer = kSmall},
          {.name = "write_chunks_and_long_reply", .sinks = 3, .answer = kLarge},
          {.name = "deferred", .filler = kSmall, .answer = kSmall, .deferred = true},
          {.name = "deferred_write_chunk", .sources = 1, .sinks = 1, .deferred = true}};
}

inline constexpr std::uint32_t kFaultProgram = 0x20000002;
inline constexpr std::size_t kSourceBytes = 1501;  // with a pad
inline constexpr std::size_t kSinkBytes = 501;
inline constexpr std::size_t kSlotBytes = 16384;  // of application memory: one call's sources and sinks
inline constexpr std::size_t kMaxWindow = 8;
inline constexpr std::size_t kBystanderSlots = 3;  // behind those of the window
inline constexpr std::size_t kPatternAt = (kMaxWindow + kBystanderSlots) * kSlotBytes;
inline constexpr std::size_t kPatternBytes = 16384;
inline constexpr std::uint32_t kMaxItem = 16384;

[[nodiscard]] inline std::byte pattern_at(std::uint32_t id, std::size_t i) noexcept {
  return static_cast<std::byte>((id * 131 + i * 7 + (i >> 8U)) & 0xffU);
}
[[nodiscard]] inline std::uint64_t digest(std::uint64_t so_far, std::span<const std::byte> octets) noexcept {
  for (const std::byte octet : octets) so_far = (so_far ^ std::to_integer<std::uint64_t>(octet)) * 0x100000001b3U;
  return so_far;
}

/// One engine, which serves calls of every shape and makes them.
class Node {
 public:
  Node(dv::soft::Fabric& fabric, std::uint32_t device_index, const Config& config)
      : fabric_(fabric), index(device_index) {
    auto device = fabric.open_device({.rnr_retry = kRnrRetry});
    auto made = EngineCore<dv::mlx5::Provider>::open_on(std::move(*device), config);
    if (!made) {
      ADD_FAILURE() << made.error().message();
      std::abort();
    }
    engine = std::move(*made);
    const RegisteredBytes memory = engine->application_memory();
    for (std::size_t i = 0; i < kPatternBytes; ++i) memory[kPatternAt + i] = pattern_at(0, i);
    Program program{.number = kFaultProgram, .version = 1, .name = "faults", .procedures = {}};
    program.procedures.push_back(
        {.number = 1, .name = "TRANSFER", .handler = serve, .context = this, .max_read_chunks = 3});
    EXPECT_TRUE(engine->add_program(std::move(program)));
    engine->add_poller(0, [this] { return answer_deferred(); });
    EXPECT_TRUE(engine->start());
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  ~Node() {
    deferred_turns_ = 0;
    engine->step();  // whatever is deferred is answered, so that nothing keeps its connection
    engine->step();
  }

  [[nodiscard]] bool alive() const noexcept { return fabric_.alive(index); }
  /// How often something waited for a buffer or for room.
  [[nodiscard]] std::uint64_t waits() const { return counter("buffer_waits") + counter("send_queue_waits"); }
  [[nodiscard]] std::uint64_t counter(std::string_view name) const {
    for (const CounterValue& one : engine->counters()) {
      if (one.name == name) return one.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }
  [[nodiscard]] RegisteredBytes slot(std::size_t which) const {
    return engine->application_memory().subspan(which * kSlotBytes, kSlotBytes);
  }

 private:
  static constexpr std::uint32_t kRnrRetry = 2;
  struct Deferred {
    DeferredCall call;
    int turns = 0;
  };

  /// Arguments: id, pushes, octets of the answer, whether to defer, data items, filler<>, the items. The data items
  /// may have been reduced.
  static void serve(Call& call, void* context) noexcept {
    call.state() = {0xcbf29ce484222325U, 0, 0, 0};
    next_item(call, context);
  }

  static void next_item(Call& call, void* context) noexcept {
    XdrReader reader = call.arguments();
    static_cast<void>(reader.u32());
    const std::uint32_t pushes = reader.u32();
    const std::uint32_t answer = reader.u32();
    const bool defer = reader.u32() != 0;
    const std::uint32_t items = reader.u32();
    const auto filler = reader.opaque(kMaxItem);
    auto& [sum, done, length, unused] = call.state();
    if (done == 0 && length == 0) sum = digest(sum, filler);
    if (length != 0) {  // an item has just come
      sum = digest(sum, call.kept(done == 0 ? 0 : 1).first(length));
      length = 0;
      ++done;
    }
    for (std::uint64_t i = 0; i < done; ++i) static_cast<void>(reader.u32());
    if (!reader.ok()) return call.reject(AcceptStat::kGarbageArgs);
    if (done < items) {
      const BulkArgument item = call.bulk_argument(reader, kMaxItem);
      if (!item.ok || item.length == 0) return call.reject(AcceptStat::kGarbageArgs);
      length = item.length;
      if (done >= 2) return call.pull(item, call.kept(1).first(length), next_item);
      return call.pull(item, next_item);
    }
    XdrWriter& results = call.results(8 + 4 + xdr_padded(answer) + 4 * pushes);
    results.u64(sum);
    const auto& node = *static_cast<Node*>(context);
    const RegisteredBytes source = node.engine->application_memory().subspan(kPatternAt, kPatternBytes);
    results.opaque(source.first(answer));
    for (std::uint32_t i = 0; i < pushes; ++i) call.push(source.subspan(i * 64, kSinkBytes));
    if (!defer) return call.reply();
    static_cast<Node*>(context)->deferred_.push_back({call.defer(), 0});
  }

  std::size_t answer_deferred() {
    std::size_t answered = 0;
    std::erase_if(deferred_, [&](Deferred& deferred) {
      if (++deferred.turns < deferred_turns_) return false;
      deferred.call.reply();
      ++answered;
      return true;
    });
    return answered;
  }

  dv::soft::Fabric& fabric_;
  std::vector<Deferred> deferred_;
  int deferred_turns_ = 5;

 public:
  std::uint32_t index;  // of its device
  std::unique_ptr<Engine> engine;
};

/// One call of a shape: builds it, and checks what comes back.
class ShapedCall {
 public:
  void prepare(const Shape& shape, std::uint32_t id, RegisteredBytes slot) {
    *this = {};
    shape_ = &shape;
    slot_ = slot;
    static const CallTarget kTarget = [] {
      Credential credential;
      credential.flavor = AuthFlavor::kSys;
      credential.sys.machine_name = "matrix";
      return CallTarget(kFaultProgram, 1, 1, credential);
    }();
    arguments_.resize(64 + shape.filler + 4 * shape.sources);
    XdrWriter writer(arguments_);
    writer.u32(id);
    writer.u32(shape.sinks_used ? static_cast<std::uint32_t>(shape.sinks) : 0);
    writer.u32(static_cast<std::uint32_t>(shape.answer));
    writer.u32(shape.deferred ? 1 : 0);
    writer.u32(static_cast<std::uint32_t>(shape.sources));
    std::vector<std::byte> filler(shape.filler);
    for (std::size_t i = 0; i < filler.size(); ++i) filler[i] = pattern_at(id, i);
    writer.opaque(filler);
    expected_ = digest(0xcbf29ce484222325U, filler);
    for (std::size_t s = 0; s < shape.sources; ++s) {
      writer.u32(kSourceBytes);
      const RegisteredBytes data = slot.subspan(s * 2048, kSourceBytes);
      for (std::size_t i = 0; i < data.size(); ++i) data[i] = pattern_at(id + 17 * static_cast<std::uint32_t>(s), i);
      expected_ = digest(expected_, data);
      sources_.push_back({writer.size(), data});
    }
    for (std::size_t s = 0; s < shape.sinks; ++s) {
      sinks_.push_back(slot.subspan(sink_at(s), kSinkBytes));
      std::memset(slot.data() + sink_at(s), 0xee, kSinkBytes + kGuardBytes);
    }
    request_.target = &kTarget;
    request_.arguments = writer.written();
    request_.sources = sources_;
    request_.sinks = sinks_;
    request_.max_results = std::max(8 + 4 + xdr_padded(shape.answer) + 4 * shape.sinks, shape.offered);
    request_.force_long_call = shape.long_call;
    request_.on_reply = on_reply;
    request_.context = this;
  }

  [[nodiscard]] SubmitOutcome submit(Connection& connection) {
    const SubmitOutcome outcome = connection.submit(request_);
    posted_ |= outcome == SubmitOutcome::kPosted;
    return outcome;
  }

  [[nodiscard]] bool posted() const noexcept { return posted_; }
  [[nodiscard]] int times() const noexcept { return times_; }
  [[nodiscard]] bool succeeded() const noexcept {
    return error_ == CallError::kNone && status_ == AcceptStat::kSuccess;
  }
  [[nodiscard]] CallError error() const noexcept { return error_; }
  [[nodiscard]] AcceptStat status() const noexcept { return status_; }

  /// Of a call that succeeded: what is wrong with what came back, or nothing.
  [[nodiscard]] std::string complaint() const { return complaint_; }

 private:
  static constexpr std::size_t kGuardBytes = 8;
  [[nodiscard]] static std::size_t sink_at(std::size_t s) noexcept { return 6144 + s * 512; }

  static void on_reply(void* context, const Reply& reply) noexcept {
    auto& call = *static_cast<ShapedCall*>(context);
    ++call.times_;
    call.error_ = reply.error;
    call.status_ = reply.accept_stat;
    if (reply.ok()) call.check(reply);
  }

  void check(const Reply& reply) {
    XdrReader reader = reply.reader();
    if (reader.u64() != expected_) complaint_ += "the arguments arrived damaged; ";
    const auto answer = reader.opaque(kMaxItem);
    if (!reader.ok() || answer.size() != shape_->answer) complaint_ += "the answer has another length; ";
    for (std::size_t i = 0; i < answer.size(); ++i) {
      if (answer[i] == pattern_at(0, i)) continue;
      complaint_ += "the answer arrived damaged; ";
      break;
    }
    for (std::size_t s = 0; s < sinks_.size(); ++s) {
      const std::size_t length = shape_->sinks_used ? kSinkBytes : 0;
      if (s >= reply.written.size() || reply.written[s] != length) complaint_ += "a Write chunk has another length; ";
      bool good = true;
      for (std::size_t i = 0; i < kSinkBytes + kGuardBytes; ++i) {
        good = good && slot_[sink_at(s) + i] == (i < length ? pattern_at(0, s * 64 + i) : std::byte{0xee});
      }
      if (!good) complaint_ += "Write chunk " + std::to_string(s) + " is damaged; ";
    }
  }

  const Shape* shape_ = nullptr;
  RegisteredBytes slot_;
  CallRequest request_;
  std::vector<std::byte> arguments_;
  std::vector<BulkSource> sources_;
  std::vector<RegisteredBytes> sinks_;
  std::uint64_t expected_ = 0;
  std::string complaint_;
  int times_ = 0;
  bool posted_ = false;
  CallError error_ = CallError::kNone;
  AcceptStat status_ = AcceptStat::kSuccess;
};

}  // namespace rodeo::test
