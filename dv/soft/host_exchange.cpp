// SPDX-License-Identifier: Apache-2.0
// What a peer's messages do to a connection, and what is kept of a peer's process: its memory, and the lanes to it. A
// message is believed only at the point of a connection's life where it may come; everything else breaks the protocol.
#include "dv/soft/host_device.h"

namespace rodeo::dv::soft {

bool HostDevice::on_message(Connection& connection, CmReceived& received) {
  const CmMessage& message = received.message;
  const Stage stage = connection.stage;
  if (stage == Stage::kLingering || stage == Stage::kEnded) return true;  // late, and of no account
  switch (message.type) {
    case CmType::kClientHello:
      return stage == Stage::kAwaitClientHello && on_client_hello(connection, received);
    case CmType::kServerHello:
      return stage == Stage::kAwaitServerHello && on_server_hello(connection, received);
    case CmType::kRequest:
      return stage == Stage::kAwaitRequest && on_request(connection, received);
    case CmType::kReply:
      return stage == Stage::kRequested && on_reply(connection, received);
    case CmType::kReject:
      if (stage != Stage::kRequested) return false;
      connection.bundle->offered = false;
      connection.stage = Stage::kEnded;
      emit(connection, CmEventKind::kRejected, message.private_bytes(), message.reason_text());
      return true;
    case CmType::kReady:
      if (stage == Stage::kLeaving) return true;
      if (stage != Stage::kAccepted) return false;
      connection.stage = Stage::kEstablished;
      emit(connection, CmEventKind::kEstablished);
      return true;
    case CmType::kLeave:
      if (stage != Stage::kEstablished && stage != Stage::kAccepted && stage != Stage::kLeaving) return false;
      on_peer_left(connection);
      return true;
    case CmType::kLeft:
      if (stage != Stage::kLeaving) return false;
      connection.stage = Stage::kEnded;
      emit(connection, CmEventKind::kDisconnected, {}, "the peer confirmed that we left");
      return true;
  }
  return false;
}

bool HostDevice::on_client_hello(Connection& connection, const CmReceived& received) {
  if (!received.files.empty()) return false;
  connection.process = process_of({{received.message.process[0], received.message.process[1]}});
  CmMessage hello;
  hello.type = CmType::kServerHello;
  hello.process[0] = process_.words[0];
  hello.process[1] = process_.words[1];
  hello.group = connection.group->index;
  std::vector<int> files;
  put_regions(hello, files);
  connection.stage = Stage::kAwaitRequest;
  static_cast<void>(send_message(connection.socket.get(), hello, files));  // if it fails, EOF follows
  return true;
}

bool HostDevice::on_server_hello(Connection& connection, CmReceived& received) {
  if (received.message.has_segment != 0) return false;
  connection.process = process_of({{received.message.process[0], received.message.process[1]}});
  connection.peer_group = received.message.group;
  if (!take_regions(*connection.process, received)) return false;
  connection.stage = Stage::kResolved;
  emit(connection, CmEventKind::kRouteResolved);
  return true;
}

bool HostDevice::on_request(Connection& connection, CmReceived& received) {
  const CmMessage& message = received.message;
  PeerProcess& process = *connection.process;
  if (ProcessId{{message.process[0], message.process[1]}} != process.id || !plausible(message.qp) ||
      message.private_length > kMaxRequestData) {
    return false;
  }
  if (!take_regions(process, received)) return false;
  connection.peer_group = message.group;
  connection.peer_qp = message.qp;
  connection.wants_segment = message.has_segment != 0;
  std::shared_ptr<Lane>& lane = process.lanes[{false, connection.group->index, message.group}];
  if (!lane || lane->id != message.lane) {
    // A new lane between the two groups: the peer has given up the one before.
    if (message.has_segment == 0) return false;
    auto segment = Segment::map(received.files.back().get(), process.id, message.lane);
    if (!segment) return false;
    auto made = make_lane(*connection.group, message.lane, true);
    if (!made) return false;
    if (lane) process.orphans.push_back(std::move(lane));
    lane = *made;
    lane->open_outlet(std::make_shared<Segment>(std::move(*segment)), process.memory);
    sweep_orphans(process);
  }
  connection.lane = lane;
  connection.stage = Stage::kPending;
  emit(connection, CmEventKind::kConnectRequest, message.private_bytes());
  return true;
}

bool HostDevice::on_reply(Connection& connection, CmReceived& received) {
  const CmMessage& message = received.message;
  Lane& lane = *connection.lane;
  if (!plausible(message.qp) || message.lane != lane.id || message.region_count != 0) return false;
  if (!lane.open()) {
    if (message.has_segment == 0) return false;
    auto segment = Segment::map(received.files.back().get(), connection.process->id, lane.id);
    if (!segment) return false;
    lane.open_outlet(std::make_shared<Segment>(std::move(*segment)), connection.process->memory);
  }
  connection.process->confirmed = true;
  connect_engine(*connection.bundle, message.qp);
  CmMessage ready;
  ready.type = CmType::kReady;
  static_cast<void>(send_message(connection.socket.get(), ready, {}));  // if it fails, EOF follows
  connection.stage = Stage::kEstablished;
  emit(connection, CmEventKind::kEstablished, message.private_bytes());
  return true;
}

void HostDevice::on_peer_left(Connection& connection) {
  CmMessage answer;
  answer.type = CmType::kLeft;
  static_cast<void>(send_message(connection.socket.get(), answer, {}));  // if it fails, EOF follows
  connection.stage = Stage::kEnded;
  emit(connection, CmEventKind::kDisconnected, {}, "the peer closed the connection");
}

// ------------------------------------------------------------------------------------------------- peer processes

std::shared_ptr<HostDevice::PeerProcess> HostDevice::process_of(const ProcessId& id) {
  auto& process = processes_[{id.words[0], id.words[1]}];
  if (!process) {
    process = std::make_shared<PeerProcess>();
    process->id = id;
  }
  return process;
}

void HostDevice::release_process(std::shared_ptr<PeerProcess> process) {
  if (!process) return;
  sweep_orphans(*process);
  constexpr long kMapAndUs = 2;
  if (process.use_count() > kMapAndUs) return;
  for (auto& [groups, lane] : process->lanes) {
    if (lane) drop_lane(lane);
  }
  for (const auto& lane : process->orphans) drop_lane(lane);
  processes_.erase({process->id.words[0], process->id.words[1]});
}

void HostDevice::sweep_orphans(PeerProcess& process) {
  std::erase_if(process.orphans, [&](const std::shared_ptr<Lane>& lane) {
    if (lane->qp_count != 0) return false;
    drop_lane(lane);
    return true;
  });
}

bool HostDevice::take_regions(PeerProcess& process, const CmReceived& received) {
  if (process.memory) return true;
  auto memory = std::make_shared<PeerMemory>();
  for (std::uint32_t i = 0; i < received.message.region_count; ++i) {
    const RegionRecord& record = received.message.regions[i];
    const std::uint32_t index = key_index(record.key);
    if (index < kFirstRegionIndex || index >= kRegionSlots || memory->regions.slots[index].key != 0 ||
        record.access > static_cast<std::uint32_t>(Access::kRemoteReadWrite) || record.length == 0 ||
        record.address + record.length < record.address) {
      return false;
    }
    auto mapping = map_peer_file(received.files[i].get(), record.file_offset, record.length, true);
    if (!mapping) return false;
    memory->regions.slots[index] = {.key = record.key,
                                    .access = static_cast<Access>(record.access),
                                    .address = record.address,
                                    .length = record.length,
                                    .local = mapping->bytes().data()};
    memory->mappings.push_back(std::move(*mapping));
  }
  process.memory = std::move(memory);
  return true;
}

void HostDevice::put_regions(CmMessage& message, std::vector<int>& files) const {
  for (const RegisteredFile& file : files_) {
    const Region& region = own_regions_.slots[file.index];
    message.regions[message.region_count++] = {.address = region.address,
                                               .length = region.length,
                                               .file_offset = file.offset,
                                               .key = region.key,
                                               .access = static_cast<std::uint32_t>(region.access)};
    files.push_back(file.fd.get());
  }
}
}  // namespace rodeo::dv::soft
