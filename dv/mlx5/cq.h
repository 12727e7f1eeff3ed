// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that owns the CQ.
//
// The device writes CQEs into a ring and hands each over by its owner bit, which flips every lap; one byte read decides
// whether there is work. The consumer index goes back to the device once per burst, through the doorbell record. A
// polled engine never arms a CQ, so there is no MMIO here.

#include <algorithm>
#include <atomic>
#include <span>

#include "dv/barriers.h"
#include "dv/mlx5/wqe.h"
#include "dv/provider.h"
#include "pools/byte_order.h"

namespace rodeo::dv::mlx5 {

/// ibv_wc_status of an error CQE's syndrome.
[[nodiscard]] Status status_of_syndrome(std::uint8_t syndrome) noexcept;

/// Where a CQ lives: what mlx5dv_init_obj or the software HCA hands out. 64-byte CQEs, no compression.
struct CqRing {
  std::byte* cqes = nullptr;
  Be32* dbrec = nullptr;  // [0]: consumer index
  std::uint32_t cqe_count = 0;
};

class Cq {
 public:
  explicit Cq(const CqRing& ring) noexcept
      : cqes_(reinterpret_cast<mlx5_cqe64*>(ring.cqes)), dbrec_(ring.dbrec), count_(ring.cqe_count) {}

  /// Takes up to out.size() completions; returns how many.
  [[gnu::always_inline]] std::size_t poll(std::span<Completion> out) noexcept {
    std::size_t n = 0;
    while (n < out.size()) {
      const mlx5_cqe64& cqe = cqes_[consumer_ & (count_ - 1)];
      const std::uint8_t op_own = __atomic_load_n(&cqe.op_own, __ATOMIC_RELAXED);
      const std::uint8_t opcode = op_own >> 4;
      if (opcode == MLX5_CQE_INVALID || (op_own & 1U) != ((consumer_ & count_) != 0 ? 1U : 0U)) break;
      after_owner_bit();
      __builtin_prefetch(&cqes_[(consumer_ + 1) & (count_ - 1)]);
      Completion& c = out[n++];
      c.qpn = be32toh(cqe.sop_drop_qpn) & 0xffffffU;
      c.wqe_counter = be16toh(cqe.wqe_counter);
      c.status = Status::kSuccess;
      c.byte_count = be32toh(cqe.byte_cnt);
      if (opcode == MLX5_CQE_RESP_SEND) [[likely]] {
        c.kind = CompletionKind::kReceive;
      } else if (opcode == MLX5_CQE_REQ) {
        c.kind = CompletionKind::kSendQueue;
      } else {
        decode_rare(cqe, opcode, c);
      }
      ++consumer_;
    }
    if (n != 0) {
      before_giving_back();
      // Pairs with the device's read when a lap is nearly full.
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(dbrec_), htobe32(consumer_ & 0xffffffU), __ATOMIC_RELEASE);
    }
    return n;
  }

  /// Whether poll would find something.
  [[nodiscard]] bool ready() const noexcept {
    const std::uint8_t op_own = __atomic_load_n(&cqes_[consumer_ & (count_ - 1)].op_own, __ATOMIC_RELAXED);
    return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1U) == ((consumer_ & count_) != 0 ? 1U : 0U);
  }
  [[nodiscard]] std::uint32_t consumer_index() const noexcept { return consumer_; }

 private:
  [[gnu::noinline, gnu::cold]] static void decode_rare(const mlx5_cqe64& cqe, std::uint8_t opcode,
                                                       Completion& c) noexcept;

  mlx5_cqe64* cqes_;
  Be32* dbrec_;
  std::uint32_t count_;
  std::uint32_t consumer_ = 0;
};

}  // namespace rodeo::dv::mlx5
