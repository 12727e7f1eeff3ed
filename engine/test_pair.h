// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: two engines in one thread, a Responder and a Requester, over the software HCA of this host; and a raw peer
// that sends whatever octets a test wants. Every turn is taken by hand, so nothing here sleeps or races.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/providers.h"
#include "engine/private_data.h"
#include "engine/rodeo.h"
#include "engine/test_shared_receives.h"
#include "engine/test_words.h"
#include "engine/xdr_writer.h"
#include "pools/arena.h"

namespace rodeo::test {

/// A fresh runtime directory for the sockets of one test program, gone at its end.
class RuntimeDirectory {
 public:
  RuntimeDirectory() {
    char name[] = "/tmp/rodeo-test-XXXXXX";
    path_ = ::mkdtemp(name);
    ::setenv("RODEO_RUNTIME_DIR", path_.c_str(), 1);
  }
  ~RuntimeDirectory() { ::rmdir(path_.c_str()); }
  RuntimeDirectory(const RuntimeDirectory&) = delete;
  RuntimeDirectory& operator=(const RuntimeDirectory&) = delete;

 private:
  std::string path_;
};

[[nodiscard]] inline Config small_config() {
  Config config;
  config.shared_receives = shared_receives();
  config.hugepages = false;
  config.credits = 16;
  config.connections = 4;
  config.bulk_bytes = 256 * 1024;
  config.bulk_buffers = 16;
  config.application_bytes = 1 << 20;
  return config;
}

template <class T>
[[nodiscard]] T must(Result<T> result) {
  if (!result) {
    ADD_FAILURE() << result.error().message();
    std::abort();
  }
  return std::move(*result);
}

/// A Responder engine with some programs, and whatever Requesters a test connects to it.
class Pair {
 public:
  explicit Pair(Program program, Config server_config = small_config(), Config client_config = small_config(),
                std::vector<Program> others = {})
      : Pair(
            [&](Engine& engine) {
              EXPECT_TRUE(engine.add_program(std::move(program)));
              for (Program& other : others) EXPECT_TRUE(engine.add_program(std::move(other)));
            },
            server_config, client_config) {}
  /// `set_up` adds what the Responder serves; `set_up_client`, what the Requester may be called for in reverse.
  Pair(const std::function<void(Engine&)>& set_up, const Config& server_config, const Config& client_config,
       const std::function<void(Engine&)>& set_up_client = {}) {
    static int count = 0;
    address = "soft:pair" + std::to_string(count++);
    server = must(Engine::open(address, server_config));
    client = must(Engine::open(address, client_config));
    set_up(*server);
    if (set_up_client) set_up_client(*client);
    EXPECT_TRUE(server->start());
    EXPECT_TRUE(client->start());
    EXPECT_TRUE(server->listen(address));
  }

  Connection* connect(std::uint32_t credits = 0) {
    const std::uint64_t attempt = must(client->begin_connect(address, 0, credits));
    for (int i = 0; i < 100000; ++i) {
      turn();
      if (Connection* connection = must(client->finish_connect(attempt))) return connection;
    }
    ADD_FAILURE() << "the connection was not established";
    return nullptr;
  }

  void turn() {
    server->step();
    client->step();
  }
  /// Turns until `done`, or fails.
  void until(const std::function<bool()>& done, int turns = 200000) {
    for (int i = 0; i < turns; ++i) {
      if (done()) return;
      turn();
    }
    ADD_FAILURE() << "it did not happen";
  }

  [[nodiscard]] static std::uint64_t counter(const Engine& engine, std::string_view name) {
    for (const CounterValue& value : engine.counters()) {
      if (value.name == name) return value.value;
    }
    ADD_FAILURE() << "no counter " << name;
    return 0;
  }

  std::string address;
  std::unique_ptr<Engine> server;
  std::unique_ptr<Engine> client;
};

/// What a completion saw, copied.
struct Seen {
  int times = 0;
  CallError error = CallError::kNone;
  AcceptStat accept_stat = AcceptStat::kSuccess;
  std::vector<std::byte> results;
  std::vector<std::uint32_t> written;

