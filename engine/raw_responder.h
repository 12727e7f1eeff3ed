// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a Responder without an engine, and a Requester engine connected to it. It shows what was sent to it octet
// by octet, and sends, reads and writes whatever a test wants. Every turn is taken by hand.

#include <algorithm>
#include <cstring>

#include "engine/test_pair.h"

namespace rodeo::test {

class RawResponder {
 public:
  static constexpr std::size_t kBuffer = 8192;
  static constexpr std::uint32_t kReceives = 64;

  /// `private_data` goes into the accept; `set_up` adds what the client engine serves.
  explicit RawResponder(std::span<const std::byte> private_data, Config config = small_config(),
                        const std::function<void(Engine&)>& set_up = {}) {
    static int count = 0;
    address_ = "soft:raw" + std::to_string(count++);
    private_data_.assign(private_data.begin(), private_data.end());
    const auto address = must(dv::Address::parse(address_));
    device_ = must(dv::open_soft_device(address));
    arena_ = std::make_unique<pools::Arena>(must(pools::Arena::create({.bytes = 2 << 20, .hugepages = false})));
    region_ = must(device_->register_memory(arena_->bytes(), arena_->fd(), 0, dv::Access::kRemoteReadWrite));
    group_ = must(device_->make_poll_group());
    (void)must(device_->listen(address));
    client_ = must(Engine::open(address_, config));
    if (set_up) set_up(*client_);
    EXPECT_TRUE(client_->start());
  }
  RawResponder() : RawResponder(encode_private_data({.send_size = 4096, .receive_size = 4096})) {}

  ~RawResponder() { device_.reset(); }  // first, as when a process dies: the client need not wait for our goodbye
  RawResponder(const RawResponder&) = delete;
  RawResponder& operator=(const RawResponder&) = delete;

  Connection* connect(std::uint32_t credits) { return connect_with({.credits = credits}); }
  Connection* connect_with(const ConnectOptions& options) {
    const std::uint64_t attempt = must(client_->begin_connect(address_, options));
    for (int i = 0; i < 100000; ++i) {
      turn();
      if (Connection* connection = must(client_->finish_connect(attempt))) return connection;
    }
    ADD_FAILURE() << "the connection was not established";
    return nullptr;
  }
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  /// What the next accept says.
  void set_private_data(std::span<const std::byte> bytes) { private_data_.assign(bytes.begin(), bytes.end()); }
  [[nodiscard]] const std::vector<std::byte>& received_private_data() const noexcept { return received_private_data_; }

  void turn() {
    client_->step();
    poll();
  }
  void turns(int count) {
    for (int i = 0; i < count; ++i) turn();
  }
  void until(const std::function<bool()>& done, int turns = 20000) {
    for (int i = 0; i < turns; ++i) {
      if (done()) return;
      turn();
    }
    ADD_FAILURE() << "it did not happen";
  }

  /// The oldest message not yet taken; empty when none comes within some turns.
  [[nodiscard]] std::vector<std::byte> receive(int turns = 200) {
    for (int i = 0; i < turns && received_.empty(); ++i) turn();
    if (received_.empty()) return {};
    std::vector<std::byte> message = std::move(received_.front());
    received_.erase(received_.begin());
    return message;
  }
  [[nodiscard]] std::size_t waiting() const noexcept { return received_.size(); }

  /// Sends are not followed by a turn of the client.
  void send(std::span<const std::byte> message) {
    const dv::Sge sge = staged(message);
    ASSERT_TRUE(qp_->post_send({&sge, 1}, 1));
    qp_->ring_doorbell();
  }
  /// With Invalidate.
  void send_invalidating(std::span<const std::byte> message, std::uint32_t key) {
    const dv::Sge sge = staged(message);
    ASSERT_TRUE(qp_->post_send_invalidate({&sge, 1}, key, 1));
    qp_->ring_doorbell();
  }
  /// Polls this end alone. How many of our Sends have been received by the client's QP.
  [[nodiscard]] std::uint64_t delivered() {
    for (int i = 0; i < 100; ++i) poll();
    return completed_;
  }
  [[nodiscard]] std::uint64_t sent() const noexcept { return sent_; }

