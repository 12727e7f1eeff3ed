// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "dv/soft/party.h"

// Every operation between two processes that share nothing but what the devices map. The child serves: it answers each
// message with the same octets, and its memory is ours to read and write.

namespace rodeo::dv::suite {

namespace {

struct Welcome {
  RemoteAddress memory;
  RemoteAddress window;  // the first 4096 octets again, read only
  std::uint32_t window_key = 0;
};

[[noreturn]] void serve() {
  Party server("twins");
  if (!server.device->listen(server.address) || !server.accept(64)) _exit(1);
  End& end = server.end;
  for (std::size_t i = 0; i < End::kBytes / 2; ++i) end.at(0)[i] = static_cast<std::byte>(i * 7 >> 3);
  const std::uint32_t window = *server.device->allocate_window(end.id);
  Welcome welcome;
  welcome.memory = end.remote(0);
  welcome.window_key = (window & ~0xffU) | 0x42;
  welcome.window = {end.remote(0).offset, welcome.window_key};
  if (!end.qp->post_bind(window, welcome.window_key, end.sge(0, 4096), WindowAccess::kRemoteRead, 1)) _exit(2);
  std::byte* bytes = end.qp->post_inline_send(sizeof welcome);
  if (bytes == nullptr) _exit(3);
  std::memcpy(bytes, &welcome, sizeof welcome);
  end.qp->ring_doorbell();
  for (;;) {
    server.turn();
    if (server.has(CmEventKind::kDisconnected)) _exit(server.clean_up() ? 0 : 4);
    while (!end.arrivals.empty()) {
      const End::Arrival arrival = end.arrivals.front();
      if (arrival.completion.status != Status::kSuccess) {
        end.arrivals.pop_front();
        continue;
      }
      std::byte* answer = end.qp->post_inline_send(arrival.completion.byte_count);
      if (answer == nullptr) break;  // room comes with completions
      end.arrivals.pop_front();
      std::memcpy(answer, arrival.buffer, arrival.completion.byte_count);
      if (!end.qp->post_receive(arrival.buffer, End::kBufferBytes, end.region.lkey)) _exit(5);
    }
    end.qp->publish_receives();
    end.qp->ring_doorbell();
  }
}

class TwoProcesses : public BetweenProcesses {
 protected:
  void SetUp() override {
    BetweenProcesses::SetUp();
    child_ = in_child([] { serve(); });
    ASSERT_GT(child_, 0);
    client_ = std::make_unique<Party>("twins");
    ASSERT_TRUE(client_->connect(64));
    ASSERT_TRUE(client_->run_until([&] { return client_->end.arrivals.size() == 1; }));
    const End::Arrival arrival = client_->end.arrivals.front();
    ASSERT_EQ(arrival.completion.byte_count, sizeof welcome_);
    std::memcpy(&welcome_, arrival.buffer, sizeof welcome_);
    client_->end.arrivals.clear();
    repost(arrival);
  }
  void TearDown() override {
    if (client_ != nullptr && client_->end.qp != nullptr) {
      client_->device->disconnect(client_->end.id);
      EXPECT_TRUE(client_->clean_up());
    }
    int status = -1;
    EXPECT_EQ(waitpid(child_, &status, 0), child_);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0) << "the child drained and left in good order";
    BetweenProcesses::TearDown();
  }
  void repost(const End::Arrival& arrival) {
    End& end = client_->end;
    ASSERT_TRUE(end.qp->post_receive(arrival.buffer, End::kBufferBytes, end.region.lkey));
    end.qp->publish_receives();
  }
  /// Rings and waits for `token`.
  void complete(Token token) {
    client_->end.qp->ring_doorbell();
    ASSERT_TRUE(
        client_->run_until([&] { return !client_->end.tokens.empty() && client_->end.tokens.back() == token; }));
  }

  pid_t child_ = -1;
  std::unique_ptr<Party> client_;
  Welcome welcome_;
};

}  // namespace