  static void on_reply(void* context, const Reply& reply) noexcept {
    auto& seen = *static_cast<Seen*>(context);
    ++seen.times;
    seen.error = reply.error;
    seen.accept_stat = reply.accept_stat;
    seen.results.assign(reply.results.begin(), reply.results.end());
    seen.written.assign(reply.written.begin(), reply.written.end());
  }
};

/// Makes one call and turns until it has ended.
[[nodiscard]] inline Seen call_once(Pair& pair, Connection& connection, CallRequest request) {
  Seen seen;
  request.on_reply = Seen::on_reply;
  request.context = &seen;
  EXPECT_EQ(connection.submit(request), SubmitOutcome::kPosted);
  pair.until([&] { return seen.times != 0; });
  EXPECT_EQ(seen.times, 1);
  return seen;
}

inline void expect_adds_up(const Engine& engine) {
  const auto [ok, text] = engine.audit();
  EXPECT_TRUE(ok) << text;
}

/// Stops both ends, the Requester first, and finds everything back in its place.
inline void expect_all_home(Pair& pair) {
  pair.client->stop();
  pair.until([&] { return pair.server->connection_count() == 0; });
  pair.server->stop();
  for (const Engine* engine : {pair.client.get(), pair.server.get()}) expect_adds_up(*engine);
}

/// A Requester without an engine: it owns a QP and sends raw messages.
class RawPeer {
 public:
  static constexpr std::size_t kBuffer = 4096;
  static constexpr std::uint32_t kReceives = 32;

  explicit RawPeer(Pair& pair, const PrivateData& own = {.send_size = 4096, .receive_size = 4096})
      : RawPeer(pair, encode_private_data(own)) {}
  /// `private_data` goes into the connect request.
  RawPeer(Pair& pair, std::span<const std::byte> private_data)
      : pair_(pair), private_data_(private_data.begin(), private_data.end()) {
    const auto address = must(dv::Address::parse(pair.address));
    device_ = must(dv::open_soft_device(address));
    arena_ = std::make_unique<pools::Arena>(must(pools::Arena::create({.bytes = 1 << 20, .hugepages = false})));
    region_ = must(device_->register_memory(arena_->bytes(), arena_->fd(), 0, dv::Access::kRemoteReadWrite));
    group_ = must(device_->make_poll_group());
    id_ = must(device_->connect(address, *group_));
    for (int i = 0; i < 100000 && !established_; ++i) {
      pair_.server->step();
      poll_events();
    }
    EXPECT_TRUE(established_);
  }

  void send(std::span<const std::byte> message) {
    std::memcpy(arena_->bytes().data() + kSendAt, message.data(), message.size());
    const dv::Sge sge{arena_->bytes().data() + kSendAt, static_cast<std::uint32_t>(message.size()), region_.lkey};
    ASSERT_TRUE(qp_->post_send({&sge, 1}, 1));
    qp_->ring_doorbell();
    ++sent_;
  }
  void send_words(const Words& words) { send(bytes_of(words)); }

  /// The next message of the Responder, or nothing within some turns.
  [[nodiscard]] std::vector<std::byte> receive(int turns = 2000) {
    std::byte* buffer = nullptr;
    std::vector<std::byte> message = receive_into(buffer, turns);
    if (buffer != nullptr) {
      EXPECT_TRUE(qp_->post_receive(buffer, kBuffer, region_.lkey));
      qp_->publish_receives();
    }
    return message;
  }
  /// Takes what has come and posts no receives for more.
  void fall_silent() {
    std::byte* buffer = nullptr;
    while (!receive_into(buffer, 5).empty()) {
    }
  }

