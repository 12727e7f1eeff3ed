// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/fabric_device.h"

#include <algorithm>
#include <utility>

namespace rodeo::dv::soft {

namespace {

/// Devices of a fabric are told apart by addresses, too: fd00::1 is the first.
Peer address_of_device(std::uint32_t index) noexcept {
  Peer peer;
  peer.kind = Peer::Kind::kAddress;
  peer.address[0] = 0xfd;
  for (std::size_t octet = 0; octet < sizeof index; ++octet) {
    peer.address[15 - octet] = static_cast<std::uint8_t>((index + 1) >> (8 * octet));
  }
  return peer;
}

}  // namespace

// ------------------------------------------------------------------------------------------------------- the fabric

FabricState::FabricState(Fabric::Mode mode, std::uint64_t seed) {
  if (mode == Fabric::Mode::kImmediate) return;
  scheduler = std::make_unique<Scheduler>(
      seed,
      Scheduler::Messages{.count = [this] { return receivers().size(); },
                          .deliver =
                              [this](std::size_t nth) {
                                FabricDevice& receiver = *receivers()[nth];
                                receiver.inbox_.push_back(std::move(receiver.wire_.front()));
                                receiver.wire_.pop_front();
                              }},
      Scheduler::Levers{.disconnect =
                            [this](SendEngine& engine) {
                              for (FabricDevice* device : devices) {
                                if (device != nullptr) device->drop_connection_of(engine);
                              }
                            },
                        .kill_peer =
                            [this](SendEngine& engine) {
                              for (FabricDevice* device : devices) {
                                if (device == nullptr) continue;
                                for (const auto& [id, connection] : device->connections_) {
                                  if (!connection->bundle || &connection->bundle->engine != &engine) continue;
                                  kill(connection->peer_device);
                                  return;
                                }
                              }
                            }});
}

std::vector<FabricDevice*> FabricState::receivers() const {
  std::vector<FabricDevice*> list;
  for (FabricDevice* device : devices) {
    if (device != nullptr && !device->wire_.empty()) list.push_back(device);
  }
  return list;
}

void FabricState::send(std::uint32_t to_device, FabricMessage message) {
  FabricDevice* receiver = device(to_device);
  if (receiver == nullptr) return;
  (scheduler == nullptr ? receiver->inbox_ : receiver->wire_).push_back(std::move(message));
}

void FabricState::kill(std::uint32_t index) {
  FabricDevice* victim = device(index);
  if (victim == nullptr) return;
  devices[index] = nullptr;
  std::erase_if(listeners, [index](const auto& entry) { return entry.second.first == index; });
  if (scheduler != nullptr) scheduler->silence(index);
  victim->fall_silent();
}

// ------------------------------------------------------------------------------------------------------- the device

FabricDevice::FabricDevice(std::shared_ptr<FabricState> fabric, const SoftOptions& options)
    : Hca(options), fabric_(std::move(fabric)), index_(static_cast<std::uint32_t>(fabric_->devices.size())) {
  fabric_->devices.push_back(this);
}

FabricDevice::~FabricDevice() {
  while (!listeners_.empty()) destroy(CmId{listeners_.begin()->first});
  while (!connections_.empty()) destroy(CmId{connections_.begin()->first});
  if (!dead_) fabric_->devices[index_] = nullptr;
}

FabricDevice::Connection* FabricDevice::find(CmId id) noexcept {
  const auto found = connections_.find(number(id));
  return found == connections_.end() ? nullptr : found->second.get();
}

void FabricDevice::on_new_engine(QpBundle& bundle) {
  if (fabric_->scheduler != nullptr) fabric_->scheduler->add(bundle.engine, index_, qp_count_);
  ++qp_count_;
}

Result<CmId> FabricDevice::listen(const Address& address) {
  const std::string where = "listen on " + address.to_string();
  if (address.scheme != Address::Scheme::kSimulated) {
    return fail(where, "a device of a fabric has sim: addresses only", "use sim:NAME");
  }
  if (groups_.empty()) return fail(where, "no poll group would own the connections", "call make_poll_group first");
  const CmId id = next_id();
  if (!fabric_->listeners.emplace(address.name, std::pair(index_, id)).second) {
    return fail(where, "another device of the fabric listens there", "choose another name");
  }
  listeners_.emplace(number(id), address.name);
  return id;
}

Result<CmId> FabricDevice::connect(const Address& address, mlx5::PollGroup& group) {
  const std::string where = "connect to " + address.to_string();
  if (address.scheme != Address::Scheme::kSimulated) {
    return fail(where, "a device of a fabric has sim: addresses only", "use sim:NAME");
  }
  GroupState* state = state_of(group);
  if (state == nullptr) return fail(where, "the poll group belongs to another device", "use a group of this device");
  const auto listener = fabric_->listeners.find(address.name);
  if (listener == fabric_->listeners.end()) {
    return fail(where, "no device of the fabric listens there", "listen first, or check the name");
  }
  auto connection = std::make_unique<Connection>();
  connection->id = next_id();
  connection->known = true;
  connection->peer_device = listener->second.first;
  connection->assign(*state);
  const CmId id = connection->id;
  const CmId to = listener->second.second;
  connections_.emplace(number(id), std::move(connection));
  fabric_->send(listener->second.first, {.type = FabricMessage::Type::kHello,
                                         .from_device = index_,
                                         .from = id,
                                         .to = to,
                                         .group = 0,
                                         .qp = {},
                                         .private_data = {},
                                         .reason = {}});
  return id;
}

Result<Hca::Link*> FabricDevice::link_for_qp(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || (connection->stage != Stage::kResolved && connection->stage != Stage::kPending)) {
    return unknown_id("make a QP");
  }
  if (!connection->lane) {
    FabricDevice* peer = fabric_->device(connection->peer_device);
    if (peer == nullptr) return fail("make a QP", "the peer is gone", "destroy the connection");
    auto lane = lane_to(*connection->group, *peer, connection->peer_group);
    if (!lane) return tl::unexpected(lane.error());
    connection->lane = *lane;
  }
  return connection;
}

