// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests between processes: one end with its device, memory and connection, and children that run another.

#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include "dv/provider_suite.h"
#include "dv/soft/host_device.h"

namespace rodeo::dv::suite {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

inline constexpr QpSizes kPartySizes{.send_depth = 64, .receive_depth = 64};
inline constexpr auto kPatience = milliseconds(1000);

/// One process's end: a device, its memory, and one connection at a time.
struct Party {
  explicit Party(std::string name) : address{Address::Scheme::kSoft, std::move(name), 0} {
    device = std::move(*soft::open({}));
    end.device = device.get();
    end.memory = std::make_unique<SharedBytes>(End::kBytes);
    end.region = *device->register_memory(end.memory->bytes(), end.memory->fd(), 0, Access::kRemoteReadWrite);
    end.group = *device->make_poll_group();
  }

  void turn() {
    while (auto event = device->next_event()) end.events.push_back(std::move(*event));
    std::array<Completion, 32> batch;
    const std::size_t n = poll_into(*end.group, batch);
    for (std::size_t i = 0; i < n; ++i) {
      if (batch[i].kind == CompletionKind::kSendQueue) {
        if (batch[i].status != Status::kSuccess) end.send_errors.push_back(batch[i]);
        end.qp->retire_send(batch[i], [&](Token token) { end.tokens.push_back(token); });
      } else {
        end.arrivals.push_back({batch[i], end.qp->take_receive(batch[i])});
      }
    }
    end.group->progress();
  }
  template <class F>
  bool run_until(F done, milliseconds patience = milliseconds(5000)) {
    const auto limit = Clock::now() + patience;
    while (!done()) {
      if (Clock::now() > limit) return false;
      turn();
    }
    return true;
  }
  [[nodiscard]] bool has(CmEventKind kind) const {
    for (const CmEvent& event : end.events) {
      if (event.kind == kind) return true;
    }
    return false;
  }
  bool connect(std::size_t receives) {
    const auto limit = Clock::now() + milliseconds(5000);
    auto id = device->connect(address, *end.group);
    while (!id && Clock::now() < limit) id = device->connect(address, *end.group);
    if (!id) return false;
    end.id = *id;
    if (!run_until([&] { return has(CmEventKind::kRouteResolved); })) return false;
    end.qp = *device->make_qp(end.id, kPartySizes);
    end.post_receives(receives);
    return device->finish_connect(end.id, {}).has_value() && run_until([&] { return has(CmEventKind::kEstablished); });
  }
  bool accept(std::size_t receives) {
    if (!run_until([&] { return has(CmEventKind::kConnectRequest); })) return false;
    end.id = end.events.back().id;
    end.qp = *device->make_qp(end.id, kPartySizes);
    end.post_receives(receives);
    return device->accept(end.id, {}).has_value() && run_until([&] { return has(CmEventKind::kEstablished); });
  }
  /// Answers every message, and keeps `window` messages of its own on the way.
  void chat(std::size_t& credit) {
    turn();
    while (!end.arrivals.empty()) {
      const End::Arrival arrival = end.arrivals.front();
      end.arrivals.pop_front();
      if (arrival.completion.status != Status::kSuccess) continue;
      ++credit;
      static_cast<void>(end.qp->post_receive(arrival.buffer, End::kBufferBytes, end.region.lkey));
    }
    end.qp->publish_receives();
    while (credit > 0 && end.send("a message of some thirty octets")) --credit;
    end.qp->ring_doorbell();
  }
  /// After a disconnect: flush, drain, destroy.
  bool clean_up() {
    device->move_to_error(*end.qp);
    if (!end.qp->post_drain(kNoToken)) return false;
    end.qp->ring_doorbell();
    if (!run_until([&] { return end.qp->drained(); }, kPatience)) return false;
    device->destroy(end.id);
    end.qp = nullptr;
    end.events.clear();
    end.arrivals.clear();
    end.send_errors.clear();
    end.tokens.clear();
    for (int i = 0; i < 3; ++i) turn();
    return true;
  }

  Address address;
  std::unique_ptr<mlx5::Device> device;
  End end;
};

/// Runs `body` in a child that inherits no file but the standard ones.
template <class F>
pid_t in_child(F body) {
  const pid_t pid = fork();
  if (pid == 0) {
    close_range(3, ~0U, 0);
    body();
    _exit(0);
  }
  return pid;
}

/// How many files this process has open.
[[nodiscard]] inline std::size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

/// A folder of sockets for one test.
class BetweenProcesses : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/rodeo-dv-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    setenv("RODEO_RUNTIME_DIR", name, 1);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

}  // namespace rodeo::dv::suite
