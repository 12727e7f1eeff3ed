// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path, save for construction. Runs on: poll core.
// One call of `rodeo bench`, encoded beforehand, and the check of its Reply. Every call differs a little from the one
// before, so that neither stale data nor another call's data can pass for its own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "apps/mixes.h"
#include "apps/nfs/nfs3.h"
#include "engine/requester.h"

namespace rodeo::apps {

/// Calls of one shape begin at so many different places of the pattern.
inline constexpr std::uint32_t kVariants = 64;
/// Octets from one to the next: whole cache lines, and all variants lie within one period.
inline constexpr std::uint32_t kVariantStride = 960;

/// NFS calls of `bytes` begin so far from each other in their file, which is filled with the pattern.
[[nodiscard]] constexpr std::uint32_t nfs_stride(std::uint32_t bytes) noexcept { return (bytes + 4095) / 4096 * 4096; }

/// What all calls of one shape share. Constant once made.
struct CallShape {
  /// `file`: of NFS calls.
  CallShape(const MixEntry& from, const Credential& credential, RegisteredBytes pattern_bytes, bool verifying,
            const nfs::FileHandle& file = {});

  MixEntry entry;
  CallTarget target;
  nfs::FileHandle nfs_file;
  RegisteredBytes pattern;               // one period and the largest payload more
  std::uint32_t payload_bytes = 0;       // that one call moves
  std::size_t arguments_bytes = 0;       // of the encoded arguments
  std::uint32_t source_bytes = 0;        // by Read chunk
  std::uint32_t sink_bytes = 0;          // of the Write chunk
  std::vector<std::uint64_t> checksums;  // of each variant's payload, where Replies carry one and we verify
};

/// A call of one shape that one slot sends again and again, one at a time. Does not move: its request points into it.
class PreparedCall {
 public:
  /// `sink` holds what the Reply writes, at least shape.sink_bytes.
  PreparedCall(const CallShape& shape, RegisteredBytes sink, ReplyHandler on_reply, void* context);
  PreparedCall(const PreparedCall&) = delete;
  PreparedCall& operator=(const PreparedCall&) = delete;

  [[nodiscard]] const CallRequest& request() const noexcept { return request_; }
  [[nodiscard]] std::uint32_t payload_bytes() const noexcept { return payload_bytes_; }

  /// Makes it the next variant.
  void renew() noexcept {
    if (proc_ != TestProc::kNull) renew_contents();
  }
  /// Whether a successful Reply is the right one for the current variant.
  [[nodiscard]] bool verify(const Reply& reply) const noexcept {
    return proc_ == TestProc::kNull ? reply.results.empty() : verify_contents(reply);
  }

 private:
  void renew_contents() noexcept;
  void renew_nfs() noexcept;
  void encode_nfs(XdrWriter& writer) noexcept;
  void stamp() noexcept;
  [[nodiscard]] bool capture_says_start() const noexcept;
  [[nodiscard]] bool verify_contents(const Reply& reply) const noexcept;
  [[nodiscard]] bool verify_checksum(const Reply& reply, std::uint64_t expected) const noexcept;
  [[nodiscard]] bool verify_written(const Reply& reply, std::size_t length_at, std::uint32_t start,
                                    std::uint32_t length) const noexcept;
  [[nodiscard]] bool verify_capture(const Reply& reply) const noexcept;
  [[nodiscard]] bool verify_nfs(const Reply& reply) const noexcept;

  CallRequest request_;
  TestProc proc_;
  std::uint32_t payload_bytes_;
  std::uint32_t variant_ = 0;
  std::uint32_t start_ = 0;  // of the payload within the pattern
  const CallShape& shape_;
  std::unique_ptr<std::byte[]> arguments_;
  std::uint64_t stamped_checksum_ = 0;  // LONG_CALL: of the payload as stamped
  BulkSource source_;
  RegisteredBytes sink_;
};

}  // namespace rodeo::apps