std::shared_ptr<const PeerMemory> FabricDevice::memory_for_peers() const {
  auto memory = std::make_shared<PeerMemory>();
  memory->regions = own_regions_;
  return memory;
}

Result<std::shared_ptr<Lane>> FabricDevice::lane_to(GroupState& group, FabricDevice& peer, std::uint32_t peer_group) {
  const LaneKey here{group.index, peer.index_, peer_group};
  const LaneKey there{peer_group, index_, group.index};
  if (const auto found = lanes_.find(here); found != lanes_.end()) return found->second;
  const std::uint64_t id = random_word();
  auto ours = make_lane(group, id, false);
  if (!ours) return tl::unexpected(ours.error());
  lanes_.emplace(here, *ours);
  if (here == there && &peer == this) {  // both ends in one poll group: the lane is its own peer
    (*ours)->open_outlet((*ours)->own, memory_for_peers());
    return *ours;
  }
  auto theirs = peer.make_lane(*peer.groups_[peer_group], id, false);
  if (!theirs) return tl::unexpected(theirs.error());
  peer.lanes_.emplace(there, *theirs);
  (*ours)->open_outlet((*theirs)->own, peer.memory_for_peers());
  (*theirs)->open_outlet((*ours)->own, memory_for_peers());
  return *ours;
}

void FabricDevice::drop_unused_lanes() {
  if (options_.keep_lanes) return;
  // Both ends of a lane go together, once no connection uses either.
  std::erase_if(lanes_, [this](const auto& entry) {
    const auto& [key, lane] = entry;
    const auto& [group, peer_index, peer_group] = key;
    FabricDevice* peer = fabric_->device(peer_index);
    std::shared_ptr<Lane> other;
    if (peer != nullptr && peer != this) {
      if (const auto found = peer->lanes_.find({peer_group, index_, group}); found != peer->lanes_.end()) {
        other = found->second;
      }
    }
    const auto idle = [](const std::shared_ptr<Lane>& end, const FabricDevice& owner) {
      return std::none_of(owner.connections_.begin(), owner.connections_.end(),
                          [&](const auto& c) { return c.second->lane == end; });
    };
    if (!idle(lane, *this) || (other && !idle(other, *peer))) return false;
    if (peer == this) return false;  // its two ends may be two lanes of ours: they stay as long as the device
    drop_lane(lane);
    if (other) {
      peer->drop_lane(other);
      peer->lanes_.erase({peer_group, index_, group});
    }
    return true;
  });
}

void FabricDevice::post(const Connection& connection, FabricMessage message) {
  message.from_device = index_;
  message.from = connection.id;
  message.to = connection.peer;
  if (!dead_) fabric_->send(connection.peer_device, std::move(message));
}