  /// Polls this end alone, while no Reply is under way. How many of our Sends the Responder's QP has received.
  [[nodiscard]] std::uint64_t delivered() {
    dv::Completion completion;
    for (int i = 0; i < 100; ++i) {
      while (dv::poll_into(*group_, {&completion, 1}) != 0) {
        EXPECT_EQ(completion.kind, dv::CompletionKind::kSendQueue);
        retire(completion);
      }
      group_->progress();
    }
    return delivered_;
  }
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }
  /// The keys that messages invalidated, in their order.
  [[nodiscard]] const std::vector<std::uint32_t>& invalidated() const noexcept { return invalidated_; }
  /// Binds a memory window to octets of memory(); returns its key.
  [[nodiscard]] std::uint32_t expose(std::size_t at, std::uint32_t length, dv::WindowAccess access) {
    const std::uint32_t free = must(device_->allocate_window(id_));
    const std::uint32_t key = free ^ 1U;
    EXPECT_TRUE(qp_->post_bind(free, key, {memory() + at, length, region_.lkey}, access, dv::kNoToken));
    qp_->ring_doorbell();
    return key;
  }

  [[nodiscard]] bool disconnected() const noexcept { return disconnected_ || failed_; }
  [[nodiscard]] std::byte* memory() noexcept { return arena_->bytes().data() + kMemoryAt; }
  [[nodiscard]] std::uint32_t handle() const noexcept { return region_.rkey; }
  [[nodiscard]] std::uint64_t offset() noexcept { return reinterpret_cast<std::uintptr_t>(memory()); }

 private:
  [[nodiscard]] std::vector<std::byte> receive_into(std::byte*& buffer, int turns) {
    buffer = nullptr;
    for (int i = 0; i < turns; ++i) {
      pair_.server->step();
      poll_events();
      dv::Completion completion;
      while (dv::poll_into(*group_, {&completion, 1}) != 0) {
        if (completion.kind == dv::CompletionKind::kSendQueue) {
          retire(completion);
          continue;
        }
        if (completion.kind == dv::CompletionKind::kReceiveInvalidate) {
          invalidated_.push_back(completion.invalidated_key);
        }
        std::byte* taken = qp_->take_receive(completion);
        if (completion.status != dv::Status::kSuccess || taken == nullptr) {
          failed_ = true;
          continue;
        }
        buffer = taken;
        return {taken, taken + completion.byte_count};
      }
      group_->progress();
    }
    return {};
  }

  static constexpr std::size_t kSendAt = kReceives * kBuffer;
  static constexpr std::size_t kMemoryAt = kSendAt + 65536;

  void retire(const dv::Completion& completion) {
    qp_->retire_send(completion, [&](dv::Token) { delivered_ += completion.status == dv::Status::kSuccess ? 1U : 0U; });
  }

  void poll_events() {
    while (auto event = device_->next_event()) {
      switch (event->kind) {
        case dv::CmEventKind::kRouteResolved: {
          qp_ = must(device_->make_qp(id_, {.send_depth = 64, .receive_depth = kReceives}));
          for (std::uint32_t i = 0; i < kReceives; ++i) {
            EXPECT_TRUE(qp_->post_receive(arena_->bytes().data() + i * kBuffer, kBuffer, region_.lkey));
          }
          qp_->publish_receives();
          EXPECT_TRUE(device_->finish_connect(id_, private_data_));
          break;
        }
        case dv::CmEventKind::kEstablished:
          established_ = true;
          break;
        default:
          disconnected_ = true;
          break;
      }
    }
  }

  Pair& pair_;
  std::vector<std::byte> private_data_;
  std::unique_ptr<pools::Arena> arena_;
  std::unique_ptr<dv::mlx5::Device> device_;
  dv::MemoryRegion region_;
  dv::mlx5::PollGroup* group_ = nullptr;
  dv::mlx5::Qp* qp_ = nullptr;
  dv::CmId id_{};
  bool established_ = false;
  bool disconnected_ = false;
  bool failed_ = false;
  std::vector<std::uint32_t> invalidated_;
  std::uint64_t sent_ = 0;
  std::uint64_t delivered_ = 0;
};

}  // namespace rodeo::test
