// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstring>

#include "dv/rdma/cm_device.h"

// What rdma_cm tells: requests, answers and ends of connections, as the events of dv/device.h.

namespace rodeo::dv::rdma {

namespace {

constexpr int kConsumerReject = 28;  // IBA: rejected by the application
constexpr int kStaleReject = 10;

}  // namespace

std::optional<CmEvent> CmDevice::next_event() {
  rdma_cm_event* event = nullptr;
  while (events_.empty() && rdma_get_cm_event(channel_.get(), &event) == 0) {
    rdma_cm_event copy = *event;
    std::array<std::byte, 256> data{};
    if (copy.param.conn.private_data != nullptr) {
      std::memcpy(data.data(), copy.param.conn.private_data, copy.param.conn.private_data_len);
      copy.param.conn.private_data = data.data();
    }
    rdma_ack_cm_event(event);  // first: an id cannot be destroyed before its events are
    take(copy);
  }
  if (events_.empty()) return std::nullopt;
  CmEvent out = std::move(events_.front());
  events_.pop_front();
  return out;
}

void CmDevice::take(const rdma_cm_event& event) {
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(event);
  const auto number = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(event.id->context));
  Connection* connection = find(CmId{number});
  if (connection == nullptr || connection->stage == Stage::kEnded) return;
  const auto end = [&](CmEventKind kind, std::string reason) {
    this->end(*connection, kind, event, std::move(reason));
  };
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (!same_device(*event.id)) {
        return end(CmEventKind::kUnreachable, std::string("the way there is over device ") +
                                                  ibv_get_device_name(event.id->verbs->device) +
                                                  ", and this engine is on " + capabilities_.name);
      }
      if (rdma_resolve_route(event.id, kResolveMs) != 0)
        end(CmEventKind::kUnreachable, "there is no route: " + errno_text());
      return;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      connection->stage = Stage::kResolved;
      return emit(*connection, CmEventKind::kRouteResolved, nullptr);
    case RDMA_CM_EVENT_CONNECT_RESPONSE:
      return on_response(*connection, event);
    case RDMA_CM_EVENT_ESTABLISHED:  // active: of iWARP only
      connection->stage = Stage::kEstablished;
      return emit(*connection, CmEventKind::kEstablished, connection->active ? &event : nullptr);
    case RDMA_CM_EVENT_REJECTED:
      if (event.status == kConsumerReject) return end(CmEventKind::kRejected, "the peer refused the connection");
      if (event.status == kStaleReject) return end(CmEventKind::kRejected, "the peer still knows an older connection");
      return end(CmEventKind::kRejected, "nobody listens there (reason " + std::to_string(event.status) + ")");
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
      return end(connection->stage == Stage::kAccepted ? CmEventKind::kDisconnected : CmEventKind::kUnreachable,
                 std::string(rdma_event_str(event.event)) + ": " + errno_text(-event.status));
    case RDMA_CM_EVENT_DISCONNECTED:
      return end(CmEventKind::kDisconnected, "the peer closed the connection or died");
    case RDMA_CM_EVENT_DEVICE_REMOVAL:
      return end(CmEventKind::kDisconnected, "the device was removed");
    default:
      return;
  }
}

void CmDevice::on_response(Connection& connection, const rdma_cm_event& event) {
  if (auto started = start_qp(connection, nullptr); !started) {
    return end(connection, CmEventKind::kUnreachable, event, started.error().message());
  }
  if (rdma_establish(connection.cm.get()) != 0) {
    return end(connection, CmEventKind::kUnreachable, event, "rdma_establish failed: " + errno_text());
  }
  connection.stage = Stage::kEstablished;
  emit(connection, CmEventKind::kEstablished, &event);
}

void CmDevice::on_request(const rdma_cm_event& event) {
  const auto listener = static_cast<std::uint64_t>(reinterpret_cast<std::uintptr_t>(event.listen_id->context));
  Owned<rdma_cm_id> id(event.id);
  if (!listeners_.contains(listener) || !same_device(*id)) {
    (void)rdma_reject(id.get(), nullptr, 0);
    return;
  }
  auto connection = std::make_unique<Connection>();
  connection->id = CmId{++last_id_};
  connection->listener = CmId{listener};
  connection->stage = Stage::kPending;
  const auto least = std::min_element(groups_.begin(), groups_.end(),
                                      [](const auto& a, const auto& b) { return a.connections < b.connections; });
  connection->group = static_cast<std::uint32_t>(least - groups_.begin());
  ++least->connections;
  id->context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(last_id_));
  connection->cm = std::move(id);
  connection->peer_initiates = event.param.conn.responder_resources;
  connection->peer_responds = event.param.conn.initiator_depth;
  emit(*connection, CmEventKind::kConnectRequest, &event);
  connections_.emplace(last_id_, std::move(connection));
}

void CmDevice::end(Connection& connection, CmEventKind kind, const rdma_cm_event& event, std::string reason) {
  connection.stage = Stage::kEnded;
  emit(connection, kind, &event, std::move(reason));
}

void CmDevice::emit(const Connection& connection, CmEventKind kind, const rdma_cm_event* event, std::string reason) {
  CmEvent out;
  out.kind = kind;
  out.id = connection.id;
  if (kind == CmEventKind::kConnectRequest) {
    out.listener = connection.listener;
    out.peer = Peer::at(*rdma_get_peer_addr(connection.cm.get()));
  }
  out.group = connection.group;
  if (event != nullptr && event->param.conn.private_data != nullptr && kind != CmEventKind::kDisconnected) {
    const auto* data = static_cast<const std::byte*>(event->param.conn.private_data);
    out.private_data.assign(data, data + event->param.conn.private_data_len);
  }
  out.reason = std::move(reason);
  events_.push_back(std::move(out));
}

void CmDevice::forget_events(CmId id) {
  std::erase_if(events_, [id](const CmEvent& event) { return event.id == id; });
}

}  // namespace rodeo::dv::rdma
