// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "dv/provider_suite.h"
#include "pools/proves.h"

// What works.

namespace rodeo::dv::suite {

namespace {

void fill(std::span<std::byte> bytes, std::uint32_t seed) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>((i * 31 + seed + (i >> 8)) & 0xff);
}

}  // namespace

TEST_P(ProviderSuite, ConnectsWithPrivateDataBothWays) {
  ASSERT_NO_FATAL_FAILURE(connect(4));
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, DeliversInlineSendsInOrder) {
  ASSERT_NO_FATAL_FAILURE(connect(8));
  ASSERT_TRUE(a_.send("one"));
  ASSERT_TRUE(a_.send("two"));
  ASSERT_TRUE(a_.send("three"));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 3; }));
  EXPECT_EQ(End::text(b_.arrivals[0]), "one");
  EXPECT_EQ(End::text(b_.arrivals[1]), "two");
  EXPECT_EQ(End::text(b_.arrivals[2]), "three");
  ASSERT_TRUE(b_.send("back"));
  b_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.arrivals.size() == 1; }));
  EXPECT_EQ(End::text(a_.arrivals[0]), "back");
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, NothingIsSentBeforeTheDoorbell) {
  ASSERT_NO_FATAL_FAILURE(connect(4));
  ASSERT_TRUE(a_.send("later"));
  run_a_while();
  EXPECT_TRUE(b_.arrivals.empty());
  a_.qp->ring_doorbell();
  EXPECT_TRUE(run_until([&] { return b_.arrivals.size() == 1; }));
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, InlineSendsOfEveryLengthArriveWhole) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  std::string text(a_.qp->max_inline(), '\0');
  for (std::uint32_t length = 0; length <= a_.qp->max_inline(); ++length) {
    for (std::uint32_t i = 0; i < length; ++i) text[i] = static_cast<char>(i * 7 + length);
    std::memset(b_.buffer(0), 0x5a, End::kBufferBytes);
    ASSERT_TRUE(a_.send(std::string_view(text).substr(0, length)));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 1; })) << length;
    ASSERT_EQ(b_.arrivals[0].completion.byte_count, length);
    ASSERT_EQ(End::text(b_.arrivals[0]), text.substr(0, length));
    b_.arrivals.clear();
    ASSERT_TRUE(b_.qp->post_receive(b_.buffer(0), End::kBufferBytes, b_.region.lkey));
    b_.qp->publish_receives();
  }
  EXPECT_EQ(a_.qp->post_inline_send(a_.qp->max_inline() + 1), nullptr);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, GathersASendFromSeveralPieces) {
  ASSERT_NO_FATAL_FAILURE(connect(4));
  fill(std::span(a_.at(0), 4096), 1);
  const std::array pieces{a_.sge(0, 100), a_.sge(512, 0), a_.sge(1000, 7), a_.sge(2000, 1500)};
  ASSERT_TRUE(a_.qp->post_send(pieces, 5));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 1 && a_.tokens.size() == 1; }));
  EXPECT_EQ(a_.tokens, std::vector<Token>{5});
  ASSERT_EQ(b_.arrivals[0].completion.byte_count, 1607U);
  const std::byte* got = b_.arrivals[0].buffer;
  EXPECT_EQ(std::memcmp(got, a_.at(0), 100), 0);
  EXPECT_EQ(std::memcmp(got + 100, a_.at(1000), 7), 0);
  EXPECT_EQ(std::memcmp(got + 107, a_.at(2000), 1500), 0);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, WritesAndReadsEverySizeUpToAMebibyte) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  for (const std::size_t size : {1U, 3U, 63U, 64U, 65U, 4095U, 4096U, 65536U, 1000001U, 1048576U}) {
    fill(std::span(a_.at(0), size), static_cast<std::uint32_t>(size));
    std::memset(b_.at(0), 0, size + 1);
    const std::array source{a_.sge(0, size)};
    ASSERT_TRUE(a_.qp->post_write(source, b_.remote(0), 1));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; })) << size;
    ASSERT_EQ(std::memcmp(b_.at(0), a_.at(0), size), 0) << size;
    ASSERT_EQ(b_.at(0)[size], std::byte{0}) << size;

    std::memset(a_.at(0), 0, size);
    const std::array target{a_.sge(0, size)};
    ASSERT_TRUE(a_.qp->post_read(target, b_.remote(0), 2));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 2; })) << size;
    ASSERT_EQ(std::memcmp(b_.at(0), a_.at(0), size), 0) << size;
    a_.tokens.clear();
  }
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, ReadsScatterOverSeveralPieces) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  fill(std::span(b_.at(0), 3000), 9);
  const std::array target{a_.sge(0, 1000), a_.sge(5000, 1), a_.sge(9000, 1999)};
  ASSERT_TRUE(a_.qp->post_read(target, b_.remote(0), 1));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; }));
  EXPECT_EQ(std::memcmp(a_.at(0), b_.at(0), 1000), 0);
  EXPECT_EQ(std::memcmp(a_.at(5000), b_.at(1000), 1), 0);
  EXPECT_EQ(std::memcmp(a_.at(9000), b_.at(1001), 1999), 0);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, ZeroLengthOperationsSucceedAndLookAtNoKey) {
  proves("F15");
  ASSERT_NO_FATAL_FAILURE(connect(2));
  ASSERT_TRUE(a_.qp->post_send({}, 1));
  ASSERT_TRUE(a_.qp->post_write({}, {0, 0xdeadbeef}, 2));
  ASSERT_TRUE(a_.qp->post_read({}, {0, 0xdeadbeef}, 3));
  const std::array empty{a_.sge(0, 0)};
  ASSERT_TRUE(a_.qp->post_write(empty, {0, 0}, 4));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 4 && b_.arrivals.size() == 1; }));
  EXPECT_TRUE(a_.send_errors.empty());
  EXPECT_EQ(b_.arrivals[0].completion.byte_count, 0U);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AWriteIsVisibleWhenTheSendBehindItArrives) {
  ASSERT_NO_FATAL_FAILURE(connect(8));
  for (std::uint32_t round = 0; round < 200; ++round) {
    fill(std::span(a_.at(0), 5000), round);
    const std::array source{a_.sge(0, 5000)};
    ASSERT_TRUE(a_.qp->post_write(source, b_.remote(100), kNoToken));
    ASSERT_TRUE(a_.send("written"));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return !b_.arrivals.empty(); }));
    ASSERT_EQ(std::memcmp(b_.at(100), a_.at(0), 5000), 0) << round;
    std::byte* buffer = b_.arrivals[0].buffer;
    b_.arrivals.clear();
    ASSERT_TRUE(b_.qp->post_receive(buffer, End::kBufferBytes, b_.region.lkey));
    b_.qp->publish_receives();
  }
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, TokensRetireInPostingOrder) {
  ASSERT_NO_FATAL_FAILURE(connect(16));
  const std::array piece{a_.sge(0, 64)};
  std::vector<Token> expected;
  for (Token token = 1; token <= 12; ++token) {
    if (token % 3 == 0) {
      ASSERT_TRUE(a_.qp->post_read(piece, b_.remote(0), token));
    } else if (token % 3 == 1) {
      ASSERT_TRUE(a_.qp->post_write(piece, b_.remote(0), token));
    } else {
      ASSERT_TRUE(a_.qp->post_send(piece, token));
    }
    expected.push_back(token);
  }
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 12; }));
  EXPECT_EQ(a_.tokens, expected);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, SendsWaitForAReceiveAndThenGoOnInOrder) {
  ASSERT_NO_FATAL_FAILURE(connect(1));
  for (const char* text : {"first", "second", "third"}) ASSERT_TRUE(a_.send(text));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 1; }));
  run_a_while();
  EXPECT_EQ(b_.arrivals.size(), 1U);
  ASSERT_TRUE(b_.qp->post_receive(b_.buffer(1), End::kBufferBytes, b_.region.lkey));
  ASSERT_TRUE(b_.qp->post_receive(b_.buffer(2), End::kBufferBytes, b_.region.lkey));
  b_.qp->publish_receives();
  ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 3; }));
  EXPECT_EQ(End::text(b_.arrivals[1]), "second");
  EXPECT_EQ(End::text(b_.arrivals[2]), "third");
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AFullSendQueueRefusesAndRecovers) {
  ASSERT_NO_FATAL_FAILURE(connect(0, {.send_depth = 32, .receive_depth = 64}));
  std::uint32_t posted = 0;
  while (a_.send("full")) ++posted;
  EXPECT_GE(posted, 32U);
  a_.qp->ring_doorbell();
  EXPECT_FALSE(a_.send("no room"));
  for (std::uint32_t i = 0; i < posted; ++i) {
    ASSERT_TRUE(b_.qp->post_receive(b_.buffer(i % 64), End::kBufferBytes, b_.region.lkey));
    if (b_.qp->receives_posted() == 64 || i + 1 == posted) {
      b_.qp->publish_receives();
      ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == i + 1; }));
    }
  }
  ASSERT_TRUE(run_until([&] { return a_.qp->send_room() != 0; }));
  EXPECT_TRUE(a_.send("room"));
  a_.qp->ring_doorbell();
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, ManyMessagesArriveIntactOverManyLapsOfTheRings) {
  const std::uint32_t messages = bed_->traits().many_messages;
  ASSERT_NO_FATAL_FAILURE(connect(64));
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  const auto length_of = [](std::uint32_t n) { return 8 + n * 37 % 300; };
  const bool done = run_until([&] {
    for (int burst = 0; burst < 16 && sent < messages; ++burst) {
      const std::uint32_t length = length_of(sent);
      std::byte* bytes = a_.qp->post_inline_send(length);
      if (bytes == nullptr) break;
      std::memset(bytes, static_cast<int>(sent & 0xff), length);
      std::memcpy(bytes, &sent, sizeof sent);
      ++sent;
    }
    a_.qp->ring_doorbell();
    while (!b_.arrivals.empty()) {
      const End::Arrival arrival = b_.arrivals.front();
      b_.arrivals.pop_front();
      std::uint32_t n = 0;
      std::memcpy(&n, arrival.buffer, sizeof n);
      const std::uint32_t length = length_of(received);
      const auto* bytes = reinterpret_cast<const unsigned char*>(arrival.buffer);
      if (n != received || arrival.completion.byte_count != length || bytes[length - 1] != (received & 0xff) ||
          bytes[sizeof n] != (received & 0xff)) {
        ADD_FAILURE() << "message " << received << " arrived as " << n;
        return true;
      }
      ++received;
      EXPECT_TRUE(b_.qp->post_receive(arrival.buffer, End::kBufferBytes, b_.region.lkey));
    }
    b_.qp->publish_receives();
    return received == messages;
  });
  EXPECT_TRUE(done) << received << " of " << sent;
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AWindowGivesAccessUntilItIsInvalidated) {
  ASSERT_NO_FATAL_FAILURE(connect(4));
  auto window = b_.device->allocate_window(b_.id);
  ASSERT_TRUE(window) << window.error().message();
  const std::uint32_t key = (*window & ~0xffU) | 0x77;
  fill(std::span(b_.at(8192), 1000), 3);
  ASSERT_TRUE(b_.qp->post_bind(*window, key, b_.sge(8192, 1000), WindowAccess::kRemoteRead, 1));
  b_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.tokens.size() == 1; }));
  ASSERT_TRUE(b_.send_errors.empty());

  const std::array target{a_.sge(0, 1000)};
  ASSERT_TRUE(a_.qp->post_read(target, {b_.remote(8192).offset, key}, 2));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 1; }));
  EXPECT_TRUE(a_.send_errors.empty());
  EXPECT_EQ(std::memcmp(a_.at(0), b_.at(8192), 1000), 0);

  ASSERT_TRUE(b_.qp->post_invalidate(key, 3));
  b_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return b_.tokens.size() == 2; }));
  EXPECT_TRUE(b_.send_errors.empty());
  ASSERT_TRUE(a_.qp->post_read(target, {b_.remote(8192).offset, key}, 4));
  a_.qp->ring_doorbell();
  ASSERT_TRUE(run_until([&] { return a_.tokens.size() == 2; }));
  ASSERT_EQ(a_.send_errors.size(), 1U);
  EXPECT_EQ(a_.send_errors[0].status, Status::kRemoteAccess);
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, AWindowCanBeBoundInEverySlotOfTheQueue) {
  ASSERT_NO_FATAL_FAILURE(connect(4));
  auto window = b_.device->allocate_window(b_.id);
  ASSERT_TRUE(window) << window.error().message();
  std::uint32_t present = *window;
  // Three requests a round, so that each kind comes to stand in slots where the others have been.
  for (std::uint32_t round = 1; round <= 3 * kSizes.send_depth; ++round) {
    const std::uint32_t key = (present & ~0xffU) | ((present + 1) & 0xffU);
    ASSERT_TRUE(
        b_.qp->post_bind(std::exchange(present, key), key, b_.sge(0, 4096), WindowAccess::kRemoteWrite, kNoToken));
    const std::array source{b_.sge(0, 16)};
    ASSERT_TRUE(b_.qp->post_write(source, a_.remote(0), kNoToken));
    ASSERT_TRUE(b_.qp->post_invalidate(key, round));
    b_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.tokens.size() == round; }));
    ASSERT_TRUE(b_.send_errors.empty()) << "in round " << round;
  }
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, SendWithInvalidateTakesTheWindowAndSaysWhich) {
  ASSERT_NO_FATAL_FAILURE(connect(4));
  std::uint32_t present = *b_.device->allocate_window(b_.id);
  for (std::uint32_t round = 1; round <= 3; ++round) {  // a window that was invalidated can be bound again
    const std::uint32_t key = (present & ~0xffU) | round;
    ASSERT_TRUE(b_.qp->post_bind(std::exchange(present, key), key, b_.sge(0, 4096), WindowAccess::kRemoteWrite, round));
    b_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.tokens.size() == round; }));
    const std::array source{a_.sge(0, 16)};
    ASSERT_TRUE(a_.qp->post_write(source, {b_.remote(16).offset, key}, kNoToken));
    ASSERT_TRUE(a_.qp->post_send_invalidate(source, key, round));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == round && a_.tokens.size() == round; }));
    EXPECT_TRUE(a_.send_errors.empty());
    EXPECT_EQ(b_.arrivals.back().completion.kind, CompletionKind::kReceiveInvalidate);
    EXPECT_EQ(b_.arrivals.back().completion.invalidated_key, key);
    EXPECT_EQ(b_.arrivals.back().completion.byte_count, 16U);
  }
  ASSERT_NO_FATAL_FAILURE(close());
}

