// SPDX-License-Identifier: Apache-2.0
#pragma once

// The state of the software HCA on the core that posts: one SendEngine a QP, one Outlet a lane, one Group a poll group.
//
// A doorbell executes the new WQEs of the send queue at once, on the posting core: it copies payload straight into the
// peer's receive buffers or registered memory and writes the peer's CQE. All of that memory is either in this process
// or mapped from the peer. Files:
//
//   execute.cpp      the doorbell, the loop over WQEs, the plain inline Send
//   operations.cpp   every other operation, one WQE a call
//   windows.cpp      memory windows: bind, invalidate, and access through them
//   error_state.cpp  failing, flushing, waiting, and what progress() looks after

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dv/mlx5/cq.h"
#include "dv/mlx5/qp.h"
#include "dv/soft/cq_writer.h"
#include "dv/soft/region.h"
#include "dv/soft/shared_layout.h"

namespace rodeo::dv::soft {

struct SendEngine;

/// The receive CQ of a lane, as its owner polls it, with the word by which the peer calls for attention.
struct ReceiveCq : mlx5::Cq {
  ReceiveCq(const mlx5::CqRing& ring, const std::uint32_t* attention_word) noexcept
      : Cq(ring), attention(attention_word) {}
  const std::uint32_t* attention;
  std::uint32_t attention_seen = 0;
};

/// Receives of the peer's, as the end that sends to them sees them. Its ring is the peer's to scribble on.
struct ReceiveQueue {
  const std::byte* wqes = nullptr;
  const Be32* record = nullptr;
  const Region* region = nullptr;  // where the last receive buffer was
  std::uint64_t usual = 0;         // its byte_count and lkey, as they stand in the ring
  std::uint32_t count = 0;         // of WQEs, a power of two
  std::uint16_t consumer = 0;      // how many have been used, free running
  std::uint16_t seen = 0;          // the peer's doorbell record when last read
  std::uint16_t index = 0;         // of a shared queue: of the next WQE
  std::uint32_t restarts = 0;      // of a shared queue: which beginning of it this is about

