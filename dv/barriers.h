// SPDX-License-Identifier: Apache-2.0
#pragma once

// Ordering between a core and a device, named for its purpose. The device may be a NIC on the far side of PCIe or
// another core that runs the software HCA; each barrier is strong enough for both.

#include <atomic>

namespace rodeo::dv {

/// WQEs in memory → doorbell record. Pairs with the device's read of the record before it fetches WQEs.
inline void before_doorbell_record() noexcept {
#if defined(__aarch64__)
  asm volatile("dmb oshst" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_release);  // x86: write-back stores are not reordered with each other
#endif
}

/// Doorbell record → MMIO doorbell. The MMIO page is write combining, so TSO alone does not order it.
inline void before_mmio_doorbell() noexcept {
#if defined(__aarch64__)
  asm volatile("dsb st" ::: "memory");
#elif defined(__x86_64__)
  asm volatile("sfence" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Flushes the write-combining buffer, so that the doorbell leaves now and the next one cannot merge with it.
inline void after_mmio_doorbell() noexcept { before_mmio_doorbell(); }

/// Owner bit of a CQE → the rest of the CQE and the payload. Pairs with the device's release of op_own.
inline void after_owner_bit() noexcept {
#if defined(__aarch64__)
  asm volatile("dmb oshld" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_acquire);  // x86: loads are not reordered with each other
#endif
}

/// Reads of CQEs or receive buffers → the record that gives them back to the device.
inline void before_giving_back() noexcept {
#if defined(__aarch64__)
  asm volatile("dmb osh" ::: "memory");
#else
  std::atomic_signal_fence(std::memory_order_acq_rel);  // x86: loads are not reordered with later stores
#endif
}

}  // namespace rodeo::dv