TEST_P(ProviderSuite, ConnectionsCanBeMadeAgainAndAgain) {
  ASSERT_NO_FATAL_FAILURE(listen());
  for (int round = 0; round < 20; ++round) {
    ASSERT_NO_FATAL_FAILURE(connect_again(4));
    ASSERT_TRUE(a_.send("again"));
    a_.qp->ring_doorbell();
    ASSERT_TRUE(run_until([&] { return b_.arrivals.size() == 1; }));
    ASSERT_NO_FATAL_FAILURE(close());
  }
}

TEST_P(ProviderSuite, ConnectionsThatLiveTogetherHaveQpNumbersOfTheirOwn) {
  const int together = bed_->traits().many_connections;
  ASSERT_NO_FATAL_FAILURE(listen());
  // The second round gets numbers that the first has given back, and fresh ones beside them.
  for (int round = 0; round < 2; ++round) {
    std::vector<std::array<std::pair<CmId, tested::Qp*>, 2>> open;
    std::array<std::set<std::uint32_t>, 2> numbers;
    for (int i = 0; i < together; ++i) {
      ASSERT_NO_FATAL_FAILURE(connect_again(1));
      for (std::size_t end = 0; end < 2; ++end) {
        EXPECT_TRUE(numbers[end].insert(ends_[end].qp->qpn()).second) << ends_[end].qp->qpn() << " names two QPs";
      }
      open.push_back({std::pair(a_.id, a_.qp), std::pair(b_.id, b_.qp)});
    }
    for (const auto& connection : open) {
      for (std::size_t end = 0; end < 2; ++end) {
        std::tie(ends_[end].id, ends_[end].qp) = connection[end];
        ends_[end].events.clear();
        ends_[end].arrivals.clear();
      }
      ASSERT_NO_FATAL_FAILURE(close());
    }
  }
}

}  // namespace rodeo::dv::suite
