// SPDX-License-Identifier: Apache-2.0
#pragma once

// Mapped memory of the software HCA: our own control segments, the peer's, and the peer's registered memory.
// Runs on: control thread.

#include <cstddef>
#include <cstdint>
#include <span>

#include "dv/soft/file.h"
#include "dv/soft/shared_layout.h"
#include "pools/result.h"

namespace rodeo::dv::soft {

/// A mapping that unmaps itself.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* base, std::size_t bytes) noexcept : bytes_(base, bytes) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Mapping();

  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

  /// Gives every page of [offset, offset + length) a place in this address space, so that the hot path takes no fault.
  void populate(std::size_t offset, std::size_t length) const noexcept;

 private:
  std::span<std::byte> bytes_;
};

/// Maps `length` bytes at `offset` of a peer's file. Refuses what could change under our feet: a file that can shrink,
/// one that is too short, one that is not memory.
[[nodiscard]] Result<Mapping> map_peer_file(int fd, std::size_t offset, std::size_t length, bool populate);

/// Why `fd` cannot back memory that peers map, or success.
[[nodiscard]] Result<void> check_shareable(int fd, std::size_t offset, std::size_t length);

struct ProcessId {
  std::uint64_t words[2] = {0, 0};
  [[nodiscard]] bool operator==(const ProcessId&) const = default;
};

/// One end's control segment of a lane.
class Segment {
 public:
  Segment() = default;

  /// Ours, in a sealed memfd (`shared`) or in plain memory of this process.
  [[nodiscard]] static Result<Segment> create(bool shared, const ProcessId& process, std::uint64_t lane);
  /// The peer's; checks that it is what `process` says it is.
  [[nodiscard]] static Result<Segment> map(int fd, const ProcessId& process, std::uint64_t lane);

  [[nodiscard]] SegmentView view() const noexcept { return {mapping_.bytes().data()}; }
  [[nodiscard]] int fd() const noexcept { return file_.get(); }
  /// The file is not needed any more once the peer has mapped it.
  void close_file() noexcept { file_.reset(); }
  explicit operator bool() const noexcept { return !mapping_.bytes().empty(); }

  /// Readies the pages of QP `index` with a receive ring of `receive_wqes`.
  void populate_qp(std::uint32_t index, std::uint32_t receive_wqes) const noexcept;
  void populate_shared_receives() const noexcept;
  void populate_queue() const noexcept;

 private:
  Mapping mapping_;
  File file_;
};

}  // namespace rodeo::dv::soft