  /// The next receive of a queue pair's own ring.
  [[nodiscard]] const mlx5_wqe_data_seg& own_next() const noexcept {
    return reinterpret_cast<const mlx5_wqe_data_seg*>(wqes)[consumer & (count - 1)];
  }
  /// Of a shared queue.
  [[nodiscard]] const std::byte* shared_wqe() const noexcept { return wqes + index * std::size_t{kSharedWqeBytes}; }
  [[nodiscard]] const mlx5_wqe_data_seg& shared_next() const noexcept {
    return *reinterpret_cast<const mlx5_wqe_data_seg*>(shared_wqe() + sizeof(mlx5_wqe_srq_next_seg));
  }
  void use_own() noexcept { ++consumer; }
  void use_shared() noexcept {
    const auto* next = reinterpret_cast<const mlx5_wqe_srq_next_seg*>(shared_wqe());
    // A link that leads nowhere leads somewhere into the ring.
    index = static_cast<std::uint16_t>(be16toh(__atomic_load_n(&next->next_wqe_index, __ATOMIC_RELAXED)) & (count - 1));
    ++consumer;
  }
};

/// Where the sends of a lane go: the peer's segment and memory.
struct Outlet {
  CqWriter cq;
  SegmentView peer;
  const RegionTable* regions = nullptr;
  ReceiveQueue shared;
};

/// A poll group's share of the device. Runs on: the group's core, but for the atomics.
struct Group {
  CqWriter send_cq;
  SendEngine* waiting = nullptr;  // engines that progress() has to look after
  std::span<mlx5::Cq* const> receive_cqs;
  std::uint32_t next_lane = 0;
  std::uint32_t alarm_seen = 0;
  /// The control thread changed an engine (its peer is gone).
  alignas(64) std::atomic<std::uint32_t> alarm{0};
  /// Every engine of the group, with holes; written by the control thread.
  std::unique_ptr<std::atomic<SendEngine*>[]> engines;
  std::atomic<std::uint32_t> engine_limit{0};
};

/// How a WQE ended for now.
enum class Outcome : std::uint8_t {
  kDone,    // executed; the consumer index is behind it
  kWait,    // not executed; progress() tries again
  kFailed,  // the QP is in error
};

enum class WaitReason : std::uint8_t { kReceiverNotReady, kPeerQueueFull, kOwnQueueFull, kWindowInUse };

/// vendor_err_synd of our error CQEs: which check failed. For logs only.
enum class Reason : std::uint8_t {
  kNone,
  kWqeIndex,
  kWqeQpn,
  kWqeSize,
  kWqeOpcode,
  kInlineSize,
  kLocalKey,
  kReceiveKey,
  kReceiveTooShort,
  kRemoteKey,
  kRemoteLocked,
  kInvalidateKey,
  kBindKey,
  kBindRange,
  kBindRegion,
  kPeerLeft,
  kReceiverNotReady,
  kInjected,
};

/// A Read on its way: one piece of it for each local buffer.
struct DeferredRead {
  struct Piece {
    std::byte* to;
    const std::byte* from;
    std::uint32_t length;
  };
  std::span<const Piece> pieces;
  bool signalled = false;
  CqeImage cqe;
};

/// What a simulator sets between the queues and their execution. Null in production.
class Observer {
 public:
  virtual ~Observer() = default;
  /// The send queue has new WQEs, or the state of an end has changed.
  virtual void on_doorbell(SendEngine& engine) noexcept = 0;
  virtual void complete_send(SendEngine& engine, const CqeImage& cqe) noexcept = 0;
  virtual void complete_receive(SendEngine& engine, const CqeImage& cqe) noexcept = 0;
  virtual void wait(SendEngine& engine, WaitReason reason) noexcept = 0;
  /// The engine will not touch its peer again, once what it has completed is out.
  virtual void leave(SendEngine& engine) noexcept = 0;
  /// A Read whose access has been checked: its data may come at any later time, but before `cqe` (if signalled).
  virtual void defer_read(SendEngine& engine, const DeferredRead& read) noexcept = 0;
  /// The engine is destroyed: what it has completed goes out now, and it is not touched again.
  virtual void forget(SendEngine& engine) noexcept = 0;
};

struct alignas(64) SendEngine {
  // Bits of `gate`: why the doorbell must not just run.
  static constexpr std::uint32_t kUnconnected = 1;
  static constexpr std::uint32_t kWaiting = 2;
  static constexpr std::uint32_t kInError = 4;
  static constexpr std::uint32_t kPeerLost = 8;
  static constexpr std::uint32_t kObserved = 16;
  static constexpr std::uint32_t kShared = 32;  // the peer's receives come from the lane's shared queue