Result<void> FabricDevice::finish_connect(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kResolved || !connection->bundle) {
    return unknown_id("finish connecting");
  }
  if (auto fits = check_private_data("finish connecting", private_data, kMaxRequestData); !fits) return fits;
  connection->bundle->offered = true;
  connection->stage = Stage::kRequested;
  FabricMessage request;
  request.type = FabricMessage::Type::kRequest;
  request.group = connection->group->index;
  request.qp = address_of(*connection->bundle);
  request.private_data.assign(private_data.begin(), private_data.end());
  post(*connection, std::move(request));
  return {};
}

Result<void> FabricDevice::accept(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending || !connection->bundle) {
    return unknown_id("accept a connection");
  }
  if (auto fits = check_private_data("accept a connection", private_data, kMaxReplyData); !fits) return fits;
  connection->bundle->offered = true;
  connect_engine(*connection->bundle, connection->peer_qp);
  connection->stage = Stage::kAccepted;
  FabricMessage reply;
  reply.type = FabricMessage::Type::kReply;
  reply.qp = address_of(*connection->bundle);
  reply.private_data.assign(private_data.begin(), private_data.end());
  post(*connection, std::move(reply));
  return {};
}

void FabricDevice::reject(CmId id, std::span<const std::byte> private_data, const std::string& reason) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending) return;
  FabricMessage message;
  message.type = FabricMessage::Type::kReject;
  message.private_data.assign(private_data.begin(), private_data.end());
  message.reason = reason;
  post(*connection, std::move(message));
  connection->stage = Stage::kEnded;
  destroy(id);
}

void FabricDevice::disconnect(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || (connection->stage != Stage::kEstablished && connection->stage != Stage::kAccepted)) {
    return;
  }
  FabricMessage message;
  message.type = FabricMessage::Type::kLeave;
  message.reason = "the peer closed the connection";
  post(*connection, std::move(message));
  connection->stage = Stage::kEnded;
}

void FabricDevice::destroy(CmId id) {
  if (const auto found = listeners_.find(number(id)); found != listeners_.end()) {
    if (!dead_) fabric_->listeners.erase(found->second);
    listeners_.erase(found);
    return;
  }
  const auto found = connections_.find(number(id));
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  std::erase_if(events_, [id](const CmEvent& event) { return event.id == id; });
  FabricMessage message;
  message.type = FabricMessage::Type::kClosed;
  message.reason = "the peer died, or broke the connection off";
  post(*connection, std::move(message));
  if (connection->bundle) retire(std::move(connection->bundle));
  connection->lane.reset();
  drop_unused_lanes();
}

