// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "dv/provider_suite.h"
#include "pools/proves.h"

// What fails, and how both ends hear of it.

namespace rodeo::dv::suite {

namespace {

struct BadAccess {
  const char* what;
  bool write;
  std::function<RemoteAddress(const End&)> remote;
  std::size_t length = 64;
};

const std::vector<BadAccess>& bad_accesses() {
  static const std::vector<BadAccess> kCases = {
      {"an unknown key", true,
       [](const End& e) {
         return RemoteAddress{e.remote(0).offset, e.region.rkey ^ 1};
       }},
      {"a key whose index is out of range", false,
       [](const End& e) {
         return RemoteAddress{e.remote(0).offset, 0xffffff00U};
       }},
      {"key 0", false,
       [](const End& e) {
         return RemoteAddress{e.remote(0).offset, 0};
       }},
      {"an Offset before the region", true,
       [](const End& e) {
         return RemoteAddress{e.remote(0).offset - 1, e.region.rkey};
       }},
      {"a length over the end", true,
       [](const End& e) {
         return RemoteAddress{e.remote(End::kBytes - 63).offset, e.region.rkey};
       }},
      {"an Offset that wraps around", false,
       [](const End& e) {
         return RemoteAddress{~std::uint64_t{0} - 31, e.region.rkey};
       }},
      {"a write into a region for reads", true,
       [](const End& e) {
         return RemoteAddress{e.remote(End::kBytes / 4).offset, e.read_only.rkey};
       }},
      {"a read from a local region", false,
       [](const End& e) {
         return RemoteAddress{e.remote(End::kBytes / 2).offset, e.local_only.rkey};
       }},
  };
  return kCases;
}

}  // namespace

TEST_P(ProviderSuite, RemoteMemoryIsGuardedByKeyBoundsAndRights) {
  proves("R8166-8.1-2");
  ASSERT_NO_FATAL_FAILURE(listen());
  for (const BadAccess& bad : bad_accesses()) {
    SCOPED_TRACE(bad.what);
    ASSERT_NO_FATAL_FAILURE(connect_again(2));
    std::memset(a_.at(0), 0x11, 64);
    std::memset(b_.at(End::kBytes / 4), 0x22, 64);
    const std::array piece{a_.sge(0, bad.length)};
    const RemoteAddress remote = bad.remote(b_);
    ASSERT_TRUE(bad.write ? a_.qp->post_write(piece, remote, 1) : a_.qp->post_read(piece, remote, 1));
    ASSERT_TRUE(a_.qp->post_send(piece, 2));
    a_.qp->ring_doorbell();
    // Our end says what was wrong and flushes the rest; the peer's receives come back flushed.
    ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 2 && b_.arrivals.size() == 2; }));
    ASSERT_EQ(a_.send_errors.size(), 2U);
    EXPECT_EQ(a_.send_errors[0].status, Status::kRemoteAccess);
    EXPECT_EQ(a_.send_errors[1].status, Status::kFlushed);
    for (const End::Arrival& arrival : b_.arrivals) EXPECT_EQ(arrival.completion.status, Status::kFlushed);
    EXPECT_EQ(a_.at(0)[0], std::byte{0x11});
    EXPECT_EQ(b_.at(End::kBytes / 4)[0], std::byte{0x22});
    ASSERT_NO_FATAL_FAILURE(close());
  }
}

TEST_P(ProviderSuite, LocalMemoryIsGuardedByItsKey) {
  ASSERT_NO_FATAL_FAILURE(listen());
  const std::array<Sge, 3> bad{Sge{a_.at(0), 64, a_.region.lkey ^ 1}, Sge{a_.at(End::kBytes) - 63, 64, a_.region.lkey},
                               Sge{a_.at(0) - 1, 64, a_.region.lkey}};
  for (const Sge& sge : bad) {
    const Traits traits = bed_->traits();
    const Status fault = sge.lkey == a_.region.lkey ? Status::kLocalProtection : traits.unknown_local_key;
    ASSERT_NO_FATAL_FAILURE(connect_again(1));
    ASSERT_TRUE(a_.qp->post_send(std::array{sge}, 1));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; }));
    ASSERT_EQ(a_.send_errors.size(), 1U);
    EXPECT_EQ(a_.send_errors[0].status, traits.send_fault(fault));
    ASSERT_NO_FATAL_FAILURE(close());
  }
}

