// SPDX-License-Identifier: Apache-2.0
#include "dv/rdma/cm_device.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "dv/resolved.h"

namespace rodeo::dv::rdma {

namespace {

constexpr const char* kWhere = "RDMA device";
constexpr int kBacklog = 128;
constexpr std::uint32_t kMaxDepth = 16384;  // of a queue: its counters have 16 bits
constexpr std::uint8_t kReadsAtOnce = 16;
constexpr std::uint8_t kRetries = 6;      // soft-RoCE takes 7 for "for ever", and a peer's death would never show
constexpr std::uint8_t kAckTimeout = 17;  // 4.096 us << 17, 0.5 s; rdma_cm's own is several seconds
constexpr std::uint8_t kRnrTimer = 12;    // 0.64 ms; rdma_cm's own is 655 ms
constexpr std::size_t kMaxRequestData = 56;
constexpr std::size_t kMaxReplyData = 196;
constexpr std::size_t kMaxRejectData = 148;

tl::unexpected<Error> unknown_id(const char* where) {
  return fail(where, "the connection is not known, or not at this point of its life",
              "call this only after the event that allows it");
}

bool is_wildcard(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr == htonl(INADDR_ANY);
  }
  return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

int numa_node_of(const std::string& name) {
  std::ifstream file("/sys/class/infiniband/" + name + "/device/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace

// -------------------------------------------------------------------------------------------------------- opening

Result<std::unique_ptr<CmDevice>> CmDevice::open(const Address& address, const RdmaOptions& options) {
  std::unique_ptr<CmDevice> device(new CmDevice(options));
  device->channel_.reset(rdma_create_event_channel());
  if (device->channel_ == nullptr) {
    return fail("open " + address.to_string(), "there is no rdma_cm here: " + errno_text(),
                "`modprobe rdma_ucm`, and check the permissions of /dev/infiniband; soft:NAME needs neither");
  }
  if (auto found = device->find_context(address); !found) return tl::unexpected(found.error());
  if (fcntl(device->channel_->fd, F_SETFL, fcntl(device->channel_->fd, F_GETFL) | O_NONBLOCK) != 0) {
    return fail(kWhere, "the event channel cannot be polled: " + errno_text());
  }
  device->pd_.reset(ibv_alloc_pd(device->context_));
  if (device->pd_ == nullptr)
    return fail(kWhere, "ibv_alloc_pd failed: " + errno_text(), "check it with `ibv_devinfo`");
  if (auto read = device->read_capabilities(); !read) return tl::unexpected(read.error());
  return device;
}

Result<void> CmDevice::find_context(const Address& address) {
  const std::string where = "open " + address.to_string();
  auto resolved = Resolved::of(address, true);
  if (!resolved) return tl::unexpected(resolved.error());
  sockaddr* name = resolved->without_port();
  if (!address.device.empty() || is_wildcard(name)) {
    int count = 0;
    contexts_.reset(rdma_get_devices(&count));
    for (int i = 0; i < count; ++i) {
      ibv_context* candidate = contexts_.get()[i];
      if (!address.device.empty() && address.device != ibv_get_device_name(candidate->device)) continue;
      context_ = candidate;
      return {};
    }
    return fail(where, address.device.empty() ? "this host has no RDMA device" : "there is no device " + address.device,
                "`rodeod --devices` lists what there is; soft:NAME needs none");
  }
  auto id = make_id(where);
  if (!id) return tl::unexpected(id.error());
  // An address of this host names its device by itself, and any other by the route to it. The probe stays, so it takes
  // no port that somebody is to listen on.
  if (rdma_bind_addr(id->get(), name) != 0 || (*id)->verbs == nullptr) {
    id = make_id(where);
    if (!id) return tl::unexpected(id.error());
    rdma_cm_event* event = nullptr;
    int outcome = rdma_resolve_addr(id->get(), nullptr, name, kResolveMs);
    if (outcome == 0) outcome = rdma_get_cm_event(channel_.get(), &event);
    const int error = errno;
    const bool good = outcome == 0 && event->event == RDMA_CM_EVENT_ADDR_RESOLVED;
    const int status = event == nullptr ? error : -event->status;
    if (event != nullptr) rdma_ack_cm_event(event);
    if (!good || (*id)->verbs == nullptr) {
      return fail(where, "no RDMA device leads there: " + errno_text(status),
                  "check the address, the link and `rdma link`; ?device=NAME picks a device");
    }
  }
  context_ = (*id)->verbs;
  probe_ = std::move(*id);
  return {};
}

Result<Owned<rdma_cm_id>> CmDevice::make_id(const std::string& where) const {
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(channel_.get(), &made, nullptr, RDMA_PS_TCP) != 0) {
    return fail(where, "rdma_create_id failed: " + errno_text(), "`modprobe rdma_ucm`");
  }
  return Owned<rdma_cm_id>(made);
}

Result<void> CmDevice::read_capabilities() {
  if (const int error = ibv_query_device(context_, &attributes_); error != 0) {
    return fail(kWhere, "ibv_query_device failed: " + errno_text(error), "check it with `ibv_devinfo`");
  }
  capabilities_.name = ibv_get_device_name(context_->device);
  capabilities_.max_sges = static_cast<std::uint32_t>(attributes_.max_sge);
  capabilities_.max_queue_depth = std::min(kMaxDepth, static_cast<std::uint32_t>(attributes_.max_qp_wr));
  capabilities_.memory_windows = (attributes_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  capabilities_.max_windows = capabilities_.memory_windows ? static_cast<std::uint32_t>(attributes_.max_mw) : 0;
  capabilities_.remote_invalidate =
      capabilities_.memory_windows || (attributes_.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  capabilities_.numa_node = numa_node_of(capabilities_.name);
  return {};
}

void CmDevice::close() noexcept {
  listeners_.clear();
  connections_.clear();
}

Usage CmDevice::usage() const noexcept {
  Usage used;
  for (const auto& [number, connection] : connections_) {
    if (connection->queues) ++used.queue_pairs;
    used.memory_windows += static_cast<std::uint32_t>(connection->windows.size());
  }
  used.memory_regions = static_cast<std::uint32_t>(regions_.size());
  return used;
}

Result<MemoryRegion> CmDevice::register_memory(std::span<std::byte> range, Access access) {
  if (range.empty()) return fail(kWhere, "a region of 0 bytes was to be registered", "register at least one page");
  if (!connections_.empty() || !listeners_.empty()) {
    return fail(kWhere, "memory was to be registered after the first connection",
                "register everything before listen and connect");
  }
  unsigned flags = IBV_ACCESS_LOCAL_WRITE;
  if (capabilities_.memory_windows) flags |= IBV_ACCESS_MW_BIND;
  const auto granted = static_cast<std::uint8_t>(access);
  if ((granted & static_cast<std::uint8_t>(Access::kRemoteRead)) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((granted & static_cast<std::uint8_t>(Access::kRemoteWrite)) != 0) flags |= IBV_ACCESS_REMOTE_WRITE;
  Owned<ibv_mr> region(ibv_reg_mr(pd_.get(), range.data(), range.size(), flags));
  if (region == nullptr) {
    return fail(kWhere, "ibv_reg_mr of " + std::to_string(range.size() >> 20U) + " MiB failed: " + errno_text(),
                "raise the limit on locked memory (`ulimit -l`)");
  }
  const MemoryRegion made{range.data(), range.size(), region->lkey, region->rkey};
  region_list_.push_back(region.get());
  regions_.push_back(std::move(region));
  return made;
}

// -------------------------------------------------------------------------------------------- what the user calls

CmDevice::Connection* CmDevice::find(CmId id) noexcept {
  const auto found = connections_.find(static_cast<std::uint64_t>(id));
  return found == connections_.end() ? nullptr : found->second.get();
}

Result<CmId> CmDevice::listen(const Address& address) {
  const std::string where = "listen on " + address.to_string();
  if (address.scheme != Address::Scheme::kRdma) return fail(where, "this device has rdma:// addresses only");
  if (groups_.empty()) return fail(where, "no poll group would own the connections", "call make_poll_group first");
  auto resolved = Resolved::of(address, true);
  if (!resolved) return tl::unexpected(resolved.error());
  auto id = make_id(where);
  if (!id) return tl::unexpected(id.error());
  int yes = 1;
  (void)rdma_set_option(id->get(), RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &yes, sizeof yes);
  if (resolved->first()->sa_family == AF_INET6) {
    (void)rdma_set_option(id->get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &yes, sizeof yes);
  }
  if (rdma_bind_addr(id->get(), resolved->first()) != 0 || rdma_listen(id->get(), kBacklog) != 0) {
    const int error = errno;
    if (error == EADDRINUSE) return fail(where, "another program listens there", "stop it, or choose another port");
    return fail(where, "that cannot be: " + errno_text(error),
                "is that an address of an RDMA device here (`rdma link`)?");
  }
  if ((*id)->verbs != nullptr && !same_device(**id)) {
    return fail(where,
                std::string("the address belongs to device ") + ibv_get_device_name((*id)->verbs->device) +
                    ", and this engine is on " + capabilities_.name,
                "start another rodeod for it");
  }
  const CmId number{++last_id_};
  (*id)->context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(last_id_));
  listeners_.emplace(last_id_, std::move(*id));
  return number;
}

Result<CmId> CmDevice::connect(const Address& address, const void* poll_group) {
  const std::string where = "connect to " + address.to_string();
  if (address.scheme != Address::Scheme::kRdma) return fail(where, "this device has rdma:// addresses only");
  const auto owner = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const Group& candidate) { return candidate.poll_group == poll_group; });
  if (owner == groups_.end())
    return fail(where, "the poll group belongs to another device", "use a group of this device");
  auto resolved = Resolved::of(address, false);
  if (!resolved) return tl::unexpected(resolved.error());
  auto connection = std::make_unique<Connection>();
  auto id = make_id(where);
  if (!id) return tl::unexpected(id.error());
  connection->cm = std::move(*id);
  connection->id = CmId{++last_id_};
  connection->active = true;
  connection->group = static_cast<std::uint32_t>(owner - groups_.begin());
  connection->cm->context = reinterpret_cast<void*>(static_cast<std::uintptr_t>(last_id_));
  if (rdma_resolve_addr(connection->cm.get(), nullptr, resolved->first(), kResolveMs) != 0) {
    return fail(where, "no RDMA device leads there: " + errno_text(), "check the address and `rdma link`");
  }
  ++owner->connections;
  const CmId made = connection->id;
  connections_.emplace(last_id_, std::move(connection));
  return made;
}

Result<std::uint32_t> CmDevice::group_for_queues(CmId id, const QpSizes& sizes) {
  Connection* connection = find(id);
  if (connection == nullptr || (connection->stage != Stage::kResolved && connection->stage != Stage::kPending)) {
    return unknown_id("make a QP");
  }
  if (connection->queues) return fail(kWhere, "the connection has a QP already", "make one QP per connection");
  const std::uint32_t most = std::bit_floor(capabilities_.max_queue_depth);
  if (sizes.send_depth == 0 || sizes.send_depth > most || sizes.receive_depth == 0 || sizes.receive_depth > most) {
    return fail(kWhere,
                "a QP of " + std::to_string(sizes.send_depth) + " sends and " + std::to_string(sizes.receive_depth) +
                    " receives is not possible",
                "use 1 to " + std::to_string(most) + " of each");
  }
  return connection->group;
}

Result<void> CmDevice::attach(CmId id, std::unique_ptr<Queues> queues) {
  Connection& connection = *find(id);
  connection.queues = std::move(queues);
  auto moved = move_qp(connection, IBV_QPS_INIT, nullptr);
  if (!moved) connection.queues.reset();
  return moved;
}

/// To the next state, as rdma_cm says. `accepted`: what we accept a connection with.
Result<void> CmDevice::move_qp(const Connection& connection, ibv_qp_state state, const rdma_conn_param* accepted) {
  ibv_qp_attr wanted{};
  wanted.qp_state = state;
  int mask = 0;
  if (rdma_init_qp_attr(connection.cm.get(), &wanted, &mask) != 0) {
    return fail(kWhere, "rdma_init_qp_attr failed: " + errno_text(), "connect again");
  }
  if ((mask & IBV_QP_MIN_RNR_TIMER) != 0) wanted.min_rnr_timer = kRnrTimer;
  if (accepted != nullptr) {  // used where the mask says so; rdma_cm still knows what the request said only
    wanted.max_dest_rd_atomic = accepted->responder_resources;
    wanted.max_rd_atomic = accepted->initiator_depth;
  }
  if (mask == 0) return {};  // iWARP: the kernel does it
  if (const int error = ibv_modify_qp(&connection.queues->hardware(), &wanted, mask); error != 0) {
    return fail(kWhere, "the QP cannot be moved to state " + std::to_string(state) + ": " + errno_text(error),
                "check the port with `ibv_devinfo`");
  }
  return {};
}

/// INIT → RTR → RTS. INIT once more: its rights follow from the request.
Result<void> CmDevice::start_qp(const Connection& connection, const rdma_conn_param* accepted) {
  for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
    if (auto moved = move_qp(connection, state, accepted); !moved) return moved;
  }
  return {};
}

/// Of a request or its acceptance; sets what rdma_cm wants to know before either.
Result<rdma_conn_param> CmDevice::parameters(const Connection& connection, const char* where,
                                             std::span<const std::byte> private_data, std::size_t most) const {
  if (private_data.size() > most) {
    return fail(where, std::to_string(private_data.size()) + " bytes of private data do not fit",
                "send at most " + std::to_string(most));
  }
  std::uint8_t timeout = kAckTimeout;
  (void)rdma_set_option(connection.cm.get(), RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, sizeof timeout);
  rdma_conn_param made{};
  made.private_data = private_data.data();
  made.private_data_len = static_cast<std::uint8_t>(private_data.size());
  made.responder_resources = static_cast<std::uint8_t>(std::min<int>(kReadsAtOnce, attributes_.max_qp_rd_atom));
  made.initiator_depth = static_cast<std::uint8_t>(std::min<int>(kReadsAtOnce, attributes_.max_qp_init_rd_atom));
  made.retry_count = kRetries;
  made.rnr_retry_count = options_.rnr_retry;
  made.qp_num = connection.queues->hardware().qp_num;
  return made;
}

Result<void> CmDevice::finish_connect(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kResolved || !connection->queues) {
    return unknown_id("finish connecting");
  }
  auto prepared = parameters(*connection, "finish connecting", private_data, kMaxRequestData);
  if (!prepared) return tl::unexpected(prepared.error());
  rdma_conn_param& wanted = *prepared;
  if (rdma_connect(connection->cm.get(), &wanted) != 0) {
    return fail("finish connecting", "rdma_connect failed: " + errno_text(), "connect again");
  }
  connection->stage = Stage::kRequested;
  return {};
}

Result<void> CmDevice::accept(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending || !connection->queues) {
    return unknown_id("accept a connection");
  }
  auto prepared = parameters(*connection, "accept a connection", private_data, kMaxReplyData);
  if (!prepared) return tl::unexpected(prepared.error());
  rdma_conn_param& wanted = *prepared;
  // Neither may exceed what the request said (its two are from the peer's side).
  wanted.responder_resources = std::min(wanted.responder_resources, connection->peer_initiates);
  wanted.initiator_depth = std::min(wanted.initiator_depth, connection->peer_responds);
  if (auto started = start_qp(*connection, &wanted); !started) return started;
  if (rdma_accept(connection->cm.get(), &wanted) != 0) {
    return fail("accept a connection", "rdma_accept failed: " + errno_text(), "destroy the connection");
  }
  connection->stage = Stage::kAccepted;
  return {};
}

