// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/host_device.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "dv/soft/listen_socket.h"
#include "pools/errno_text.h"

namespace rodeo::dv::soft {

namespace {

constexpr std::uint64_t kTimerTag = 0;  // CmIds begin at 1
constexpr long kRetryNs = 1'000'000;
constexpr int kEventsAtOnce = 64;

Peer peer_of(int socket) noexcept {
  ucred process{};
  socklen_t length = sizeof process;
  Peer peer;
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &process, &length) != 0) return peer;
  peer.kind = Peer::Kind::kProcess;
  peer.uid = process.uid;
  peer.pid = static_cast<std::uint32_t>(process.pid);
  return peer;
}

}  // namespace

Result<std::unique_ptr<mlx5::Device>> open(const SoftOptions& options) {
  auto device = HostDevice::open(options);
  if (!device) return tl::unexpected(device.error());
  return std::unique_ptr<mlx5::Device>(std::move(*device));
}

Result<std::unique_ptr<HostDevice>> HostDevice::open(const SoftOptions& options) {
  std::unique_ptr<HostDevice> device(new HostDevice(options));
  device->epoll_ = File(epoll_create1(EPOLL_CLOEXEC));
  device->timer_ = File(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!device->epoll_ || !device->timer_ || !device->watch(device->timer_.get(), CmId{kTimerTag})) {
    return fail("open the software HCA", "no file descriptor is left: " + errno_text(),
                "raise the limit on open files (`ulimit -n`)");
  }
  return device;
}

HostDevice::~HostDevice() {
  while (!listeners_.empty()) destroy(CmId{listeners_.begin()->first});
  while (!connections_.empty()) erase(CmId{connections_.begin()->first});
}

bool HostDevice::watch(int fd, CmId id) noexcept {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = number(id);
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

HostDevice::Connection* HostDevice::find(CmId id) noexcept {
  const auto found = connections_.find(number(id));
  return found == connections_.end() ? nullptr : found->second.get();
}

bool HostDevice::same_user(int socket) const noexcept {
  const Peer peer = peer_of(socket);
  return peer.kind == Peer::Kind::kProcess && peer.uid == geteuid();
}

// ---------------------------------------------------------------------------------------------- what the user calls

Result<CmId> HostDevice::listen(const Address& address) {
  const std::string where = "listen on " + address.to_string();
  if (address.scheme != Address::Scheme::kSoft) {
    return fail(where, "the software HCA of this host has soft: addresses only", "use soft:NAME");
  }
  if (groups_.empty()) return fail(where, "no poll group would own the connections", "call make_poll_group first");
  auto made = make_listen_socket(address);
  if (!made) return tl::unexpected(made.error());
  const CmId id = next_id();
  if (!watch(made->socket.get(), id)) {
    unlink(made->path.c_str());
    return fail(where, "epoll_ctl failed: " + errno_text(), "raise fs.epoll.max_user_watches");
  }
  struct stat status {};
  Listener listener{std::move(made->socket), made->path};
  if (stat(listener.path.c_str(), &status) == 0) {
    listener.inode = status.st_ino;
    listener.device = status.st_dev;
  }
  listeners_.emplace(number(id), std::move(listener));
  return id;
}

Result<CmId> HostDevice::connect(const Address& address, mlx5::PollGroup& group) {
  const std::string where = "connect to " + address.to_string();
  if (address.scheme != Address::Scheme::kSoft) {
    return fail(where, "the software HCA of this host has soft: addresses only", "use soft:NAME");
  }
  GroupState* state = state_of(group);
  if (state == nullptr) return fail(where, "the poll group belongs to another device", "use a group of this device");
  sockaddr_un name{};
  const std::string path = address.socket_path();
  if (auto good = fill_socket_address(path, name); !good) return tl::unexpected(good.error());

  auto connection = std::make_unique<Connection>();
  connection->id = next_id();
  connection->active = true;
  connection->path = path;
  connection->name = address.to_string();
  connection->assign(*state);
  connection->socket = File(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!connection->socket) {
    return fail(where, "no socket: " + errno_text(), "raise the limit on open files (`ulimit -n`)");
  }
  if (::connect(connection->socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    if (errno == ENOENT || errno == ECONNREFUSED) {
      return fail(where, "nothing listens on " + path, "start the server, or check the name and RODEO_RUNTIME_DIR");
    }
    if (errno != EAGAIN) {
      return fail(where, path + " cannot be reached: " + errno_text(),
                  "run both ends as the same user with the same RODEO_RUNTIME_DIR");
    }
    retries_.push_back(connection->id);
    const itimerspec soon{.it_interval = {0, kRetryNs}, .it_value = {0, kRetryNs}};
    timerfd_settime(timer_.get(), 0, &soon, nullptr);
  }
  const CmId id = connection->id;
  Connection& made = *connections_.emplace(number(id), std::move(connection)).first->second;
  if (retries_.empty() || retries_.back() != id) {
    CmMessage hello;
    hello.type = CmType::kClientHello;
    hello.process[0] = process_.words[0];
    hello.process[1] = process_.words[1];
    if (!same_user(made.socket.get()) || !watch(made.socket.get(), id) || !send_message(made.socket.get(), hello, {})) {
      erase(id);
      return fail(where, "the listener on " + path + " is not an engine of this user, or is going away",
                  "run both ends as the same user");
    }
    made.stage = Stage::kAwaitServerHello;
  }
  return id;
}

Result<Hca::Link*> HostDevice::link_for_qp(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || (connection->stage != Stage::kResolved && connection->stage != Stage::kPending)) {
    return unknown_id("make a QP");
  }
  if (!connection->lane) {  // active: the lane between the two groups, new or not
    auto& lane = connection->process->lanes[{true, connection->group->index, connection->peer_group}];
    if (!lane) {
      auto made = make_lane(*connection->group, random_word(), true);
      if (!made) return tl::unexpected(made.error());
      lane = *made;
    }
    connection->lane = lane;
  }
  return connection;
}

Result<void> HostDevice::finish_connect(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kResolved || !connection->bundle) {
    return unknown_id("finish connecting");
  }
  if (auto fits = check_private_data("finish connecting", private_data, kMaxRequestData); !fits) return fits;
  CmMessage request;
  request.type = CmType::kRequest;
  request.process[0] = process_.words[0];
  request.process[1] = process_.words[1];
  request.lane = connection->lane->id;
  request.group = connection->group->index;
  request.qp = address_of(*connection->bundle);
  request.set_private_data(private_data);
  std::vector<int> files;
  if (!connection->process->confirmed) put_regions(request, files);
  if (!connection->lane->open()) {
    request.has_segment = 1;
    files.push_back(connection->lane->own->fd());
  }
  connection->bundle->offered = true;
  if (!send_message(connection->socket.get(), request, files)) {
    return fail("connect to " + connection->name, "the listener went away", "connect again");
  }
  connection->stage = Stage::kRequested;
  return {};
}

