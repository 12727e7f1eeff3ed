// SPDX-License-Identifier: Apache-2.0

// Whose duplicate a Call is: of the same peer, from whatever port. Calls are made by hand here; what becomes of real
// ones is in conformance_duplicates_test.cpp.

#include "engine/reply_cache.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>

#include "engine/call_core.h"
#include "engine/link.h"

namespace rodeo {
namespace {

void count(Call& call, void* runs) noexcept {
  ++*static_cast<int*>(runs);
  call.reply();
}

class ReplyCacheTest : public testing::Test {
 protected:
  /// One Call, always the same but for who sends it.
  void call_from(const Peer& peer) {
    LinkBase link;
    link.details->peer = &peer;
    CallCore call;
    call.link = &link;
    call.payload = payload_.data();
    call.payload_bytes = static_cast<std::uint32_t>(payload_.size());
    call.rpc.xid = 7;
    call.serving = &procedure_;
    call.next_stage = procedure_.handler;
    EXPECT_FALSE(run_stage(call));
    if (call.form == ReplyForm::kRemember) ReplyCache::settle(call);
  }
  static Peer address(std::uint8_t last, std::uint16_t port) {
    Peer peer;
    peer.kind = Peer::Kind::kAddress;
    peer.address[15] = last;
    peer.port = port;
    return peer;
  }
  static Peer process(std::uint32_t pid) {
    Peer peer;
    peer.kind = Peer::Kind::kProcess;
    peer.pid = pid;
    return peer;
  }

  int runs_ = 0;
  std::array<std::byte, 40> payload_{};
  ReplyCache cache_{16, 64};
  Procedure procedure_ = cache_.wrap(Program{.number = 1, .version = 1, .name = "test", .procedures = {}},
                                     {.number = 1, .name = "P", .handler = count, .context = &runs_});
};

TEST_F(ReplyCacheTest, KnowsAPeerByItsAddressAndNotByItsPort) {
  call_from(address(1, 700));
  call_from(address(1, 701));
  EXPECT_EQ(runs_, 1);
  EXPECT_EQ(cache_.replayed(), 1U);
  call_from(address(2, 700));
  EXPECT_EQ(runs_, 2);
  call_from(address(2, 702));
  EXPECT_EQ(runs_, 2);
}

TEST_F(ReplyCacheTest, TellsProcessesFromEachOther) {
  call_from(process(10));
  call_from(process(11));
  EXPECT_EQ(runs_, 2);
  call_from(process(10));
  EXPECT_EQ(runs_, 2);
}

}  // namespace
}  // namespace rodeo
