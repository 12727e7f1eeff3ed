// SPDX-License-Identifier: Apache-2.0
#pragma once

// What every provider must do, as tests: two devices, a connection, and every operation with its ways to fail. A test
// file instantiates ProviderSuite with a maker of beds; the tests are in dv/provider_suite.cpp, dv/provider_errors.cpp.

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/verbs/provider.h"

namespace rodeo::dv::suite {

/// The provider that this test program is about; its build says which, unless it is that of mlx5 queues.
#ifndef SUITE_PROVIDER
#define SUITE_PROVIDER rodeo::dv::mlx5
#endif
namespace tested = SUITE_PROVIDER;

/// What an interface cannot tell, or tells otherwise.
struct Traits {
  std::chrono::seconds patience{10};
  std::uint32_t many_messages = 100'000;
  int many_connections = 100;
  bool names_objects_by_key = true;    // windows and regions; else by pointer, so that unknown ones cannot be posted
  bool hears_at_once = true;           // connect() itself knows that nobody listens
  bool carries_reasons = true;         // a rejection brings its sentence
  bool stands_bad_invalidates = true;  // a Send With Invalidate of a window that is not bound ends the connection only
  bool pads_private_data = false;      // with zeros, to the length of the message's field
  bool bounds_windows = true;          // else a window's key reaches all of its region, if with the window's rights
  // How faults of one's own are called.
  Status unknown_local_key = Status::kLocalProtection;
  Status too_long_at_receiver = Status::kLocalLength;
  Status too_long_at_sender = Status::kRemoteInvalidRequest;
  bool names_send_faults = true;  // else a request that fails before it is sent is called flushed, as those behind it

  [[nodiscard]] Status send_fault(Status status) const { return names_send_faults ? status : Status::kFlushed; }
};

/// Two devices that can reach each other.
class Bed {
 public:
  virtual ~Bed() = default;
  virtual tested::Device& device(std::size_t end) = 0;
  [[nodiscard]] virtual Address address() const = 0;
  [[nodiscard]] virtual Traits traits() const { return {}; }
  /// Lets happen what takes no call of the device's users.
  virtual void settle() {}
};
struct BedMaker {
  std::string name;
  std::function<std::unique_ptr<Bed>(std::uint32_t rnr_retry)> make;
};

/// Sealed memory that every device can register.
class SharedBytes {
 public:
  explicit SharedBytes(std::size_t bytes);
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  ~SharedBytes();
  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }
  [[nodiscard]] int fd() const { return fd_; }

 private:
  std::span<std::byte> bytes_;
  int fd_ = -1;
};

/// One end: a device's group and memory, and the QP under test with everything that it completed.
struct End {
  static constexpr std::size_t kBytes = std::size_t{4} << 20;
  static constexpr std::size_t kBufferBytes = 4096;

  tested::Device* device = nullptr;
  tested::PollGroup* group = nullptr;
  std::unique_ptr<SharedBytes> memory;
  MemoryRegion region;
  MemoryRegion read_only;   // the second quarter again, for RDMA Read only
  MemoryRegion local_only;  // the third quarter again, for nobody else
  CmId id{};
  tested::Qp* qp = nullptr;

  struct Arrival {
    Completion completion;
    std::byte* buffer = nullptr;
  };
  std::deque<Arrival> arrivals;
  std::vector<Completion> send_errors;
  std::vector<Token> tokens;
  std::vector<CmEvent> events;
  std::vector<std::byte*> taken_back;  // of a shared receive queue, when its last connection was closed

  [[nodiscard]] std::byte* at(std::size_t offset) const { return memory->bytes().data() + offset; }
  [[nodiscard]] Sge sge(std::size_t offset, std::size_t length) const {
    return {at(offset), static_cast<std::uint32_t>(length), region.lkey};
  }
  [[nodiscard]] RemoteAddress remote(std::size_t offset) const {
    return {reinterpret_cast<std::uintptr_t>(at(offset)), region.rkey};
  }
  /// Buffers for receives are the last MiB.
  [[nodiscard]] std::byte* buffer(std::size_t index) const { return at(kBytes - (index + 1) * kBufferBytes); }
  void post_receives(std::size_t count);
  bool send(std::string_view text);
  [[nodiscard]] static std::string text(const Arrival& arrival) {
    return {reinterpret_cast<const char*>(arrival.buffer), arrival.completion.byte_count};
  }
};

class ProviderSuite : public testing::TestWithParam<BedMaker> {
 protected:
  static constexpr QpSizes kSizes{.send_depth = 64, .receive_depth = 64};
  static constexpr std::uint32_t kRnrForEver = 7;

  void SetUp() override { open(kRnrForEver); }
  void TearDown() override;
  void open(std::uint32_t rnr_retry);
  void connect(std::size_t receives, const QpSizes& sizes = kSizes);
  void listen();
  void connect_again(std::size_t receives, const QpSizes& sizes = kSizes);
  /// Makes both ends poll, and everything else go on, until `done` or for too long; returns whether `done`.
  [[nodiscard]] bool run_until(const std::function<bool()>& done);
  /// The same for a little while, to show that nothing happens.
  void run_a_while();
  void turn();
  [[nodiscard]] bool arrived(std::span<const std::byte> sent, std::span<const std::byte> received) const;
  [[nodiscard]] bool has_event(const End& end, CmEventKind kind) const;
  /// Moves both QPs to error, sees every work request come back, and destroys the connection.
  void close();
  void drain(End& end);

  std::unique_ptr<Bed> bed_;
  std::array<End, 2> ends_;
  End& a_ = ends_[0];  // connects
  End& b_ = ends_[1];  // listens
  CmId listener_{};
};

}  // namespace rodeo::dv::suite