Result<void> HostDevice::accept(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending || !connection->bundle) {
    return unknown_id("accept a connection");
  }
  if (auto fits = check_private_data("accept a connection", private_data, kMaxReplyData); !fits) return fits;
  // Ours may send at once: the peer's QP takes receives since before it asked.
  connect_engine(*connection->bundle, connection->peer_qp);
  CmMessage reply;
  reply.type = CmType::kReply;
  reply.process[0] = process_.words[0];
  reply.process[1] = process_.words[1];
  reply.lane = connection->lane->id;
  reply.qp = address_of(*connection->bundle);
  reply.set_private_data(private_data);
  std::vector<int> files;
  if (connection->wants_segment) {
    reply.has_segment = 1;
    files.push_back(connection->lane->own->fd());
  }
  connection->bundle->offered = true;
  if (!send_message(connection->socket.get(), reply, files)) {
    return fail("accept a connection", "the peer went away", "destroy the connection");
  }
  connection->stage = Stage::kAccepted;
  return {};
}

void HostDevice::reject(CmId id, std::span<const std::byte> private_data, const std::string& reason) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending) return;
  CmMessage message;
  message.type = CmType::kReject;
  message.set_private_data(private_data);
  message.set_reason(reason);
  static_cast<void>(send_message(connection->socket.get(), message, {}));  // a peer that left needs no answer
  connection->stage = Stage::kEnded;
  destroy(id);
}

void HostDevice::disconnect(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || (connection->stage != Stage::kEstablished && connection->stage != Stage::kAccepted)) {
    return;
  }
  CmMessage message;
  message.type = CmType::kLeave;
  static_cast<void>(send_message(connection->socket.get(), message, {}));  // if it fails, EOF tells both ends
  connection->stage = Stage::kLeaving;
}

void HostDevice::destroy(CmId id) {
  if (const auto found = listeners_.find(number(id)); found != listeners_.end()) {
    const Listener& listener = found->second;
    struct stat status {};
    if (stat(listener.path.c_str(), &status) == 0 && status.st_ino == listener.inode &&
        status.st_dev == listener.device) {
      unlink(listener.path.c_str());
    }
    listeners_.erase(found);
    return;
  }
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage == Stage::kLingering) return;
  if (connection->active || !connection->socket) {
    erase(id);
    return;
  }
  if (connection->stage == Stage::kPending) {
    reject(id, {}, "the server gave the connection up");
    return;
  }
  disconnect(id);
  forget_events(id);
  connection->stage = Stage::kLingering;
  if (connection->bundle) retire(std::move(connection->bundle));
  connection->lane.reset();
}

std::optional<CmEvent> HostDevice::next_event() {
  collect();
  if (events_.empty()) {
    std::array<epoll_event, kEventsAtOnce> ready{};
    const int count = epoll_wait(epoll_.get(), ready.data(), kEventsAtOnce, 0);
    for (int i = 0; i < count; ++i) {
      const std::uint64_t tag = ready[static_cast<std::size_t>(i)].data.u64;
      if (tag == kTimerTag) {
        retry_connects();
      } else if (const auto listener = listeners_.find(tag); listener != listeners_.end()) {
        accept_peers(CmId{tag}, listener->second.socket.get());
      } else {
        serve(CmId{tag});
      }
    }
  }
  if (events_.empty()) return std::nullopt;
  CmEvent event = std::move(events_.front());
  events_.pop_front();
  return event;
}

