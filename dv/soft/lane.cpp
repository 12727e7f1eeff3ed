// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/lane.h"

#include <algorithm>

namespace rodeo::dv::soft {

namespace {
constexpr std::uint32_t kGroupQps = 16384;
}  // namespace

void Lane::open_outlet(std::shared_ptr<Segment> peer_owner, std::shared_ptr<const PeerMemory> peer_memory) {
  peer_segment = std::move(peer_owner);
  const SegmentView peer = peer_segment->view();
  memory = std::move(peer_memory);
  outlet.cq.cqes = peer.cqes();
  outlet.cq.consumer_record = peer.header().cq_record;
  outlet.cq.count = kLaneCqes;
  outlet.regions = &memory->regions;
  outlet.shared.wqes = peer.shared_ring();
  outlet.shared.record = peer.shared_record().words;
  outlet.shared.count = kSharedWqes;
  outlet.peer = peer;
}

mlx5::Srq& Lane::shared_receives() {
  if (!srq) {
    own->populate_shared_receives();
    const SegmentView view = own->view();
    srq = std::make_unique<mlx5::Srq>(mlx5::SrqRing{.wqes = view.shared_ring(),
                                                    .wqe_count = kSharedWqes,
                                                    .dbrec = view.shared_record().words,
                                                    .restarts = &view.shared_record().restarts});
  }
  return *srq;
}

QpBundle::~QpBundle() {
  if (qpns != nullptr) {
    lane->group->engine_slots.give_back(group_slot);
    qpns->give_back(engine.qpn);
  }
  --lane->qp_count;
  // A slot that the peer may still write to is never used again.
  const bool settled = !offered || load_shared(engine.own->remote_done) != 0;
  if (settled) lane->slots.give_back(slot);
}

GroupState::GroupState(std::uint32_t number, std::uint32_t send_cqes)
    : index(number),
      engine_slots(kGroupQps),
      cqes_(std::size_t{send_cqes} * sizeof(mlx5_cqe64)),
      cq_record_(sizeof(Be32[2])) {
  auto* ring = reinterpret_cast<mlx5_cqe64*>(cqes_.get());
  for (std::uint32_t i = 0; i < send_cqes; ++i) ring[i].op_own = static_cast<std::uint8_t>(MLX5_CQE_INVALID << 4);
  auto* record = reinterpret_cast<Be32*>(cq_record_.get());
  soft.send_cq.cqes = ring;
  soft.send_cq.consumer_record = record;
  soft.send_cq.count = send_cqes;
  soft.engines = std::make_unique<std::atomic<SendEngine*>[]>(kGroupQps);
  members_.push_back(std::make_unique<mlx5::PollGroup::Members>());
  poll_group = std::make_unique<mlx5::PollGroup>(
      mlx5::CqRing{.cqes = cqes_.get(), .dbrec = record, .cqe_count = send_cqes}, &soft, members_.back().get());
}

void GroupState::publish() {
  auto members = std::make_unique<mlx5::PollGroup::Members>();
  members->generation = ++generation_;
  for (const auto& lane : lanes) members->receive_cqs.push_back(lane->receive_cq.get());
  poll_group->publish(members.get());
  members_.push_back(std::move(members));
}

void GroupState::collect() {
  const std::uint64_t adopted = poll_group->adopted_generation();
  std::erase_if(members_, [&](const auto& members) { return members->generation < adopted; });
  // Moved out first: what goes may hold the last reference to something that calls back.
  std::vector<Kept> gone;
  const auto keep =
      std::stable_partition(kept_.begin(), kept_.end(), [&](const Kept& kept) { return kept.generation > adopted; });
  std::move(keep, kept_.end(), std::back_inserter(gone));
  kept_.erase(keep, kept_.end());
}

}  // namespace rodeo::dv::soft
