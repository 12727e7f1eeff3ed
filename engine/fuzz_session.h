// SPDX-License-Identifier: Apache-2.0
#pragma once

// For the session fuzzers: one engine and one raw peer on an in-process fabric, in one thread. Both live from run to
// run with their pools; a session is one connection between them, after which nothing may be left of it at the engine.

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/soft/fabric.h"
#include "engine/engine_core.h"
#include "engine/fuzz.h"
#include "pools/arena.h"

namespace rodeo::fuzz {

template <class T>
[[nodiscard]] T must(Result<T> result) {
  if (!result) fail(result.error().message());
  return std::move(*result);
}

inline void must(const Result<void>& result) {
  if (!result) fail(result.error().message());
}

[[nodiscard]] inline Config session_config() {
  Config config;
  config.hugepages = false;
  config.credits = 8;
  config.connections = 1;
  config.small_buffers = 64;
  config.bulk_bytes = 16384;
  config.bulk_buffers = 4;
  config.application_bytes = 65536;
  return config;
}

[[nodiscard]] inline std::unique_ptr<Engine> open_engine(dv::soft::Fabric& fabric,
                                                         const Config& config = session_config()) {
  return must(
      EngineCore<dv::mlx5::Provider>::open_on(must(fabric.open_device({.rnr_retry = 2, .keep_lanes = true})), config));
}

/// The end that fuzzes: a QP of its own, either dialled or dialling.
class Peer {
 public:
  static constexpr std::size_t kBuffer = 4096;
  static constexpr std::uint32_t kReceives = 16;
  static constexpr std::size_t kSends = 32;
  static constexpr std::size_t kMemoryBytes = 8192;  // what segments may name
  static constexpr std::size_t kGuardBytes = 4096;   // registered as well, on both sides of it
  static constexpr std::byte kUntouched{0xa5};

  explicit Peer(dv::soft::Fabric& fabric)
      : device_(must(fabric.open_device({.keep_lanes = true}))),
        arena_(must(pools::Arena::create({.bytes = 1 << 19, .hugepages = false}))),
        region_(must(device_->register_memory(arena_.bytes(), arena_.fd(), 0, dv::Access::kRemoteReadWrite))),
        group_(must(device_->make_poll_group())) {}

  void listen(const dv::Address& address) { static_cast<void>(must(device_->listen(address))); }
  void dial(const dv::Address& address) {
    begin();
    id_ = must(device_->connect(address, *group_));
  }
  /// Before a connection comes in.
  void begin() {
    received.clear();
    sent_ = retired_ = 0;
    established_ = ended_ = deaf_ = false;
    std::fill(memory().begin(), memory().end(), kUntouched);
  }

  void set_private_data(std::span<const std::byte> data) {
    private_data_.assign(data.begin(),
                         data.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(data.size(), 56)));
  }
  [[nodiscard]] bool established() const noexcept { return established_; }
  /// Nothing more can come of this connection.
  [[nodiscard]] bool ended() const noexcept { return ended_; }
  /// Receives nothing from now on, so that the engine meets a receiver that is not ready.
  void stop_receiving() noexcept { deaf_ = true; }

  /// False when nothing is sent: there is no connection, or each buffer still holds a message that waits for receives.
  [[nodiscard]] bool send(std::span<const std::byte> message) {
    const auto sge = fill(message.first(std::min(message.size(), kBuffer)));
    if (!sge || !qp_->post_send({&*sge, 1}, kMessageToken)) return false;
    ++sent_;
    qp_->ring_doorbell();
    return true;
  }
  /// The same of an RDMA Write.
  [[nodiscard]] bool write(std::span<const std::byte> octets, std::uint32_t handle, std::uint64_t offset) {
    const auto sge = fill(octets);
    if (!sge || !qp_->post_write({&*sge, 1}, {offset, handle}, kMessageToken)) return false;
    ++sent_;
    qp_->ring_doorbell();
    return true;
  }

  void poll() {
    poll_events();
    dv::Completion completion;
    while (qp_ != nullptr && dv::poll_into(*group_, {&completion, 1}) != 0) {
      if (completion.status != dv::Status::kSuccess) ended_ = true;
      if (completion.kind == dv::CompletionKind::kSendQueue) {
        qp_->retire_send(completion, [this](dv::Token token) { retired_ += token == kMessageToken; });
        continue;
      }
      std::byte* buffer = qp_->take_receive(completion);
      if (completion.status != dv::Status::kSuccess || buffer == nullptr) continue;
      received.emplace_back(buffer, buffer + completion.byte_count);
      if (deaf_ || leaving_) continue;
      if (!qp_->post_receive(buffer, kBuffer, region_.lkey)) fail("no room for a receive that has just been taken");
      qp_->publish_receives();
    }
    group_->progress();
  }

