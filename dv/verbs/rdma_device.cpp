// SPDX-License-Identifier: Apache-2.0
#include "dv/verbs/rdma_device.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "dv/resolved.h"

namespace rodeo::dv::verbs {

namespace {

constexpr const char* kWhere = "RDMA device";
constexpr int kBacklog = 128;
constexpr int kFirstCqes = 4096;
constexpr std::uint32_t kMaxDepth = 16384;    // of a queue: its counters have 16 bits
constexpr std::uint32_t kStagingBytes = 512;  // of a slot: every reply of a NULL call, and most small calls
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

void RdmaDevice::Destroy::operator()(rdma_cm_id* i) const noexcept {
  if (i->qp != nullptr) rdma_destroy_qp(i);
  rdma_destroy_id(i);
}

// -------------------------------------------------------------------------------------------------------- opening

Result<std::unique_ptr<RdmaDevice>> RdmaDevice::open(const Address& address, const RdmaOptions& options) {
  std::unique_ptr<RdmaDevice> device(new RdmaDevice(options));
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

Result<void> RdmaDevice::find_context(const Address& address) {
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

Result<RdmaDevice::Owned<rdma_cm_id>> RdmaDevice::make_id(const std::string& where) const {
  rdma_cm_id* made = nullptr;
  if (rdma_create_id(channel_.get(), &made, nullptr, RDMA_PS_TCP) != 0) {
    return fail(where, "rdma_create_id failed: " + errno_text(), "`modprobe rdma_ucm`");
  }
  return Owned<rdma_cm_id>(made);
}

/// What a QP of this device takes inline, of what is useful: drivers round up, or refuse.
std::uint32_t RdmaDevice::probe_inline() const {
  const Owned<ibv_cq> cq(ibv_create_cq(context_, 16, nullptr, nullptr, 0));
  if (cq == nullptr) return 0;
  for (std::uint32_t bytes = kStagingBytes; bytes >= 64; bytes /= 2) {
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq.get();
    wanted.cap = {
        .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = kMaxSges, .max_recv_sge = 1, .max_inline_data = bytes};
    wanted.qp_type = IBV_QPT_RC;
    if (ibv_qp* qp = ibv_create_qp(pd_.get(), &wanted); qp != nullptr) {
      ibv_destroy_qp(qp);
      return std::min(wanted.cap.max_inline_data, kStagingBytes);
    }
  }
  return 0;
}

Result<void> RdmaDevice::read_capabilities() {
  if (const int error = ibv_query_device(context_, &attributes_); error != 0) {
    return fail(kWhere, "ibv_query_device failed: " + errno_text(error), "check it with `ibv_devinfo`");
  }
  capabilities_.name = ibv_get_device_name(context_->device);
  capabilities_.max_inline = probe_inline();
  capabilities_.max_sges = std::min<std::uint32_t>(kMaxSges, static_cast<std::uint32_t>(attributes_.max_sge));
  capabilities_.max_queue_depth = std::min(kMaxDepth, static_cast<std::uint32_t>(attributes_.max_qp_wr));
  capabilities_.memory_windows = (attributes_.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  capabilities_.max_windows =
      capabilities_.memory_windows ? std::min(kMaxWindows, static_cast<std::uint32_t>(attributes_.max_mw)) : 0;
  capabilities_.remote_invalidate =
      capabilities_.memory_windows || (attributes_.device_cap_flags & IBV_DEVICE_MEM_MGT_EXTENSIONS) != 0;
  capabilities_.numa_node = numa_node_of(capabilities_.name);
  return {};
}

RdmaDevice::~RdmaDevice() {
  listeners_.clear();
  connections_.clear();
}

Usage RdmaDevice::usage() const noexcept {
  Usage used;
  for (const auto& [number, connection] : connections_) {
    if (connection->qp) ++used.queue_pairs;
    used.memory_windows += static_cast<std::uint32_t>(connection->windows.size());
  }
  used.memory_regions = static_cast<std::uint32_t>(regions_.size());
  return used;
}

Result<MemoryRegion> RdmaDevice::register_memory(std::span<std::byte> range, int /*fd*/, std::size_t /*fd_offset*/,
                                                 Access access) {
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

Result<PollGroup*> RdmaDevice::make_poll_group() {
  auto group = std::make_unique<Group>();
  group->cqes = static_cast<std::uint32_t>(std::min(kFirstCqes, attributes_.max_cqe));
  group->cq.reset(ibv_create_cq(context_, static_cast<int>(group->cqes), nullptr, nullptr, 0));
  if (group->cq == nullptr) return fail(kWhere, "ibv_create_cq failed: " + errno_text(), "use fewer poll cores");
  group->poll_group = std::make_unique<PollGroup>(group->cq.get());
  groups_.push_back(std::move(group));
  return groups_.back()->poll_group.get();
}

/// Every request of a queue may complete before anybody polls: in error, all do.
Result<void> RdmaDevice::make_cq_room(Group& group, std::uint32_t more) {
  const std::uint32_t needed = group.promised + more;
  if (needed <= group.cqes) return {};
  const std::uint32_t most = static_cast<std::uint32_t>(attributes_.max_cqe);
  const std::uint32_t wanted = std::min(most, std::bit_ceil(needed));
  const int error = needed > most ? ENOMEM : ibv_resize_cq(group.cq.get(), static_cast<int>(wanted));
  if (error != 0) {
    return fail(kWhere,
                "a completion queue of " + std::to_string(needed) + " entries is not possible: " + errno_text(error),
                "use more poll cores, fewer connections or fewer credits");
  }
  group.cqes = wanted;
  return {};
}

// -------------------------------------------------------------------------------------------- what the user calls

RdmaDevice::Connection* RdmaDevice::find(CmId id) noexcept {
  const auto found = connections_.find(static_cast<std::uint64_t>(id));
  return found == connections_.end() ? nullptr : found->second.get();
}

Result<CmId> RdmaDevice::listen(const Address& address) {
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

Result<CmId> RdmaDevice::connect(const Address& address, PollGroup& group) {
  const std::string where = "connect to " + address.to_string();
  if (address.scheme != Address::Scheme::kRdma) return fail(where, "this device has rdma:// addresses only");
  const auto owner = std::find_if(groups_.begin(), groups_.end(),
                                  [&](const auto& candidate) { return candidate->poll_group.get() == &group; });
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
  ++(*owner)->connections;
  const CmId made = connection->id;
  connections_.emplace(last_id_, std::move(connection));
  return made;
}

Result<Qp*> RdmaDevice::make_qp(CmId id, const QpSizes& sizes) {
  Connection* connection = find(id);
  if (connection == nullptr || (connection->stage != Stage::kResolved && connection->stage != Stage::kPending)) {
    return unknown_id("make a QP");
  }
  if (connection->qp) return fail(kWhere, "the connection has a QP already", "make one QP per connection");
  const std::uint32_t most = std::bit_floor(capabilities_.max_queue_depth);
  if (sizes.send_depth == 0 || sizes.send_depth > most || sizes.receive_depth == 0 || sizes.receive_depth > most) {
    return fail(kWhere,
                "a QP of " + std::to_string(sizes.send_depth) + " sends and " + std::to_string(sizes.receive_depth) +
                    " receives is not possible",
                "use 1 to " + std::to_string(most) + " of each");
  }
  const std::uint32_t send_depth = std::bit_ceil(sizes.send_depth);
  const std::uint32_t receive_depth = std::bit_ceil(sizes.receive_depth);
  Group& group = *groups_[connection->group];
  if (auto room = make_cq_room(group, send_depth + receive_depth); !room) return tl::unexpected(room.error());
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = group.cq.get();
  wanted.cap = {.max_send_wr = send_depth,
                .max_recv_wr = receive_depth,
                .max_send_sge = kMaxSges,
                .max_recv_sge = 1,
                .max_inline_data = capabilities_.max_inline};
  wanted.qp_type = IBV_QPT_RC;
  connection->staging.resize(std::size_t{send_depth} * kStagingBytes);
  connection->staging_region.reset(
      ibv_reg_mr(pd_.get(), connection->staging.data(), connection->staging.size(), IBV_ACCESS_LOCAL_WRITE));
  if (connection->staging_region == nullptr) {
    return fail(kWhere, "ibv_reg_mr failed: " + errno_text(), "raise the limit on locked memory (`ulimit -l`)");
  }
  if (rdma_create_qp(connection->cm.get(), pd_.get(), &wanted) != 0) {
    return fail(kWhere, "rdma_create_qp failed: " + errno_text(), "use fewer connections or smaller queues");
  }
  connection->promised = send_depth + receive_depth;
  group.promised += connection->promised;
  connection->qp = std::make_unique<Qp>(QpParts{.qp = connection->cm->qp,
                                                .group = group.poll_group.get(),
                                                .staging = connection->staging.data(),
                                                .staging_lkey = connection->staging_region->lkey,
                                                .staging_bytes = kStagingBytes,
                                                .device_inline = capabilities_.max_inline,
                                                .send_depth = send_depth,
                                                .receive_depth = receive_depth,
                                                .regions = region_list_});
  return connection->qp.get();
}

/// Of a request or its acceptance; sets what rdma_cm wants to know before either.
Result<rdma_conn_param> RdmaDevice::parameters(const Connection& connection, const char* where,
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
  return made;
}

/// What rdma_cm sets too long for a LAN.
void RdmaDevice::tune(const Connection& connection) const noexcept {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTS;
  attributes.min_rnr_timer = kRnrTimer;
  (void)ibv_modify_qp(connection.cm->qp, &attributes, IBV_QP_STATE | IBV_QP_MIN_RNR_TIMER);
}

Result<void> RdmaDevice::finish_connect(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kResolved || !connection->qp) {
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

Result<void> RdmaDevice::accept(CmId id, std::span<const std::byte> private_data) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending || !connection->qp) {
    return unknown_id("accept a connection");
  }
  auto prepared = parameters(*connection, "accept a connection", private_data, kMaxReplyData);
  if (!prepared) return tl::unexpected(prepared.error());
  rdma_conn_param& wanted = *prepared;
  // Neither may exceed what the request said (its two are from the peer's side).
  wanted.responder_resources = std::min(wanted.responder_resources, connection->peer_initiates);
  wanted.initiator_depth = std::min(wanted.initiator_depth, connection->peer_responds);
  if (rdma_accept(connection->cm.get(), &wanted) != 0) {
    return fail("accept a connection", "rdma_accept failed: " + errno_text(), "destroy the connection");
  }
  tune(*connection);
  connection->stage = Stage::kAccepted;
  return {};
}

void RdmaDevice::reject(CmId id, std::span<const std::byte> private_data, const std::string& /*reason*/) {
  Connection* connection = find(id);
  if (connection == nullptr || connection->stage != Stage::kPending) return;
  const std::size_t length = std::min(private_data.size(), kMaxRejectData);
  (void)rdma_reject(connection->cm.get(), private_data.data(), static_cast<std::uint8_t>(length));
  connection->stage = Stage::kEnded;
  destroy(id);
}

Result<std::uint32_t> RdmaDevice::allocate_window(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || !connection->qp) {
    return fail(kWhere, "a memory window needs a QP to be bound on", "call make_qp first");
  }
  Owned<ibv_mw> window(ibv_alloc_mw(pd_.get(), IBV_MW_TYPE_2));
  if (window == nullptr) return fail(kWhere, "ibv_alloc_mw failed: " + errno_text(), "allocate fewer windows");
  if (!connection->qp->add_window(window.get())) {
    return fail(kWhere, "the QP has " + std::to_string(kMaxWindows) + " windows already", "allocate fewer windows");
  }
  const std::uint32_t key = window->rkey;
  connection->windows.push_back(std::move(window));
  return key;
}

void RdmaDevice::free_window(std::uint32_t key) {
  for (const auto& [number, connection] : connections_) {
    std::erase_if(connection->windows, [&, &qp = *connection->qp](const Owned<ibv_mw>& window) {
      if (window->rkey >> 8U != key >> 8U) return false;
      qp.remove_window(window.get());
      return true;
    });
  }
}

void RdmaDevice::disconnect(CmId id) {
  Connection* connection = find(id);
  if (connection == nullptr || !connection->qp) return;
  if (connection->stage == Stage::kResolved || connection->stage == Stage::kPending) return;
  (void)rdma_disconnect(connection->cm.get());  // a peer that has gone needs no goodbye
}

void RdmaDevice::destroy(CmId id) {
  const auto number = static_cast<std::uint64_t>(id);
  if (listeners_.erase(number) != 0) return;
  const auto found = connections_.find(number);
  if (found == connections_.end()) return;
  const std::unique_ptr<Connection> connection = std::move(found->second);
  connections_.erase(found);
  forget_events(id);
  if (connection->stage == Stage::kPending) (void)rdma_reject(connection->cm.get(), nullptr, 0);
  Group& group = *groups_[connection->group];
  group.promised -= connection->promised;
  --group.connections;
  connection->windows.clear();  // first: one that is still bound holds its QP, for which soft-RoCE then waits 50 s
  connection->qp.reset();
  connection->cm.reset();  // with its QP, before the memory that it used
}

}  // namespace rodeo::dv::verbs
