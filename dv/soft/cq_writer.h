// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that produces into the CQ.
//
// The device's end of a CQ. Each CQ has one producer, so the producer index is private to it. The last eight bytes of a
// CQE carry the owner bit and are stored last; the consumer index is read again only when a lap is nearly full.

#include <infiniband/mlx5dv.h>

#include <cstdint>

#include "pools/byte_order.h"

namespace rodeo::dv::soft {

/// One CQE in the words that matter; what the ring holds is this, big-endian.
struct CqeImage {
  std::uint32_t qpn = 0;
  std::uint16_t wqe_counter = 0;
  std::uint8_t opcode = 0;       // of the CQE
  std::uint8_t send_opcode = 0;  // REQ: of the WQE
  std::uint32_t byte_count = 0;
  std::uint32_t invalidated_key = 0;
  std::uint8_t syndrome = 0;
  std::uint8_t vendor_syndrome = 0;
};

struct CqWriter {
  mlx5_cqe64* cqes = nullptr;
  const Be32* consumer_record = nullptr;
  std::uint32_t count = 0;  // a power of two
  std::uint32_t producer = 0;
  std::uint32_t limit = 0;  // the producer may go up to here without asking

  [[nodiscard, gnu::always_inline]] bool has_room() noexcept { return producer != limit || refresh(); }

  /// Room must have been seen.
  [[gnu::always_inline]] void put(std::uint32_t opcode, std::uint32_t qpn, std::uint32_t wqe_counter,
                                  std::uint32_t byte_count, std::uint32_t key, std::uint32_t errors) noexcept {
    auto* words = reinterpret_cast<Word*>(&cqes[producer & (count - 1)]);
    words[4] = byte_swap(std::uint64_t{key});         // srqn_uidx 0, imm_inval_pkey
    words[5] = byte_swap(std::uint64_t{byte_count});  // app.. 0, byte_cnt
    words[6] = byte_swap(std::uint64_t{errors});      // timestamp; of an error CQE: vendor_err_synd, syndrome
    const std::uint32_t op_own = (opcode << 4) | ((producer & count) != 0 ? 1U : 0U);
    const std::uint64_t tail = (std::uint64_t{qpn} << 32) | (wqe_counter << 16) | op_own;
    // Release: pairs with the load of op_own in mlx5::Cq::poll.
    __atomic_store_n(&words[7], byte_swap(tail), __ATOMIC_RELEASE);
    ++producer;
  }
  void put(const CqeImage& image) noexcept {
    put(image.opcode, (std::uint32_t{image.send_opcode} << 24) | image.qpn, image.wqe_counter, image.byte_count,
        image.invalidated_key, (std::uint32_t{image.vendor_syndrome} << 8) | image.syndrome);
  }

  /// Where the CQE after `ahead` more goes; for prefetching.
  [[nodiscard]] const void* slot(std::uint32_t ahead) const noexcept { return &cqes[(producer + ahead) & (count - 1)]; }

 private:
  using Word [[gnu::may_alias]] = std::uint64_t;

  [[gnu::noinline, gnu::cold]] bool refresh() noexcept {
    constexpr std::uint32_t kIndexMask = 0xffffff;
    // Acquire: pairs with the release of the consumer index in mlx5::Cq::poll.
    const std::uint32_t raw =
        __atomic_load_n(reinterpret_cast<const std::uint32_t*>(consumer_record), __ATOMIC_ACQUIRE);
    const std::uint32_t used = (producer - byte_swap(raw)) & kIndexMask;
    if (used >= count) return false;  // full; a nonsensical index of a peer counts as full, too
    limit = producer + (count - used);
    return true;
  }
};

}  // namespace rodeo::dv::soft