  // The line that every doorbell touches.
  std::uint32_t gate = kUnconnected;
  std::uint32_t qpn = 0;
  const std::byte* sq = nullptr;
  std::uint32_t sq_bbs = 0;
  std::uint32_t peer_qpn = 0;
  std::uint16_t consumer = 0;  // in BBs
  std::uint32_t rnr_attempts = 0;
  Outlet* outlet = nullptr;
  Group* group = nullptr;
  std::array<Be32, 2> send_record{};  // the doorbell record of the send queue
  // One more, where the peer's QP has a receive ring of its own.
  alignas(64) ReceiveQueue own_receives;
  QpContext* own = nullptr;
  QpContext* peer = nullptr;
  // Rarely used.
  const RegionTable* own_regions = nullptr;
  SegmentView own_segment;
  std::uint32_t rnr_retry = 7;  // 7: for ever
  std::uint64_t rnr_interval_ns = 0;
  WaitReason wait_reason = WaitReason::kReceiverNotReady;
  std::uint64_t due_ns = 0;
  bool shares = false;  // the peer's receives come from the lane's shared queue; set before `connected`
  bool left = false;    // remote_done is set at the peer
  bool linked = false;  // in Group::waiting
  bool receive_flush_begun = false;
  std::uint16_t receives_flushed = 0;
  SendEngine* next_waiting = nullptr;
  Observer* observer = nullptr;
  mlx5::Qp* qp = nullptr;
  ReceiveCq* receive_cq = nullptr;
  // Written by the control thread.
  std::atomic<bool> connected{false};
  std::atomic<bool> peer_gone{false};  // its process died or closed the connection
  std::atomic<bool> retired{false};    // destroyed; adopt() forgets it
};

/// A WQE's control segment, decoded.
struct Wqe {
  std::uint32_t slot_offset = 0;  // of its first byte in the ring
  std::uint16_t index = 0;
  std::uint8_t opcode = 0;
  std::uint32_t ds = 0;
  std::uint32_t bbs = 0;
  std::uint32_t immediate = 0;
  bool signalled = false;
};

/// Byte `offset` of a WQE that may wrap.
[[nodiscard]] inline const std::byte* wqe_at(const SendEngine& engine, const Wqe& wqe, std::uint32_t offset) noexcept {
  return engine.sq + ((wqe.slot_offset + offset) & (engine.sq_bbs * mlx5::kBbBytes - 1));
}

[[nodiscard]] inline std::uint16_t send_producer(const SendEngine& engine) noexcept {
  // Acquire: pairs with the store in mlx5::Qp::ring_doorbell.
  return static_cast<std::uint16_t>(
      byte_swap(__atomic_load_n(reinterpret_cast<const std::uint32_t*>(engine.send_record.data()), __ATOMIC_ACQUIRE)));
}

/// Where the peer's receives for us are.
[[nodiscard]] inline ReceiveQueue& receives_of(SendEngine& engine) noexcept {
  return (engine.gate & SendEngine::kShared) != 0 ? engine.outlet->shared : engine.own_receives;
}

/// Whether the peer has a receive for us; reads its doorbell record only when those known of are used up.
[[nodiscard]] inline bool receive_ready(SendEngine& engine, ReceiveQueue& receives) noexcept {
  if (receives.consumer != receives.seen) return true;
  const auto posted = static_cast<std::uint16_t>(
      byte_swap(__atomic_load_n(reinterpret_cast<const std::uint32_t*>(receives.record), __ATOMIC_ACQUIRE)));
  // More than the ring holds is nonsense, and as good as nothing.
  if (static_cast<std::uint16_t>(posted - receives.consumer) > receives.count) return false;
  receives.seen = posted;
  if (posted == receives.consumer) return false;
  engine.rnr_attempts = 0;
  return true;
}

// execute.cpp
void run(SendEngine& engine) noexcept;

// operations.cpp
/// Executes the WQE at the consumer index, of which there must be one.
[[nodiscard]] Outcome execute_one(SendEngine& engine) noexcept;

// windows.cpp
[[nodiscard]] Outcome execute_umr(SendEngine& engine, const Wqe& wqe) noexcept;
/// Takes the peer's window `key` from it, as a Send With Invalidate does. False: it is not a window bound on that QP.
[[nodiscard]] bool invalidate_remote(SendEngine& engine, std::uint32_t key) noexcept;
/// [at, at + length) of the peer through `key`, or nullptr. Until release_remote no invalidation of it completes.
[[nodiscard]] std::byte* acquire_remote(SendEngine& engine, std::uint32_t key, std::uint64_t at, std::uint64_t length,
                                        Access wanted) noexcept;
void release_remote(SendEngine& engine) noexcept;

// error_state.cpp
/// Ends the WQE with an error CQE and moves the QP to ERR; `both`: and the peer's QP, too.
Outcome fail_wqe(SendEngine& engine, const Wqe& wqe, std::uint8_t syndrome, Reason reason, bool both) noexcept;
Outcome wait(SendEngine& engine, WaitReason reason) noexcept;
void enter_error(SendEngine& engine, bool both) noexcept;
/// Lets the engine follow what happened to either end (fail, flush); true when it may execute its WQEs.
[[nodiscard]] bool ready_to_run(SendEngine& engine) noexcept;
/// Does whatever the engine's state calls for: run, flush, fail, or nothing.
void attend(SendEngine& engine) noexcept;
/// Tells the peer that nothing of its QP will be touched again.
void announce_departure(SendEngine& engine) noexcept;
[[nodiscard]] Wqe decode_control(const SendEngine& engine) noexcept;
void complete_send(SendEngine& engine, const CqeImage& cqe) noexcept;
void complete_receive(SendEngine& engine, const CqeImage& cqe) noexcept;

}  // namespace rodeo::dv::soft
