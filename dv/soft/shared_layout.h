// SPDX-License-Identifier: Apache-2.0
#pragma once

// What two ends of a lane share. A lane is a pair of poll groups, ours and a peer's; each end owns one control segment
// per lane, which the other end maps. The segment holds what its owner consumes and the peer's core produces or reads:
// the one receive CQ, the receive rings with their doorbell records, the shared receive queue, QP state, and the memory
// windows.
//
// Everything is found by constant offsets; there are no pointers in here. The file is sparse: pages of QPs that do not
// exist cost nothing. Whatever the other end may have written is checked at each use.

#include <infiniband/mlx5dv.h>

#include <cstddef>
#include <cstdint>

#include "pools/byte_order.h"

namespace rodeo::dv::soft {

inline constexpr std::uint64_t kSegmentMagic = 0x6f6465'6f727331;
inline constexpr std::uint32_t kAbiVersion = 4;

inline constexpr std::uint32_t kLaneQps = 4096;
inline constexpr std::uint32_t kLaneCqes = 4096;
inline constexpr std::uint32_t kMaxReceives = 4096;   // of one QP
inline constexpr std::uint32_t kKeyCount = 1U << 18;  // windows of one device
inline constexpr std::uint32_t kReceiveWqeBytes = 16;
inline constexpr std::uint32_t kSharedWqes = 16384;
inline constexpr std::uint32_t kSharedWqeBytes = 32;

/// How a QP takes part. Either end may move it to kError.
enum QpState : std::uint32_t { kReset = 0, kReady = 1, kError = 2 };

struct alignas(64) SegmentHeader {
  std::uint64_t magic;
  std::uint32_t abi;
  std::uint32_t pid;
  std::uint64_t segment_bytes;
  std::uint64_t process[2];  // random name of the device that owns the segment
  std::uint64_t lane;
  /// Counts what the peer changed in the QP contexts below, so that one load tells that nothing happened.
  alignas(64) std::uint32_t attention;
  /// Consumer index of the receive CQ, written by the owner.
  alignas(64) Be32 cq_record[2];
};

struct alignas(64) QpContext {
  // Read often, written seldom.
  std::uint32_t state;
  std::uint32_t qpn;
  // Written by the peer's core, which executes sends to this QP.
  alignas(64) std::uint32_t hazard;  // the window key that a copy under way uses, or 0
  std::uint32_t final_producer;      // of the receive CQ, valid with remote_done
  std::uint32_t remote_done;         // the peer will never again touch anything of this QP
};
static_assert(sizeof(QpContext) == 128);

/// Doorbell record of a receive ring, one a line; written by the owner.
struct alignas(64) ReceiveRecord {
  Be32 words[2];
};

/// That of the shared receive queue, written by the owner. It has a line less often written beside it: how often the
/// queue has begun anew, with its first WQE and with no receive posted.
struct alignas(64) SharedRecord {
  Be32 words[2];
  alignas(64) std::uint32_t restarts;
};

enum WindowState : std::uint32_t { kUnused = 0, kFree = 1, kBound = 2, kInvalidating = 3 };

/// A type-2 memory window of the segment's owner. key = index[31:8] | tag[7:0].
struct alignas(64) Window {
  std::uint32_t state;
  std::uint32_t key;
  std::uint32_t qpn;     // the owner's QP that it is bound on; the peer may use it through that connection only
  std::uint32_t access;  // dv::Access
  std::uint64_t address;
  std::uint64_t length;
  std::uint32_t region_key;
};
static_assert(sizeof(Window) == 64);

inline constexpr std::size_t kContextsOffset = 4096;
inline constexpr std::size_t kRecordsOffset = kContextsOffset + kLaneQps * sizeof(QpContext);
inline constexpr std::size_t kCqesOffset = kRecordsOffset + kLaneQps * sizeof(ReceiveRecord);
inline constexpr std::size_t kWindowsOffset = kCqesOffset + kLaneCqes * sizeof(mlx5_cqe64);
// Receive rings of few entries lie close together, with an odd number of lines between them: as far apart as the long
// ones they would all fall into one set of each cache, and each would cost a page of its own.
inline constexpr std::uint32_t kShortRing = 32;
inline constexpr std::size_t kShortRingBytes = std::size_t{kShortRing} * kReceiveWqeBytes + 64;
inline constexpr std::size_t kShortRingsOffset = kWindowsOffset + kKeyCount * sizeof(Window);
inline constexpr std::size_t kReceiveRingsOffset = kShortRingsOffset + kLaneQps * kShortRingBytes;
inline constexpr std::size_t kReceiveRingBytes = std::size_t{kMaxReceives} * kReceiveWqeBytes;

/// Where the receive ring of QP `index` with `wqes` entries starts.
[[nodiscard]] constexpr std::size_t receive_ring_offset(std::uint32_t index, std::uint32_t wqes) noexcept {
  return wqes <= kShortRing ? kShortRingsOffset + index * kShortRingBytes
                            : kReceiveRingsOffset + index * kReceiveRingBytes;
}
inline constexpr std::size_t kSharedRecordOffset = kReceiveRingsOffset + kLaneQps * kReceiveRingBytes;
inline constexpr std::size_t kSharedRingOffset = kSharedRecordOffset + 4096;
inline constexpr std::size_t kSharedRingBytes = std::size_t{kSharedWqes} * kSharedWqeBytes;
inline constexpr std::size_t kSegmentBytes = kSharedRingOffset + kSharedRingBytes;
static_assert(sizeof(SegmentHeader) <= kContextsOffset && kReceiveRingsOffset % 4096 == 0 &&
              sizeof(SharedRecord) <= kSharedRingOffset - kSharedRecordOffset);

/// Typed access to a mapped segment. Indexes are the caller's to check.
struct SegmentView {
  std::byte* base = nullptr;

  [[nodiscard]] SegmentHeader& header() const noexcept { return at<SegmentHeader>(0, 0); }
  [[nodiscard]] QpContext& qp(std::uint32_t index) const noexcept { return at<QpContext>(kContextsOffset, index); }
  [[nodiscard]] ReceiveRecord& record(std::uint32_t index) const noexcept {
    return at<ReceiveRecord>(kRecordsOffset, index);
  }
  [[nodiscard]] mlx5_cqe64* cqes() const noexcept { return &at<mlx5_cqe64>(kCqesOffset, 0); }
  [[nodiscard]] Window& window(std::uint32_t index) const noexcept { return at<Window>(kWindowsOffset, index); }
  [[nodiscard]] SharedRecord& shared_record() const noexcept { return at<SharedRecord>(kSharedRecordOffset, 0); }
  [[nodiscard]] std::byte* shared_ring() const noexcept { return base + kSharedRingOffset; }
  [[nodiscard]] std::byte* receive_ring(std::uint32_t index, std::uint32_t wqes) const noexcept {
    return base + receive_ring_offset(index, wqes);
  }

 private:
  template <class T>
  [[nodiscard]] T& at(std::size_t offset, std::size_t index) const noexcept {
    return reinterpret_cast<T*>(base + offset)[index];
  }
};

// One name for each way in which the shared words are used. Acquire and release pair across the two ends.
template <class T>
[[nodiscard]] inline T load_shared(const T& word) noexcept {
  return __atomic_load_n(&word, __ATOMIC_ACQUIRE);
}
template <class T>
inline void store_shared(T& word, T value) noexcept {
  __atomic_store_n(&word, value, __ATOMIC_RELEASE);
}

}  // namespace rodeo::dv::soft
