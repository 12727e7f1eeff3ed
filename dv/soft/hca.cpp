// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/hca.h"

#include <fcntl.h>
#include <sys/random.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace rodeo::dv::soft {

namespace {

constexpr const char* kWhere = "software HCA";
constexpr std::uint32_t kSendCqes = 2048;
constexpr std::uint32_t kMinSendBbs = 32;
constexpr std::uint32_t kMaxSendBbs = 32768;
constexpr std::uint32_t kBbsPerSend = 2;  // a small inline Send
constexpr std::uint32_t kMaxInline = (mlx5::kMaxDs - 1) * mlx5::kDsBytes - mlx5::kInlineHeaderBytes;
constexpr std::size_t kRingSlack = 256;  // whole-block copies read a little behind the ring
constexpr std::uint32_t kFirstQpn = 64;
constexpr std::uint32_t kMaxGroups = 256;

/// Fresh low 8 bits for a key, never 0 with an index that could make it look like a terminator.
std::uint32_t random_tag() { return static_cast<std::uint32_t>(random_word() & 0xffU); }

}  // namespace

std::uint64_t random_word() {
  std::uint64_t word = 0;
  while (getrandom(&word, sizeof word, 0) != sizeof word) {
  }
  return word;
}

bool plausible(const QpAddress& address) noexcept {
  return address.index < kLaneQps && address.qpn != 0 && address.qpn <= 0xffffffU &&
         address.receive_wqes <= kMaxReceives &&
         (address.receive_wqes == 0 || std::has_single_bit(address.receive_wqes));
}

Hca::Hca(const SoftOptions& options)
    : options_(options),
      process_{{random_word(), random_word()}},
      qpns_(kFirstQpn + options.qp_numbers, kFirstQpn),
      windows_(kKeyCount) {
  capabilities_.name = "software HCA";
  capabilities_.driver = "software HCA";
  capabilities_.max_inline = kMaxInline;
  capabilities_.max_sges = mlx5::kMaxDs - 2;
  capabilities_.max_queue_depth = kMaxReceives;
  capabilities_.max_shared_receives = kSharedWqes - 1;
  capabilities_.memory_windows = true;
  capabilities_.max_windows = kKeyCount;
  capabilities_.remote_invalidate = true;
  capabilities_.one_host = true;
}

Hca::~Hca() = default;

Hca::Link::~Link() {
  if (group != nullptr) --group->connections;
}

void Hca::Link::assign(GroupState& owner) noexcept {
  group = &owner;
  ++group->connections;
}

Usage Hca::usage() const noexcept {
  const auto used = [](const Region& region) { return region.key != 0; };
  return {.queue_pairs = queue_pairs_,
          .memory_windows = static_cast<std::uint32_t>(window_owners_.size()),
          .memory_regions = static_cast<std::uint32_t>(
              std::count_if(std::begin(own_regions_.slots), std::end(own_regions_.slots), used))};
}

Result<MemoryRegion> Hca::register_memory(std::span<std::byte> range, int fd, std::size_t fd_offset, Access access) {
  if (range.empty()) return fail(kWhere, "a region of 0 bytes was to be registered", "register at least one page");
  if (has_connections()) {
    return fail(kWhere, "memory was to be registered after the first connection",
                "register everything before listen and connect");
  }
  std::uint32_t index = kFirstRegionIndex;
  while (index < kRegionSlots && own_regions_.slots[index].key != 0) ++index;
  if (index == kRegionSlots) {
    return fail(kWhere, "all " + std::to_string(kRegionSlots - kFirstRegionIndex) + " regions are taken",
                "register fewer and larger ones");
  }
  if (needs_files()) {
    if (auto good = check_shareable(fd, fd_offset, range.size()); !good) return tl::unexpected(good.error());
    File copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) {
      return fail(kWhere, std::string("the memfd could not be duplicated: ") + std::strerror(errno),
                  "raise the limit on open files (`ulimit -n`)");
    }
    files_.push_back({std::move(copy), fd_offset, index});
  }
  const std::uint32_t key = (index << 8) | random_tag();
  own_regions_.slots[index] = {.key = key,
                               .access = access,
                               .address = reinterpret_cast<std::uintptr_t>(range.data()),
                               .length = range.size(),
                               .local = range.data()};
  return MemoryRegion{range.data(), range.size(), key, key};
}

Result<mlx5::PollGroup*> Hca::make_poll_group() {
  if (groups_.size() == kMaxGroups) {
    return fail(kWhere, "all " + std::to_string(kMaxGroups) + " poll groups are taken", "use fewer poll cores");
  }
  groups_.push_back(std::make_unique<GroupState>(static_cast<std::uint32_t>(groups_.size()), kSendCqes));
  return groups_.back()->poll_group.get();
}