TEST_P(ProviderSuite, ASendLongerThanTheReceiveFailsAtBothEnds) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  const std::array piece{a_.sge(0, End::kBufferBytes + 1)};
  ASSERT_TRUE(a_.qp->post_send(piece, 1));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1 && b_.arrivals.size() == 2; }));
  EXPECT_EQ(a_.send_errors.at(0).status, bed_->traits().too_long_at_sender);
  EXPECT_EQ(b_.arrivals[0].completion.status, bed_->traits().too_long_at_receiver);
  EXPECT_EQ(b_.arrivals[1].completion.status, Status::kFlushed);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AReceiveWithABadKeyFailsAtBothEnds) {
  ASSERT_NO_FATAL_FAILURE(connect(0));
  ASSERT_TRUE(b_.qp->post_receive(b_.buffer(0), End::kBufferBytes, b_.region.lkey ^ 1));
  b_.qp->publish_receives();
  ASSERT_TRUE(a_.send("x"));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.send_errors.size() == 1 && b_.arrivals.size() == 1; }));
  EXPECT_EQ(a_.send_errors[0].status, Status::kRemoteOperation);
  EXPECT_EQ(b_.arrivals[0].completion.status, bed_->traits().unknown_local_key);
  // What is posted behind it comes back by itself.
  ASSERT_TRUE(b_.qp->post_receive(b_.buffer(0), End::kBufferBytes, b_.region.lkey));
  b_.qp->publish_receives();
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 2; }));
  EXPECT_EQ(b_.arrivals[1].completion.status, Status::kFlushed);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AnInvalidateOfAWindowThatIsNotBoundFailsTheReceiver) {
  if (!bed_->traits().stands_bad_invalidates) GTEST_SKIP() << "this device cannot be asked to";
  ASSERT_NO_FATAL_FAILURE(connect(2));
  const std::uint32_t window = *b_.device->allocate_window(b_.id);
  const std::array piece{a_.sge(0, 8)};
  ASSERT_TRUE(a_.qp->post_send_invalidate(piece, window, 1));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1 && b_.arrivals.size() == 1; }));
  EXPECT_TRUE(a_.send_errors.empty());
  EXPECT_EQ(b_.arrivals[0].completion.status, Status::kRemoteInvalidRequest);
  // The receiver's QP is in error, so whatever comes next finds nobody.
  ASSERT_TRUE(a_.qp->post_send(piece, 2));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 2; }));
  EXPECT_EQ(a_.send_errors.at(0).status, Status::kRetryExceeded);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, ABindChecksWindowRegionAndRange) {
  ASSERT_NO_FATAL_FAILURE(listen());
  enum class Case { kUnknownWindow, kBoundAlready, kUnknownRegion, kOutsideRegion };
  for (const Case which : {Case::kUnknownWindow, Case::kBoundAlready, Case::kUnknownRegion, Case::kOutsideRegion}) {
    if (!bed_->traits().names_objects_by_key && (which == Case::kUnknownWindow || which == Case::kUnknownRegion))
      continue;
    ASSERT_NO_FATAL_FAILURE(connect_again(1));
    std::uint32_t window = *b_.device->allocate_window(b_.id);
    Sge range = b_.sge(0, 64);
    if (which == Case::kUnknownWindow) window = 0xffffff00U;
    if (which == Case::kUnknownRegion) range.lkey ^= 1;
    if (which == Case::kOutsideRegion) range = {b_.at(End::kBytes - 10), 11, b_.region.lkey};
    if (which == Case::kBoundAlready) {
      ASSERT_TRUE(b_.qp->post_bind(window, window, range, WindowAccess::kRemoteRead, kNoToken));
    }
    ASSERT_TRUE(b_.qp->post_bind(window, window, range, WindowAccess::kRemoteRead, 1));
    b_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.tokens.size() == 1; }));
    ASSERT_EQ(b_.send_errors.size(), 1U);
    EXPECT_EQ(b_.send_errors[0].status, bed_->traits().send_fault(Status::kWindowBind));
    ASSERT_NO_FATAL_FAILURE(close());
  }
}

