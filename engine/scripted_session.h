// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a scripted Responder against our Requester, from the first call on.

#include <deque>
#include <memory>
#include <vector>

#include "engine/raw_responder.h"
#include "engine/transport_header.h"
#include "pools/proves.h"

namespace rodeo::test {

inline constexpr std::uint32_t kProgram = 0x20000001;
inline const CallTarget kTarget(kProgram, 1, 1, Credential{});

/// A Call as the peer got it.
struct Taken {
  std::vector<std::byte> message;
  TransportHeader header;
  ChunkLists lists;

  [[nodiscard]] std::uint32_t xid() const noexcept { return header.xid; }
  [[nodiscard]] std::uint32_t word(std::size_t index) const { return load_be32(message.data() + 4 * index); }
};

[[nodiscard]] inline std::uint32_t high(const Segment& segment) noexcept {
  return static_cast<std::uint32_t>(segment.offset >> 32U);
}
[[nodiscard]] inline std::uint32_t low(const Segment& segment) noexcept {
  return static_cast<std::uint32_t>(segment.offset);
}

/// A connection on which `granted` credits are in force, after a first call.
struct Session {
  Session(std::uint32_t asked, std::uint32_t granted, Config config = small_config())
      : raw(encode_private_data({.send_size = 4096, .receive_size = 4096}), config), connection(raw.connect(asked)) {
    Seen& first = submit({.target = &kTarget});
    answer(take()->xid(), granted);
    raw.until([&] { return first.times == 1; });
  }

  Seen& submit(CallRequest request) {
    Seen& one = seen.emplace_back();
    request.on_reply = Seen::on_reply;
    request.context = &one;
    EXPECT_EQ(connection->submit(request), SubmitOutcome::kPosted);
    return one;
  }
  Seen& submit(CallRequest request, const CallOptions& options, CallHandle& handle) {
    Seen& one = seen.emplace_back();
    request.on_reply = Seen::on_reply;
    request.context = &one;
    EXPECT_EQ(connection->submit(request, options, handle), SubmitOutcome::kPosted);
    return one;
  }

  /// The next Call. Whatever our Requester sends must be a proper one.
  std::unique_ptr<Taken> take() {
    proves("R8166-4.2.1-1", "R8166-4.2.2-1", "R8166-4.6-1", "R8166-4.6-4");
    auto taken = std::make_unique<Taken>();
    taken->message = raw.receive();
    EXPECT_EQ(decode_call_header(taken->message, taken->header, taken->lists), HeaderOutcome::kOk);
    EXPECT_EQ(taken->header.vers, 1U);
    EXPECT_TRUE(taken->header.proc == Proc::kMsg || taken->header.proc == Proc::kNomsg);
    return taken;
  }

  [[nodiscard]] static std::vector<std::byte> plain_reply(std::uint32_t xid, std::uint32_t granted) {
    return bytes_of({xid, 1, granted, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0});
  }
  void answer(std::uint32_t xid, std::uint32_t granted) { raw.send(plain_reply(xid, granted)); }
  void expect_served() {
    Seen& last = submit({.target = &kTarget});
    answer(take()->xid(), 4);
    raw.until([&] { return last.times == 1; });
    EXPECT_EQ(last.error, CallError::kNone);
    EXPECT_FALSE(raw.failed());
  }
  [[nodiscard]] std::uint64_t counter(std::string_view name) { return Pair::counter(raw.client(), name); }

  std::deque<Seen> seen;  // outlives the engine, which ends whatever is outstanding
  RawResponder raw;
  Connection* connection;
};

}  // namespace rodeo::test