  void write(std::span<const std::byte> bytes, std::uint32_t handle, std::uint64_t offset) {
    std::memcpy(memory(), bytes.data(), bytes.size());
    transfer(bytes.size(), handle, offset, true);
  }
  [[nodiscard]] std::vector<std::byte> read(std::size_t length, std::uint32_t handle, std::uint64_t offset) {
    transfer(length, handle, offset, false);
    return {memory(), memory() + length};
  }
  /// Whether the client's device lets us; if not, the connection is lost. The client has no turn meanwhile.
  [[nodiscard]] bool try_write(std::span<const std::byte> bytes, std::uint32_t handle, std::uint64_t offset) {
    std::memcpy(memory(), bytes.data(), bytes.size());
    return try_transfer(bytes.size(), handle, offset, true);
  }
  [[nodiscard]] bool try_read(std::size_t length, std::uint32_t handle, std::uint64_t offset) {
    return try_transfer(length, handle, offset, false);
  }
  [[nodiscard]] bool failed() const noexcept { return failed_; }
  /// Ends the connection, as a Responder does that has had enough.
  void hang_up() {
    device_->move_to_error(*qp_);
    device_->disconnect(id_);
  }
  [[nodiscard]] std::uint32_t connections_made() const noexcept { return connections_made_; }
  /// As when this process dies. Only the client may be used from here on.
  void die() { device_.reset(); }

  [[nodiscard]] Engine& client() noexcept { return *client_; }

 private:
  static constexpr std::size_t kSendAt = kReceives * kBuffer;
  static constexpr std::size_t kSendSlots = 32;
  static constexpr std::size_t kMemoryAt = kSendAt + kSendSlots * kBuffer;
  static constexpr dv::Token kTransfer = 2;

  [[nodiscard]] std::byte* memory() noexcept { return arena_->bytes().data() + kMemoryAt; }

  [[nodiscard]] dv::Sge staged(std::span<const std::byte> message) {
    std::byte* at = arena_->bytes().data() + kSendAt + sent_++ % kSendSlots * kBuffer;
    std::ranges::copy(message, at);
    return {at, static_cast<std::uint32_t>(message.size()), region_.lkey};
  }

  void transfer(std::size_t length, std::uint32_t handle, std::uint64_t offset, bool is_write) {
    EXPECT_TRUE(try_transfer(length, handle, offset, is_write));
  }
  [[nodiscard]] bool try_transfer(std::size_t length, std::uint32_t handle, std::uint64_t offset, bool is_write) {
    const dv::Sge sge{memory(), static_cast<std::uint32_t>(length), region_.lkey};
    transferred_ = false;
    EXPECT_TRUE(is_write ? qp_->post_write({&sge, 1}, {offset, handle}, kTransfer)
                         : qp_->post_read({&sge, 1}, {offset, handle}, kTransfer));
    qp_->ring_doorbell();
    for (int i = 0; i < 1000 && !transferred_ && !failed_; ++i) poll();
    return transferred_;
  }

  void poll() {
    poll_events();
    dv::Completion completion;
    while (dv::poll_into(*group_, {&completion, 1}) != 0) {
      if (completion.qpn() != qp_->qpn()) continue;  // of a connection that has gone
      if (completion.status != dv::Status::kSuccess) failed_ = true;
      if (completion.kind == dv::CompletionKind::kSendQueue) {
        qp_->retire_send(completion, [&](dv::Token token) {
          if (completion.status != dv::Status::kSuccess) return;
          if (token == kTransfer) transferred_ = true;
          if (token == 1) ++completed_;
        });
        continue;
      }
      std::byte* buffer = qp_->take_receive(completion);
      if (completion.status != dv::Status::kSuccess || buffer == nullptr) continue;
      received_.emplace_back(buffer, buffer + completion.byte_count);
      EXPECT_TRUE(qp_->post_receive(buffer, kBuffer, region_.lkey));
      qp_->publish_receives();
    }
    group_->progress();
  }

  void poll_events() {
    while (auto event = device_->next_event()) {
      if (event->kind != dv::CmEventKind::kConnectRequest) continue;
      received_private_data_ = event->private_data;
      qp_ = must(device_->make_qp(event->id, {.send_depth = 128, .receive_depth = kReceives}));
      for (std::uint32_t i = 0; i < kReceives; ++i) {
        EXPECT_TRUE(qp_->post_receive(arena_->bytes().data() + i * kBuffer, kBuffer, region_.lkey));
      }
      qp_->publish_receives();
      EXPECT_TRUE(device_->accept(event->id, private_data_));
      id_ = event->id;
      failed_ = false;
      ++connections_made_;
    }
  }

  std::string address_;
  std::vector<std::byte> private_data_;
  std::vector<std::byte> received_private_data_;
  std::unique_ptr<pools::Arena> arena_;
  std::unique_ptr<dv::mlx5::Device> device_;
  dv::MemoryRegion region_;
  dv::mlx5::PollGroup* group_ = nullptr;
  dv::mlx5::Qp* qp_ = nullptr;
  dv::CmId id_{};
  std::uint32_t connections_made_ = 0;
  std::vector<std::vector<std::byte>> received_;
  std::uint64_t sent_ = 0;
  std::uint64_t completed_ = 0;
  bool transferred_ = false;
  bool failed_ = false;
  std::unique_ptr<Engine> client_;
};

}  // namespace rodeo::test