TEST_P(ProviderSuite, AStaleInvalidateCannotKillAFreshWindow) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  const std::uint32_t window = *b_.device->allocate_window(b_.id);
  const std::uint32_t fresh = (window & ~0xffU) | ((window + 1) & 0xffU);
  ASSERT_TRUE(b_.qp->post_bind(window, fresh, b_.sge(0, 64), WindowAccess::kRemoteRead, 1));
  ASSERT_TRUE(b_.qp->post_invalidate(window, 2));
  b_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.tokens.size() == 2; }));
  ASSERT_EQ(b_.send_errors.size(), 1U);
  EXPECT_EQ(b_.send_errors[0].status, bed_->traits().send_fault(Status::kLocalQpOperation));
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AWindowCannotBeReachedBeyondItsBoundsOrRights) {
  ASSERT_NO_FATAL_FAILURE(listen());
  for (int which = 0; which < 3; ++which) {
    ASSERT_NO_FATAL_FAILURE(connect_again(1));
    const std::uint32_t window = *b_.device->allocate_window(b_.id);
    ASSERT_TRUE(b_.qp->post_bind(window, window, b_.sge(4096, 128), WindowAccess::kRemoteRead, 1));
    b_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.tokens.size() == 1; }));
    const std::array piece{a_.sge(0, 64)};
    const std::uint64_t start = b_.remote(4096).offset;
    const bool posted = which == 0   ? a_.qp->post_read(piece, {start + 65, window}, 1)
                        : which == 1 ? a_.qp->post_read(piece, {start - 1, window}, 1)
                                     : a_.qp->post_write(piece, {start, window}, 1);
    ASSERT_TRUE(posted);
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; }));
    if (which == 2 || bed_->traits().bounds_windows) {
      ASSERT_EQ(a_.send_errors.size(), 1U) << which;
      EXPECT_EQ(a_.send_errors[0].status, Status::kRemoteAccess) << which;
    } else {
      EXPECT_TRUE(a_.send_errors.empty()) << which;
    }
    ASSERT_NO_FATAL_FAILURE(close());
  }
}