void CmDevice::reject(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending) return;
  const std::size_t length = std::min(private_data.size(), kMaxRejectData);
  (void)rdma_reject(connection->cm.get(), private_data.data(), static_cast<std::uint8_t>(length));
  connection->stage = Stage::kEnded;
  destroy(id);
}

Result<std::uint32_t> CmDevice::allocate_window(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || !connection->queues) {
    return fail(kWhere, "a memory window needs a QP to be bound on", "call make_qp first");
  }
  Owned<ibv_mw> window(ibv_alloc_mw(pd_.get(), IBV_MW_TYPE_2));
  if (window == nullptr) return fail(kWhere, "ibv_alloc_mw failed: " + errno_text(), "allocate fewer windows");
  if (!connection->queues->add_window(*window)) {
    return fail(kWhere, "the QP has " + std::to_string(connection->windows.size()) + " windows already",
                "allocate fewer windows");
  }
  const std::uint32_t key = window->rkey;
  connection->windows.push_back(std::move(window));
  return key;
}

void CmDevice::free_window(std::uint32_t key) {
  for (const auto& [number, connection] : connections_) {
    if (!connection->queues) continue;
    std::erase_if(connection->windows, [&, &queues = *connection->queues](const Owned<ibv_mw>& window) {
      if (window->rkey >> 8U != key >> 8U) return false;
      queues.remove_window(*window);
      return true;
    });
  }
}

void CmDevice::disconnect(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || !connection->queues) return;
  if (connection->stage == Stage::kResolved || connection->stage == Stage::kPending) return;
  (void)rdma_disconnect(connection->cm.get());  // a peer that has gone needs no goodbye
}

void CmDevice::destroy(CmId id) {
  const auto number = static_cast<std::uint64_t>(id);
  if (listeners_.erase(number) != 0) return;
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  forget_events(id);
  if (connection->stage == Stage::kPending) (void)rdma_reject(connection->cm.get(), nullptr, 0);
  --groups_[connection->group].connections;
  connection->windows.clear();  // first: one that is still bound holds its QP, for which soft-RoCE then waits 50 s
  connection->queues.reset();
}

}  // namespace rodeo::dv::rdma
