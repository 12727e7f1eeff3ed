// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that owns the CQ.
//
// A completion queue through ibv_poll_cq. Of a failed work request only its wr_id, QP number and status are valid, so
// the wr_id says which queue it came from, and where in it.

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "dv/provider.h"

namespace rodeo::dv::verbs {

inline constexpr std::uint64_t kSendQueueBit = std::uint64_t{1} << 32U;

/// How soft-RoCE says that a message invalidated a key: it hands the kernel's flag through, which user space has for
/// checksums of Ethernet frames. A reliable connection has no such thing.
inline constexpr unsigned kKernelWithInvalidate = IBV_WC_IP_CSUM_OK;

[[nodiscard]] Status status_of(ibv_wc_status status) noexcept;

[[nodiscard]] inline Completion completion_of(const ibv_wc& wc) noexcept {
  Completion c;
  c.origin = Completion::origin_of(wc.qp_num, static_cast<std::uint16_t>(wc.wr_id));
  if ((wc.wr_id & kSendQueueBit) != 0) c.kind = CompletionKind::kSendQueue;
  if (wc.status != IBV_WC_SUCCESS) [[unlikely]] {
    c.status = status_of(wc.status);
    c.vendor_syndrome = static_cast<std::uint8_t>(wc.vendor_err);
    return c;
  }
  if (c.kind == CompletionKind::kSendQueue) return c;
  c.byte_count = wc.byte_len;
  if ((wc.wc_flags & (IBV_WC_WITH_INV | kKernelWithInvalidate)) != 0) {
    c.kind = CompletionKind::kReceiveInvalidate;
    c.invalidated_key = wc.invalidated_rkey;
  }
  return c;
}

class Cq {
 public:
  explicit Cq(ibv_cq* cq) noexcept : cq_(cq) {}

  /// Hands up to `most` completions, and no more than a burst, to take(const Completion&); returns how many.
  template <class F>
  std::size_t poll(std::size_t most, F&& take) noexcept {
    const int n = ibv_poll_cq(cq_, static_cast<int>(std::min(most, taken_.size())), taken_.data());
    if (n <= 0) return 0;  // an error of the device: its asynchronous events tell of it, and the connections end
    const auto taken = std::span(taken_).first(static_cast<std::size_t>(n));
    for (const ibv_wc& wc : taken) take(completion_of(wc));
    return taken.size();
  }

 private:
  ibv_cq* cq_;
  std::array<ibv_wc, 32> taken_;
};

}  // namespace rodeo::dv::verbs