TEST_P(ProviderSuite, MovingToErrorFlushesEverythingAndDrains) {
  ASSERT_NO_FATAL_FAILURE(connect(5));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a_.send("delivered"));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 3; }));
  ASSERT_TRUE(a_.send("not rung"));
  ASSERT_NO_FATAL_FAILURE(drain(a_));
  ASSERT_NO_FATAL_FAILURE(drain(b_));
  ASSERT_TRUE(run_until([&] { return a_.qp->drained() && b_.qp->drained(); }));
  EXPECT_EQ(a_.arrivals.size(), 5U);
  ASSERT_EQ(b_.arrivals.size(), 5U);
  EXPECT_EQ(b_.arrivals[2].completion.status, Status::kSuccess);
  EXPECT_EQ(b_.arrivals[3].completion.status, Status::kFlushed);
  EXPECT_EQ(b_.arrivals[4].completion.status, Status::kFlushed);
  // What is posted in error is flushed, too.
  ASSERT_TRUE(b_.qp->post_receive(b_.buffer(0), End::kBufferBytes, b_.region.lkey));
  b_.qp->publish_receives();
  ASSERT_TRUE(b_.qp->post_send({}, 7));
  b_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.qp->drained(); }));
  EXPECT_EQ(b_.arrivals.size(), 6U);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, APeerInErrorAnswersNothing) {
  ASSERT_NO_FATAL_FAILURE(connect(2));
  ASSERT_NO_FATAL_FAILURE(drain(b_));
  run_a_while();
  ASSERT_TRUE(a_.qp->post_send({}, 1));
  ASSERT_TRUE(a_.qp->post_send({}, 2));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 2; }));
  EXPECT_EQ(a_.send_errors.at(0).status, Status::kRetryExceeded);
  EXPECT_EQ(a_.send_errors.at(1).status, Status::kFlushed);
  ASSERT_TRUE(run_until([&] { return b_.qp->drained(); }));
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, SendsGiveUpWhenTheReceiverIsNeverReady) {
  bed_.reset();
  ASSERT_NO_FATAL_FAILURE(open(3));
  ASSERT_NO_FATAL_FAILURE(connect(0));
  ASSERT_TRUE(a_.qp->post_send({}, 1));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; }));
  EXPECT_EQ(a_.send_errors.at(0).status, Status::kRnrRetryExceeded);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, ARejectedConnectionSaysWhy) {
  ASSERT_NO_FATAL_FAILURE(listen());
  a_.id = *a_.device->connect(bed_->address(), *a_.group);
  ASSERT_TRUE(run_until([&] { return has_event(a_, CmEventKind::kRouteResolved); }));
  a_.qp = *a_.device->make_qp(a_.id, kSizes);
  a_.post_receives(1);
  ASSERT_TRUE(a_.device->finish_connect(a_.id, {}));
  ASSERT_TRUE(run_until([&] { return has_event(b_, CmEventKind::kConnectRequest); }));
  const std::array<std::byte, 3> data{std::byte{4}, std::byte{5}, std::byte{6}};
  b_.device->reject(b_.events.back().id, data, "no room");
  ASSERT_TRUE(run_until([&] { return has_event(a_, CmEventKind::kRejected); }));
  if (bed_->traits().carries_reasons) {
    EXPECT_EQ(a_.events.back().reason, "no room");
  }
  EXPECT_FALSE(a_.events.back().reason.empty());
  EXPECT_TRUE(arrived(data, a_.events.back().private_data));
  ASSERT_NO_FATAL_FAILURE(drain(a_));
  ASSERT_TRUE(run_until([&] { return a_.qp->drained(); }));
  a_.device->destroy(a_.id);
  a_.qp = nullptr;
}

TEST_P(ProviderSuite, WhatCannotWorkIsRefusedWithAReason) {
  if (bed_->traits().hears_at_once) {
    EXPECT_FALSE(a_.device->connect(bed_->address(), *a_.group));  // nobody listens
  }
  const auto other = bed_->address().scheme == Address::Scheme::kRdma ? Address::Scheme::kSoft : Address::Scheme::kRdma;
  EXPECT_FALSE(a_.device->connect(Address{other, "host", 1}, *a_.group));
  EXPECT_FALSE(a_.device->make_qp(CmId{12345}, kSizes));
  EXPECT_FALSE(a_.device->allocate_window(CmId{12345}));
  EXPECT_FALSE(a_.device->accept(CmId{12345}, {}));
  EXPECT_FALSE(a_.device->finish_connect(CmId{12345}, {}));
  ASSERT_NO_FATAL_FAILURE(listen());
  EXPECT_FALSE(a_.device->listen(bed_->address()));  // somebody listens
  EXPECT_FALSE(a_.device->connect(bed_->address(), *b_.group));
  EXPECT_FALSE(a_.device->register_memory({}, -1, 0, Access::kLocal));
  a_.id = *a_.device->connect(bed_->address(), *a_.group);
  ASSERT_TRUE(run_until([&] { return has_event(a_, CmEventKind::kRouteResolved); }));
  EXPECT_FALSE(a_.device->make_qp(a_.id, {.send_depth = 0, .receive_depth = 1}));
  EXPECT_FALSE(a_.device->make_qp(a_.id, {.send_depth = 1, .receive_depth = 1'000'000}));
  EXPECT_FALSE(a_.device->finish_connect(a_.id, {}));  // without a QP
  ASSERT_TRUE(a_.device->make_qp(a_.id, kSizes));
  EXPECT_FALSE(a_.device->make_qp(a_.id, kSizes));
  const std::vector<std::byte> long_data(57);
  EXPECT_FALSE(a_.device->finish_connect(a_.id, long_data));
  a_.device->destroy(a_.id);
  // And then the listener still serves.
  ASSERT_NO_FATAL_FAILURE(connect_again(1));
  ASSERT_NO_FATAL_FAILURE(close());
}

}  // namespace rodeo::dv::suite