// ------------------------------------------------------------------------------------------------------ the sockets

void HostDevice::accept_peers(CmId listener, int socket) {
  for (;;) {
    File peer(accept4(socket, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!peer) return;
    if (!same_user(peer.get())) {
      ++refused_peers_;
      continue;
    }
    auto connection = std::make_unique<Connection>();
    connection->id = next_id();
    connection->listener = listener;
    connection->stage = Stage::kAwaitClientHello;
    connection->assign(*least_loaded_group());
    if (!watch(peer.get(), connection->id)) continue;
    connection->socket = std::move(peer);
    const CmId id = connection->id;
    connections_.emplace(number(id), std::move(connection));
  }
}

void HostDevice::retry_connects() {
  std::uint64_t expirations = 0;
  static_cast<void>(::read(timer_.get(), &expirations, sizeof expirations));
  for (std::size_t left = retries_.size(); left > 0; --left) {
    const CmId id = retries_.front();
    retries_.pop_front();
    if (Connection* connection = find(id)) try_connect(*connection);
  }
  if (retries_.empty()) {
    const itimerspec never{};
    timerfd_settime(timer_.get(), 0, &never, nullptr);
  }
}

void HostDevice::try_connect(Connection& connection) {
  sockaddr_un name{};
  if (!fill_socket_address(connection.path, name)) return;
  if (::connect(connection.socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    if (errno == EAGAIN) {
      retries_.push_back(connection.id);
    } else {
      on_closed(connection, "nothing listens on " + connection.path + " any more");
    }
    return;
  }
  CmMessage hello;
  hello.type = CmType::kClientHello;
  hello.process[0] = process_.words[0];
  hello.process[1] = process_.words[1];
  if (!same_user(connection.socket.get()) || !watch(connection.socket.get(), connection.id) ||
      !send_message(connection.socket.get(), hello, {})) {
    on_closed(connection, "the listener on " + connection.path +
                              " is not an engine of this user, or is going away; run both as the same user");
    return;
  }
  connection.stage = Stage::kAwaitServerHello;
}

void HostDevice::serve(CmId id) {
  CmReceived received;
  // The connection may vanish with any message.
  while (Connection* connection = find(id)) {
    if (!connection->socket) return;
    switch (receive_message(connection->socket.get(), received)) {
      case CmReceive::kNothing:
        return;
      case CmReceive::kClosed:
        on_closed(*connection, "the peer died, or broke the connection off");
        return;
      case CmReceive::kNoDescriptors:
        on_closed(*connection,
                  "no descriptors are left for the peer's memory; raise the limit on open files (`ulimit -n`)");
        return;
      case CmReceive::kMessage:
        if (on_message(*connection, received)) break;
        [[fallthrough]];
      case CmReceive::kGarbage:
        ++refused_peers_;
        on_closed(*connection,
                  "the peer does not speak this version of the protocol; use programs of one build at both ends");
        return;
    }
  }
}

void HostDevice::on_closed(Connection& connection, const std::string& reason) {
  connection.socket.reset();
  if (connection.bundle) mark_peer_gone(*connection.bundle);
  switch (connection.stage) {
    case Stage::kAwaitClientHello:
    case Stage::kAwaitRequest:
    case Stage::kLingering:
      erase(connection.id);
      return;
    case Stage::kEnded:
      return;
    case Stage::kConnecting:
    case Stage::kAwaitServerHello:
    case Stage::kResolved:
    case Stage::kRequested:
      connection.stage = Stage::kEnded;
      emit(connection, CmEventKind::kUnreachable, {}, reason);
      return;
    case Stage::kPending:
    case Stage::kAccepted:
    case Stage::kEstablished:
    case Stage::kLeaving:
      connection.stage = Stage::kEnded;
      emit(connection, CmEventKind::kDisconnected, {}, reason);
      return;
  }
}

void HostDevice::emit(Connection& connection, CmEventKind kind, std::vector<std::byte> data, std::string reason) {
  CmEvent event;
  event.kind = kind;
  event.id = connection.id;
  if (kind == CmEventKind::kConnectRequest) {
    event.listener = connection.listener;
    event.peer = peer_of(connection.socket.get());
  }
  event.group = connection.group->index;
  event.private_data = std::move(data);
  event.reason = std::move(reason);
  events_.push_back(std::move(event));
}

void HostDevice::erase(CmId id) {
  const auto found = connections_.find(number(id));
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  forget_events(id);
  if (connection->bundle) retire(std::move(connection->bundle));
  connection->lane.reset();
  release_process(std::move(connection->process));
}

void HostDevice::forget_events(CmId id) {
  std::erase_if(events_, [id](const CmEvent& event) { return event.id == id; });
}

}  // namespace rodeo::dv::soft