std::optional<CmEvent> FabricDevice::next_event() {
  collect();
  while (events_.empty() && !inbox_.empty()) {
    FabricMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    take(std::move(message));
  }
  if (events_.empty()) return std::nullopt;
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

void FabricDevice::take(FabricMessage message) {
  using Type = FabricMessage::Type;
  if (message.type == Type::kHello) {
    auto made = std::make_unique<Connection>();
    made->id = next_id();
    made->listener = message.to;
    made->peer = message.from;
    made->peer_device = message.from_device;
    made->stage = Stage::kAwaitRequest;
    if (!listeners_.contains(number(message.to))) {
      post(*made, {.type = Type::kClosed,
                   .from_device = 0,
                   .from = {},
                   .to = {},
                   .group = 0,
                   .qp = {},
                   .private_data = {},
                   .reason = "the listener is gone"});
      return;
    }
    made->assign(*least_loaded_group());
    FabricMessage resolved;
    resolved.type = Type::kResolved;
    resolved.group = made->group->index;
    post(*made, std::move(resolved));
    const CmId id = made->id;
    connections_.emplace(number(id), std::move(made));
    return;
  }
  Connection* connection = find(message.to);
  // A close before we know the peer's connection comes under the peer's number only.
  if (connection == nullptr && message.type == Type::kClosed) {
    const auto found = std::find_if(connections_.begin(), connections_.end(), [&](const auto& entry) {
      return entry.second->peer_device == message.from_device && entry.second->peer == message.from &&
             number(message.to) == 0;
    });
    if (found != connections_.end()) connection = found->second.get();
  }
  if (connection == nullptr) return;
  const Stage stage = connection->stage;
  switch (message.type) {
    case Type::kHello:
      return;
    case Type::kResolved:
      if (stage != Stage::kAwaitResolved) return;
      connection->peer = message.from;
      connection->peer_group = message.group;
      connection->stage = Stage::kResolved;
      emit(*connection, CmEventKind::kRouteResolved);
      return;
    case Type::kRequest:
      if (stage == Stage::kAwaitRequest) take_request(*connection, message);
      return;
    case Type::kReply:
      if (stage != Stage::kRequested) return;
      connect_engine(*connection->bundle, message.qp);
      connection->stage = Stage::kEstablished;
      emit(*connection, CmEventKind::kEstablished, std::move(message.private_data));
      message = {};
      message.type = Type::kReady;
      post(*connection, std::move(message));
      return;
    case Type::kReject:
      if (stage != Stage::kRequested) return;
      connection->bundle->offered = false;
      connection->stage = Stage::kEnded;
      emit(*connection, CmEventKind::kRejected, std::move(message.private_data), std::move(message.reason));
      return;
    case Type::kReady:
      if (stage != Stage::kAccepted) return;
      connection->stage = Stage::kEstablished;
      emit(*connection, CmEventKind::kEstablished);
      return;
    case Type::kLeave:
      if (stage != Stage::kEstablished && stage != Stage::kAccepted) return;
      connection->stage = Stage::kEnded;
      emit(*connection, CmEventKind::kDisconnected, {}, std::move(message.reason));
      return;
    case Type::kClosed:
      take_end(*connection, message);
      return;
  }
}

void FabricDevice::take_request(Connection& connection, FabricMessage& message) {
  connection.peer_qp = message.qp;
  connection.peer_group = message.group;
  connection.stage = Stage::kPending;
  connection.known = true;
  emit(connection, CmEventKind::kConnectRequest, std::move(message.private_data));
}

void FabricDevice::take_end(Connection& connection, const FabricMessage& message) {
  if (connection.bundle) mark_peer_gone(*connection.bundle);
  const Stage stage = std::exchange(connection.stage, Stage::kEnded);
  if (!connection.known) {
    connections_.erase(number(connection.id));
    return;
  }
  if (stage == Stage::kEnded) return;
  const bool unanswered = stage == Stage::kAwaitResolved || stage == Stage::kResolved || stage == Stage::kRequested;
  emit(connection, unanswered ? CmEventKind::kUnreachable : CmEventKind::kDisconnected, {}, message.reason);
}

void FabricDevice::emit(Connection& connection, CmEventKind kind, std::vector<std::byte> data, std::string reason) {
  CmEvent event;
  event.kind = kind;
  event.id = connection.id;
  if (kind == CmEventKind::kConnectRequest) {
    event.listener = connection.listener;
    event.peer = address_of_device(connection.peer_device);
  }
  event.group = connection.group->index;
  event.private_data = std::move(data);
  event.reason = std::move(reason);
  events_.push_back(std::move(event));
}

/// Both ends hear that the connection is gone, as when the cable is cut for long enough.
void FabricDevice::drop_connection_of(const SendEngine& engine) {
  for (const auto& [id, connection] : connections_) {
    if (!connection->bundle || &connection->bundle->engine != &engine) continue;
    // Nothing passes in either direction from now on; that the connection is gone is heard of later.
    cut(*connection->bundle);
    if (FabricDevice* peer = fabric_->device(connection->peer_device)) {
      if (Connection* other = peer->find(connection->peer); other != nullptr && other->bundle) cut(*other->bundle);
    }
    FabricMessage message;
    message.type = FabricMessage::Type::kClosed;
    message.reason = "the connection dropped";
    post(*connection, message);
    message.from_device = connection->peer_device;
    message.from = connection->peer;
    message.to = connection->id;
    fabric_->send(index_, std::move(message));
    return;
  }
}

void FabricDevice::cut(QpBundle& bundle) {
  if (fabric_->scheduler != nullptr) fabric_->scheduler->cut(bundle.engine);
  mark_peer_gone(bundle);
}

void FabricDevice::fall_silent() {
  for (const auto& [id, connection] : connections_) {
    FabricMessage message;
    message.type = FabricMessage::Type::kClosed;
    message.reason = "the peer died, or broke the connection off";
    post(*connection, std::move(message));
    // An immediate fabric asks nobody before it executes, so the queue itself is stopped.
    if (connection->bundle) connection->bundle->engine.connected.store(false, std::memory_order_release);
    if (connection->bundle) connection->bundle->engine.gate |= SendEngine::kUnconnected;
  }
  dead_ = true;
  inbox_.clear();
  wire_.clear();
  events_.clear();
}

}  // namespace rodeo::dv::soft
