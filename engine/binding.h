// SPDX-License-Identifier: Apache-2.0
#pragma once

// Upper-layer bindings (RFC 8166 §6): which arguments and results of a procedure are DDP-eligible, and how long what
// can be. From that follows the form of each call: what goes inline, what by Read or Write chunk, whether a Reply chunk
// is needed for the largest Reply. Nothing else is ever reduced.
//
//   constexpr std::uint32_t kWriteArguments[] = {1 << 20};
//   constexpr ProcedureBinding kWrite{.number = 7, .name = "WRITE", .arguments = kWriteArguments, .max_results = 136};
//
//   std::array<std::byte, 8192> room;
//   BoundCall call(kWrite, target, room);
//   call.arguments().opaque(file_handle);
//   call.eligible_argument(data);
//   if (call.plan(connection) != BoundCall::Outcome::kPlanned) ...
//   connection.submit(call.request());           // on_reply and context are the caller's

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "engine/program.h"
#include "engine/requester.h"
#include "engine/xdr_reader.h"
#include "engine/xdr_writer.h"

namespace rodeo {

/// Of one procedure. Constant data; whoever uses it does not copy what it refers to. Only opaque<> and string<> items
/// are eligible, those in the arm of a union as well, the union itself never (RFC 8166 §3.4.4).
struct ProcedureBinding {
  std::uint32_t number = 0;
  std::string_view name{};
  std::span<const std::uint32_t> arguments{};  // DDP-eligible ones in order: octets of the longest of each
  std::span<const std::uint32_t> results{};    // the same of the results
  std::uint32_t max_results = 0;  // octets of the longest results without the data of `results`, their length words
                                  // included
};

/// How a Responder serves it: no more Read chunks than there are eligible arguments, and no more results by Write chunk
/// than there are eligible ones.
[[nodiscard]] Procedure serve(const ProcedureBinding& binding, Handler handler, void* context = nullptr);

/// One call of a bound procedure, from its arguments to its form. Refers to all that it is given.
class BoundCall {
 public:
  static constexpr std::size_t kMostItems = 4;
  enum class Outcome : std::uint8_t {
    kPlanned,
    kNotEligible,  // more items than the binding has: they belong into arguments()
    kTooLong,      // an item, or the room for one, is longer than the binding allows
    kNoRoom,       // the arguments do not fit `room`
  };

  /// The arguments are written into `room`. It holds them without the data of eligible ones; these are put there, too,
  /// as far as it has room, when a call is short enough to be inline.
  BoundCall(const ProcedureBinding& binding, const CallTarget& target, std::span<std::byte> room) noexcept;

  /// For what is not eligible, in the order of the procedure's arguments.
  [[nodiscard]] XdrWriter& arguments() noexcept { return writer_; }
  /// The next eligible argument, at this place.
  void eligible_argument(RegisteredBytes data) noexcept;
  /// Where the next eligible result goes unless it comes inline. It cannot be longer than this.
  void eligible_result(RegisteredBytes into) noexcept;
  /// The other results of this very call are at most so long, which is less than the binding says.
  void expect_results(std::size_t most) noexcept { max_results_ = most; }

  /// Chooses the form for this connection's thresholds. Once, after everything is there.
  [[nodiscard]] Outcome plan(const Connection& connection) noexcept;
  /// As planned; valid as long as this object and what it was given.
  [[nodiscard]] CallRequest& request() noexcept { return request_; }

 private:
  void put_inline(std::size_t unreduced) noexcept;

  const ProcedureBinding& binding_;
  std::span<std::byte> room_;
  XdrWriter writer_;
  CallRequest request_;
  std::array<BulkSource, kMostItems> sources_{};
  std::array<RegisteredBytes, kMostItems> sinks_{};
  std::size_t source_count_ = 0;
  std::size_t sink_count_ = 0;
  std::size_t max_results_;
  Outcome outcome_ = Outcome::kPlanned;
};

/// The results of a bound call, whichever way they came.
class BoundResults {
 public:
  /// `request`: as it was submitted. All of it as valid as the Reply.
  BoundResults(const CallRequest& request, const Reply& reply) noexcept
      : request_(request), reply_(reply), reader_(reply.results) {}

  [[nodiscard]] XdrReader& reader() noexcept { return reader_; }
  /// The next eligible result, at this place. Fails the reader where the Responder broke a rule: another length than
  /// what it placed, or data left inline beside its Write chunk (RFC 8166 §3.4.6, §6.1).
  [[nodiscard]] std::span<const std::byte> eligible_result() noexcept;
  [[nodiscard]] bool ok() const noexcept { return ok_ && reader_.ok(); }

 private:
  const CallRequest& request_;
  const Reply& reply_;
  XdrReader reader_;
  std::size_t next_ = 0;  // Write chunk that the next result may have taken
  bool ok_ = true;
};

}  // namespace rodeo