TEST_F(TwoProcesses, AHundredThousandMessagesGoThereAndBackIntact) {
  constexpr std::uint32_t kMessages = 100'000;
  constexpr std::uint32_t kWindow = 48;
  End& end = client_->end;
  std::uint32_t sent = 0;
  std::uint32_t received = 0;
  const auto length_of = [](std::uint32_t n) { return 4 + n * 13 % 500; };
  const bool done = client_->run_until(
      [&] {
        while (sent < kMessages && sent - received < kWindow) {
          std::byte* bytes = end.qp->post_inline_send(length_of(sent));
          if (bytes == nullptr) break;
          std::memset(bytes, static_cast<int>(sent % 251), length_of(sent));
          std::memcpy(bytes, &sent, sizeof sent);
          ++sent;
        }
        end.qp->ring_doorbell();
        while (!end.arrivals.empty()) {
          const End::Arrival arrival = end.arrivals.front();
          end.arrivals.pop_front();
          std::uint32_t n = 0;
          std::memcpy(&n, arrival.buffer, sizeof n);
          const std::uint32_t length = length_of(received);
          if (n != received || arrival.completion.byte_count != length ||
              (length > 4 && arrival.buffer[length - 1] != static_cast<std::byte>(received % 251))) {
            ADD_FAILURE() << "message " << received << " came back as " << n;
            return true;
          }
          ++received;
          static_cast<void>(end.qp->post_receive(arrival.buffer, End::kBufferBytes, end.region.lkey));
        }
        end.qp->publish_receives();
        return received == kMessages;
      },
      milliseconds(60000));
  EXPECT_TRUE(done) << received << " of " << sent;
}

TEST_F(TwoProcesses, ReadsAndWritesReachTheOthersMemory) {
  End& end = client_->end;
  const std::size_t size = End::kBytes / 2 - 12345;
  ASSERT_TRUE(end.qp->post_read(std::array{end.sge(0, size)}, welcome_.memory, 7));
  ASSERT_NO_FATAL_FAILURE(complete(7));
  ASSERT_TRUE(end.send_errors.empty());
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(end.at(0)[i], static_cast<std::byte>(i * 7 >> 3)) << i;

  for (std::size_t i = 0; i < size; ++i) end.at(0)[i] = static_cast<std::byte>(i * 5 >> 2);
  ASSERT_TRUE(end.qp->post_write(std::array{end.sge(0, size)}, welcome_.memory, 8));
  ASSERT_NO_FATAL_FAILURE(complete(8));
  std::memset(end.at(0), 0, size);
  ASSERT_TRUE(end.qp->post_read(std::array{end.sge(0, size)}, welcome_.memory, 9));
  ASSERT_NO_FATAL_FAILURE(complete(9));
  for (std::size_t i = 0; i < size; ++i) ASSERT_EQ(end.at(0)[i], static_cast<std::byte>(i * 5 >> 2)) << i;
}

TEST_F(TwoProcesses, AWindowOfTheOtherServesUntilWeInvalidateIt) {
  End& end = client_->end;
  ASSERT_TRUE(end.qp->post_read(std::array{end.sge(0, 4096)}, welcome_.window, 7));
  ASSERT_TRUE(end.qp->post_send_invalidate(std::array{end.sge(0, 16)}, welcome_.window_key, 8));
  ASSERT_NO_FATAL_FAILURE(complete(8));
  EXPECT_TRUE(end.send_errors.empty());
  EXPECT_EQ(end.at(0)[4000], static_cast<std::byte>((4000 * 7 >> 3) & 0xff));
  ASSERT_TRUE(end.qp->post_read(std::array{end.sge(0, 64)}, welcome_.window, 9));
  ASSERT_NO_FATAL_FAILURE(complete(9));
  ASSERT_EQ(end.send_errors.size(), 1U);
  EXPECT_EQ(end.send_errors[0].status, Status::kRemoteAccess);
}

}  // namespace rodeo::dv::suite