  /// Leaves; turn by turn until the QP is gone. True when it is.
  [[nodiscard]] bool leave() {
    if (id_ == dv::CmId{}) return true;
    if (!leaving_) {
      leaving_ = true;
      device_->disconnect(id_);
      if (qp_ != nullptr) {
        device_->move_to_error(*qp_);
        if (qp_->post_drain(kDrainToken)) qp_->ring_doorbell();
      }
    }
    poll();
    if (qp_ != nullptr && !qp_->drained()) return false;
    device_->destroy(id_);
    qp_ = nullptr;
    id_ = {};
    leaving_ = false;
    return true;
  }

  [[nodiscard]] std::span<std::byte> memory() noexcept {
    return arena_.bytes().subspan((kReceives + kSends) * kBuffer, kMemoryBytes + 2 * kGuardBytes);
  }
  [[nodiscard]] std::uint32_t handle() const noexcept { return region_.rkey; }
  [[nodiscard]] std::uint64_t offset() noexcept {
    return reinterpret_cast<std::uintptr_t>(memory().data() + kGuardBytes);
  }

  std::vector<Octets> received;

 private:
  static constexpr dv::Token kMessageToken = 1;
  static constexpr dv::Token kDrainToken = 2;

  /// The next send buffer with `octets`, at most kBuffer of them. None while the device may still read from it.
  [[nodiscard]] std::optional<dv::Sge> fill(std::span<const std::byte> octets) noexcept {
    if (qp_ == nullptr || ended_ || !established_ || sent_ - retired_ == kSends) return std::nullopt;
    std::byte* at = arena_.bytes().data() + kReceives * kBuffer + sent_ % kSends * kBuffer;
    std::copy(octets.begin(), octets.end(), at);
    return dv::Sge{at, static_cast<std::uint32_t>(octets.size()), region_.lkey};
  }

  void make_qp() {
    qp_ = must(device_->make_qp(id_, {.send_depth = 2 * kSends, .receive_depth = kReceives}));
    for (std::uint32_t i = 0; i < kReceives; ++i) {
      if (!qp_->post_receive(arena_.bytes().data() + i * kBuffer, kBuffer, region_.lkey)) fail("no room for a receive");
    }
    qp_->publish_receives();
  }

  void poll_events() {
    while (auto event = device_->next_event()) {
      switch (event->kind) {
        case dv::CmEventKind::kRouteResolved:
          make_qp();
          static_cast<void>(device_->finish_connect(id_, private_data_));
          break;
        case dv::CmEventKind::kConnectRequest:
          id_ = event->id;
          make_qp();
          static_cast<void>(device_->accept(id_, private_data_));
          break;
        case dv::CmEventKind::kEstablished:
          established_ = true;
          break;
        default:
          if (event->id == id_) ended_ = true;
          break;
      }
    }
  }

  std::unique_ptr<dv::mlx5::Device> device_;
  pools::Arena arena_;
  dv::MemoryRegion region_;
  dv::mlx5::PollGroup* group_;
  dv::mlx5::Qp* qp_ = nullptr;
  dv::CmId id_{};
  Octets private_data_;
  std::size_t sent_ = 0;
  std::size_t retired_ = 0;  // of those sent
  bool established_ = false;
  bool ended_ = false;
  bool leaving_ = false;
  bool deaf_ = false;
};

/// Takes the script's steps until its end or the peer's. Below 0xe0 a step is the target's: act(step). Others end
/// receiving, or the script, or only let time pass. Each takes some turns, and there are some more at the end.
template <class Act, class Turn>
void play(Script& script, Peer& peer, Act&& act, Turn&& turn) {
  constexpr int kLastTurns = 24;
  while (!script.empty() && !peer.ended()) {
    const std::uint32_t step = script.u8();
    if (step < 0xe0) {
      act(step);
    } else if (step == 0xfe) {
      peer.stop_receiving();
    } else if (step == 0xff) {
      break;
    }
    for (std::uint32_t i = 0; i < step % 8; ++i) turn();
  }
  for (int i = 0; i < kLastTurns; ++i) turn();
}

/// Turns of both ends until `done`; what takes longer than that hangs.
template <class Done>
void until(Engine& engine, Peer& peer, const char* what, Done&& done) {
  constexpr int kTurns = 20'000;
  for (int i = 0; i < kTurns; ++i) {
    if (done()) return;
    engine.step();
    peer.poll();
  }
  fail(std::string("it did not happen: ") + what);
}

/// When the session's connection has gone: nothing is held any more.
inline void check_audit(const Engine& engine) {
  const auto [ok, text] = engine.audit();
  if (!ok) fail(text);
}

}  // namespace rodeo::fuzz
