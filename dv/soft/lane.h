// SPDX-License-Identifier: Apache-2.0
#pragma once

// What the control thread keeps of poll groups, lanes and queue pairs. Runs on: control thread; the poll cores use the
// engines, outlets and CQs in here, and let go of them when they adopt a new list of receive CQs.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "dv/mlx5/poll_group.h"
#include "dv/mlx5/qp.h"
#include "dv/soft/segment.h"
#include "dv/soft/send_engine.h"
#include "pools/state_memory.h"

namespace rodeo::dv::soft {

/// Small numbers to hand out, from `first` up to `limit`, the longest unused first, so that a stale one is not soon
/// mistaken for a new one.
class IndexPool {
 public:
  explicit IndexPool(std::uint32_t limit, std::uint32_t first = 0) noexcept : limit_(limit), next_(first) {}
  /// `limit` when all are taken.
  [[nodiscard]] std::uint32_t take() {
    if (free_.size() > kRest || (next_ == limit_ && !free_.empty())) {
      const std::uint32_t index = free_.front();
      free_.pop_front();
      return index;
    }
    return next_ == limit_ ? limit_ : next_++;
  }
  void give_back(std::uint32_t index) { free_.push_back(index); }
  [[nodiscard]] std::uint32_t limit() const noexcept { return limit_; }

 private:
  static constexpr std::size_t kRest = 16;
  std::uint32_t limit_;
  std::uint32_t next_;
  std::deque<std::uint32_t> free_;
};

/// Zeroed memory on cache lines of its own.
using Lines = pools::StateArray<std::byte>;

/// A peer's registered memory, as mapped here.
struct PeerMemory {
  RegionTable regions;
  std::vector<Mapping> mappings;
};

struct GroupState;

struct Lane {
  explicit Lane(GroupState& owner, std::uint64_t lane_id) : group(&owner), id(lane_id), slots(kLaneQps) {}

  GroupState* group;
  std::uint64_t id;
  std::shared_ptr<Segment> own;
  std::shared_ptr<Segment> peer_segment;  // as mapped here; inside one process, the peer's very own
  std::unique_ptr<ReceiveCq> receive_cq;
  std::unique_ptr<mlx5::Srq> srq;  // once a QP of ours shares receives
  Outlet outlet;                   // usable once outlet.peer.base is set
  std::shared_ptr<const PeerMemory> memory;
  IndexPool slots;
  std::uint32_t qp_count = 0;

  [[nodiscard]] mlx5::Srq& shared_receives();
  [[nodiscard]] bool open() const noexcept { return outlet.peer.base != nullptr; }
  void open_outlet(std::shared_ptr<Segment> peer, std::shared_ptr<const PeerMemory> peer_memory);
};

/// One QP and everything of it that only we touch.
struct QpBundle : pools::InStateMemory {
  QpBundle(std::shared_ptr<Lane> owner, std::uint32_t slot_index) : lane(std::move(owner)), slot(slot_index) {}
  QpBundle(const QpBundle&) = delete;
  QpBundle& operator=(const QpBundle&) = delete;
  ~QpBundle();

  SendEngine engine;
  std::shared_ptr<Lane> lane;
  std::uint32_t slot;            // in the lane's segment
  std::uint32_t group_slot = 0;  // in Group::engines
  IndexPool* qpns = nullptr;
  std::uint32_t receive_wqes = 0;  // 0: shared
  /// The peer was told of this QP and may touch it until it says that it is done.
  bool offered = false;
  std::vector<std::uint32_t> windows;  // indexes
  Lines sq;
  std::unique_ptr<mlx5::Qp> qp;
};

struct GroupState {
  GroupState(std::uint32_t number, std::uint32_t send_cqes);

  /// Publishes the present lanes to the core that polls. What the core used until now must live until collect().
  void publish();
  /// Keeps `thing` until the poll core cannot be using it any more. Call publish() after it.
  void keep(std::shared_ptr<void> thing) { kept_.push_back({generation_ + 1, std::move(thing)}); }
  void collect();

  std::uint32_t index;
  std::uint32_t connections = 0;
  std::vector<std::shared_ptr<Lane>> lanes;
  Group soft;
  IndexPool engine_slots;
  std::unique_ptr<mlx5::PollGroup> poll_group;

 private:
  struct Kept {
    std::uint64_t generation;
    std::shared_ptr<void> thing;
  };
  Lines cqes_;
  Lines cq_record_;
  std::uint64_t generation_ = 0;
  std::vector<std::unique_ptr<mlx5::PollGroup::Members>> members_;
  std::vector<Kept> kept_;
};

}  // namespace rodeo::dv::soft