Result<std::shared_ptr<Lane>> Hca::make_lane(GroupState& group, std::uint64_t id, bool shared) {
  auto segment = Segment::create(shared, process_, id);
  if (!segment) return tl::unexpected(segment.error());
  auto lane = std::make_shared<Lane>(group, id);
  lane->own = std::make_shared<Segment>(std::move(*segment));
  const SegmentView view = lane->own->view();
  lane->receive_cq = std::make_unique<ReceiveCq>(
      mlx5::CqRing{
          .cqes = reinterpret_cast<std::byte*>(view.cqes()), .dbrec = view.header().cq_record, .cqe_count = kLaneCqes},
      &view.header().attention);
  group.lanes.push_back(lane);
  group.publish();
  return lane;
}

void Hca::drop_lane(const std::shared_ptr<Lane>& lane) {
  GroupState& group = *lane->group;
  if (std::erase(group.lanes, lane) == 0) return;
  group.keep(lane);
  group.publish();
}

Result<mlx5::Qp*> Hca::make_qp(CmId id, const QpSizes& sizes) {
  collect();
  auto found = link_for_qp(id);
  if (!found) return tl::unexpected(found.error());
  Link& link = **found;
  if (link.bundle) return fail(kWhere, "the connection has a QP already", "make one QP per connection");
  if (sizes.send_depth == 0 || sizes.send_depth > kMaxSendBbs / kBbsPerSend || sizes.receive_depth > kMaxReceives) {
    return fail(kWhere,
                "a QP of " + std::to_string(sizes.send_depth) + " sends and " + std::to_string(sizes.receive_depth) +
                    " receives is not possible",
                "use 1 to " + std::to_string(kMaxSendBbs / kBbsPerSend) + " sends and 0 (shared) to " +
                    std::to_string(kMaxReceives) + " receives");
  }
  Lane& lane = *link.lane;
  GroupState& group = *lane.group;
  const std::uint32_t slot = lane.slots.take();
  if (slot == lane.slots.limit()) {
    return fail(kWhere, "all " + std::to_string(kLaneQps) + " QPs between the two poll groups are taken",
                "spread the connections over more poll cores");
  }
  ++lane.qp_count;
  auto bundle = std::make_unique<QpBundle>(link.lane, slot);
  const SegmentView view = lane.own->view();
  bundle->engine.own = &view.qp(slot);

  const std::uint32_t group_slot = group.engine_slots.take();
  if (group_slot == group.engine_slots.limit()) {
    return fail(kWhere, "the poll group has no room for another QP", "spread the connections over more poll cores");
  }
  const std::uint32_t qpn = qpns_.take();
  if (qpn == qpns_.limit()) {
    group.engine_slots.give_back(group_slot);
    return fail(kWhere, "all " + std::to_string(options_.qp_numbers) + " QP numbers are taken",
                "close connections, or spread them over more processes");
  }
  bundle->group_slot = group_slot;
  bundle->qpns = &qpns_;
  bundle->engine.qpn = qpn;

  const std::uint32_t sq_bbs = std::max(kMinSendBbs, std::bit_ceil(sizes.send_depth * kBbsPerSend));
  const bool shares = sizes.receive_depth == 0;
  bundle->receive_wqes = shares ? 0 : std::bit_ceil(sizes.receive_depth);
  bundle->sq = Lines(std::size_t{sq_bbs} * mlx5::kBbBytes + kRingSlack);
  lane.own->populate_qp(slot, bundle->receive_wqes);
  QpContext& context = view.qp(slot);
  context.hazard = 0;
  context.final_producer = 0;
  context.qpn = bundle->engine.qpn;
  store_shared<std::uint32_t>(context.remote_done, 0);
  std::byte* const receive_ring = shares ? nullptr : view.receive_ring(slot, bundle->receive_wqes);
  if (!shares) std::memset(receive_ring, 0, std::size_t{bundle->receive_wqes} * kReceiveWqeBytes);
  view.record(slot) = {};
  store_shared<std::uint32_t>(context.state, kReady);

  SendEngine& engine = bundle->engine;
  engine.sq = bundle->sq.get();
  engine.sq_bbs = sq_bbs;
  engine.outlet = &lane.outlet;
  engine.group = &group.soft;
  engine.own_regions = &own_regions_;
  engine.own_segment = view;
  engine.rnr_retry = options_.rnr_retry;
  engine.rnr_interval_ns = std::uint64_t{options_.rnr_interval_us} * 1000;
  engine.receive_cq = lane.receive_cq.get();
  bundle->qp = std::make_unique<mlx5::Qp>(mlx5::QpRings{
      .sq = bundle->sq.get(),
      .sq_bbs = sq_bbs,
      .rq = receive_ring,
      .rq_wqes = bundle->receive_wqes,
      .srq = shares ? &lane.shared_receives() : nullptr,
      .dbrec = view.record(slot).words,
      .send_dbrec = engine.send_record.data(),
      .qpn = engine.qpn,
      .max_inline = kMaxInline,
      .soft = &engine,
  });
  engine.qp = bundle->qp.get();
  on_new_engine(*bundle);
  group.soft.engines[group_slot].store(&engine, std::memory_order_release);
  if (group.soft.engine_limit.load(std::memory_order_relaxed) <= group_slot) {
    group.soft.engine_limit.store(group_slot + 1, std::memory_order_release);
  }
  link.bundle = std::move(bundle);
  ++queue_pairs_;
  return link.bundle->qp.get();
}

