// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that owns the CQ.
//
// The device writes CQEs into a ring and hands each over by its owner bit, which flips every lap; one byte read decides
// whether there is work. The consumer index goes back to the device once per burst, through the doorbell record. A
// polled engine never arms a CQ, so there is no MMIO here.

#include <algorithm>
#include <atomic>
#include <cstring>
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
      : cqes_(reinterpret_cast<mlx5_cqe64*>(ring.cqes)),
        dbrec_(ring.dbrec),
        count_(ring.cqe_count),
        mask_(ring.cqe_count - 1) {}

  /// Hands up to `most` completions to take(const Completion&); returns how many.
  template <class F>
  [[gnu::always_inline]] std::size_t poll(std::size_t most, F&& take) noexcept {
    // Up to the end of the ring, so that the owner bit stays the same.
    const mlx5_cqe64* const first = &cqes_[consumer_ & mask_];
    const mlx5_cqe64* const end = first + std::min<std::size_t>(most, count_ - (consumer_ & mask_));
    const std::uint32_t owner = owner_of(consumer_);
    const mlx5_cqe64* cqe = first;
    for (; cqe != end; ++cqe) {
      // The word with the owner bit holds all else that a message needs but its length.
      const std::uint64_t tail = byte_swap(__atomic_load_n(reinterpret_cast<const Word*>(cqe) + 7, __ATOMIC_RELAXED));
      after_owner_bit();
      if ((tail & kOpOwnMask) == ((MLX5_CQE_RESP_SEND << 4) | owner)) [[likely]] {
        take(Completion{.origin = tail >> 16U, .byte_count = be32toh(cqe->byte_cnt)});
      } else {
        if ((tail & 1U) != owner || (tail & kOpOwnMask) >> 4 == MLX5_CQE_INVALID) break;  // there is none yet
        Completion rare;
        take_rare(*cqe, tail, rare);
        take(rare);
      }
      __builtin_prefetch(cqe + 1);
    }
    const auto n = static_cast<std::size_t>(cqe - first);
    if (n != 0) {
      consumer_ += static_cast<std::uint32_t>(n);
      before_giving_back();
      // Pairs with the device's read when a lap is nearly full.
      __atomic_store_n(reinterpret_cast<std::uint32_t*>(dbrec_), htobe32(consumer_ & 0xffffffU), __ATOMIC_RELEASE);
    }
    return n;
  }

  /// Whether poll would find something.
  [[nodiscard]] bool ready() const noexcept {
    const std::uint8_t op_own = __atomic_load_n(&cqes_[consumer_ & mask_].op_own, __ATOMIC_RELAXED);
    return op_own >> 4 != MLX5_CQE_INVALID && (op_own & 1U) == owner_of(consumer_);
  }
  [[nodiscard]] std::uint32_t consumer_index() const noexcept { return consumer_; }

 private:
  using Word [[gnu::may_alias]] = std::uint64_t;
  static constexpr std::uint64_t kOpOwnMask = 0xff;

  /// The owner bit of this lap.
  [[nodiscard]] std::uint32_t owner_of(std::uint32_t consumer) const noexcept {
    return (consumer & count_) != 0 ? 1U : 0U;
  }
  /// Every other CQE.
  [[gnu::noinline]] static void take_rare(const mlx5_cqe64& cqe, std::uint64_t tail, Completion& c) noexcept;

  mlx5_cqe64* cqes_;
  Be32* dbrec_;
  std::uint32_t count_;
  std::uint32_t mask_;
  std::uint32_t consumer_ = 0;
};

}  // namespace rodeo::dv::mlx5