QpAddress Hca::address_of(const QpBundle& bundle) noexcept {
  return {bundle.slot, bundle.engine.qpn, bundle.receive_wqes};
}

void Hca::connect_engine(QpBundle& bundle, const QpAddress& peer) {
  Lane& lane = *bundle.lane;
  SendEngine& engine = bundle.engine;
  lane.peer_segment->populate_qp(peer.index, peer.receive_wqes);
  const SegmentView view = lane.outlet.peer;
  engine.peer = &view.qp(peer.index);
  engine.peer_qpn = peer.qpn;
  if (peer.receive_wqes == 0) {
    lane.peer_segment->populate_shared_receives();
    engine.shares = true;
  } else {
    engine.own_receives.wqes = view.receive_ring(peer.index, peer.receive_wqes);
    engine.own_receives.count = peer.receive_wqes;
    engine.own_receives.record = view.record(peer.index).words;
  }
  // Release: pairs with the loads on the poll core, which touches none of the above before.
  engine.connected.store(true, std::memory_order_release);
}

void Hca::mark_peer_gone(QpBundle& bundle) noexcept {
  bundle.engine.peer_gone.store(true, std::memory_order_release);
  bundle.lane->group->soft.alarm.fetch_add(1, std::memory_order_release);
}

void Hca::retire(std::unique_ptr<QpBundle> bundle) {
  --queue_pairs_;
  GroupState& group = *bundle->lane->group;
  SendEngine& engine = bundle->engine;
  engine.retired.store(true, std::memory_order_release);
  group.soft.engines[bundle->group_slot].store(nullptr, std::memory_order_release);
  store_shared<std::uint32_t>(engine.own->state, kError);
  // Nobody uses the QP any more, so this thread may speak for it.
  if (engine.observer != nullptr) engine.observer->forget(engine);
  if (engine.connected.load(std::memory_order_acquire)) announce_departure(engine);
  for (const std::uint32_t index : bundle->windows) {
    store_shared<std::uint32_t>(engine.own_segment.window(index).state, kUnused);
    window_owners_.erase(index);
    windows_.give_back(index);
  }
  group.keep(std::shared_ptr<QpBundle>(std::move(bundle)));
  group.publish();
}

void Hca::collect() {
  for (const auto& group : groups_) group->collect();
}

GroupState* Hca::least_loaded_group() noexcept {
  const auto least = std::min_element(groups_.begin(), groups_.end(),
                                      [](const auto& a, const auto& b) { return a->connections < b->connections; });
  return least == groups_.end() ? nullptr : least->get();
}

GroupState* Hca::state_of(const mlx5::PollGroup& group) noexcept {
  const auto found = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const auto& state) { return state->poll_group.get() == &group; });
  return found == groups_.end() ? nullptr : found->get();
}

tl::unexpected<Error> Hca::unknown_id(const char* where) {
  return fail(where, "the connection is not known, or not at this point of its life",
              "call this only after the event that allows it");
}

Result<void> Hca::check_private_data(const char* where, std::span<const std::byte> data, std::size_t limit) {
  if (data.size() <= limit) return {};
  return fail(where, std::to_string(data.size()) + " bytes of private data do not fit",
              "send at most " + std::to_string(limit));
}

Result<std::uint32_t> Hca::allocate_window(CmId id) {
  Link* link = find_link(id);
  if (link == nullptr || !link->bundle) {
    return fail(kWhere, "a memory window needs a QP to be bound on", "call make_qp first");
  }
  const std::uint32_t index = windows_.take();
  if (index == windows_.limit()) {
    return fail(kWhere, "all " + std::to_string(kKeyCount) + " memory windows are taken", "allocate fewer windows");
  }
  link->bundle->windows.push_back(index);
  window_owners_.emplace(index, link->bundle.get());
  Window& window = link->bundle->engine.own_segment.window(index);
  window.key = ((kFirstWindowIndex + index) << 8) | random_tag();
  window.qpn = 0;
  store_shared<std::uint32_t>(window.state, kFree);
  return window.key;
}

void Hca::free_window(std::uint32_t key) {
  const auto found = window_owners_.find(key_index(key) - kFirstWindowIndex);
  if (found == window_owners_.end()) return;
  const auto [index, bundle] = *found;
  window_owners_.erase(found);
  std::erase(bundle->windows, index);
  store_shared<std::uint32_t>(bundle->engine.own_segment.window(index).state, kUnused);
  windows_.give_back(index);
}

void Hca::move_to_error(mlx5::Qp& qp) noexcept { enter_error(*qp.soft(), false); }

}  // namespace rodeo::dv::soft
