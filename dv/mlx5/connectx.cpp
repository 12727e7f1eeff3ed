// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/connectx.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace rodeo::dv::mlx5 {

namespace {

constexpr const char* kWhere = "ConnectX";
constexpr std::uint32_t kInlineBytes = 236;  // four blocks
constexpr std::uint32_t kBbsPerSend = 2;
constexpr std::uint32_t kMaxSges = 4;
constexpr std::uint8_t kHopLimit = 64;
constexpr std::uint8_t kRdAtomic = 16;    // Reads under way at once
constexpr std::uint8_t kAckTimeout = 14;  // 4.096 µs · 2^14 = 67 ms
constexpr std::uint8_t kRetries = 7;
constexpr std::uint8_t kRnrForEver = 7;
constexpr std::uint8_t kRnrTimer = 12;  // 640 µs

tl::unexpected<Error> call_failed(const std::string& call, int error, std::string next) {
  return fail(kWhere, call + " failed: " + std::strerror(error), std::move(next));
}

class DeviceList {
 public:
  DeviceList() : list_(ibv_get_device_list(&count_)) {}
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList() {
    if (list_ != nullptr) ibv_free_device_list(list_);
  }
  [[nodiscard]] std::span<ibv_device*> all() const {
    return {list_, list_ == nullptr ? 0U : static_cast<std::size_t>(count_)};
  }

 private:
  int count_ = 0;
  ibv_device** list_;
};

int numa_node_of(const std::string& name) {
  std::ifstream file("/sys/class/infiniband/" + name + "/device/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

}  // namespace

std::vector<std::string> ConnectX::names() {
  std::vector<std::string> found;
  const DeviceList list;
  for (ibv_device* device : list.all()) {
    if (mlx5dv_is_supported(device)) found.emplace_back(ibv_get_device_name(device));
  }
  return found;
}

Result<std::unique_ptr<ConnectX>> ConnectX::open(const std::string& name) {
  const DeviceList list;
  for (ibv_device* device : list.all()) {
    if (!mlx5dv_is_supported(device) || (!name.empty() && name != ibv_get_device_name(device))) continue;
    std::unique_ptr<ConnectX> made(new ConnectX);
    made->context_.reset(ibv_open_device(device));
    if (made->context_ == nullptr) {
      return call_failed("ibv_open_device", errno, "check the permissions of /dev/infiniband");
    }
    made->pd_.reset(ibv_alloc_pd(made->context_.get()));
    if (made->pd_ == nullptr) return call_failed("ibv_alloc_pd", errno, "check the device with `ibv_devinfo`");
    if (auto read = made->read_capabilities(ibv_get_device_name(device)); !read) return tl::unexpected(read.error());
    return made;
  }
  return fail(kWhere, name.empty() ? "this host has no mlx5 device" : "this host has no mlx5 device " + name,
              "`ibv_devices` lists what there is; soft:NAME needs none");
}

Result<void> ConnectX::read_capabilities(const std::string& name) {
  ibv_device_attr device{};
  if (const int error = ibv_query_device(context_.get(), &device); error != 0) {
    return call_failed("ibv_query_device", error, "check the device with `ibv_devinfo`");
  }
  if (const int error = ibv_query_port(context_.get(), port_, &port_state_); error != 0) {
    return call_failed("ibv_query_port", error, "check the port with `ibv_devinfo`");
  }
  capabilities_.name = name;
  capabilities_.max_inline = kInlineBytes;
  capabilities_.max_sges = std::min<std::uint32_t>(kMaxSges, static_cast<std::uint32_t>(device.max_sge));
  capabilities_.max_queue_depth = static_cast<std::uint32_t>(device.max_qp_wr);
  capabilities_.memory_windows = (device.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2B) != 0;
  capabilities_.max_windows = capabilities_.memory_windows ? static_cast<std::uint32_t>(device.max_mw) : 0;
  capabilities_.remote_invalidate = capabilities_.memory_windows;
  capabilities_.numa_node = numa_node_of(name);
  return {};
}

Result<MemoryRegion> ConnectX::register_memory(std::span<std::byte> range, Access access) {
  unsigned flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND;
  const auto granted = static_cast<std::uint8_t>(access);
  if ((granted & static_cast<std::uint8_t>(Access::kRemoteRead)) != 0) flags |= IBV_ACCESS_REMOTE_READ;
  if ((granted & static_cast<std::uint8_t>(Access::kRemoteWrite)) != 0) flags |= IBV_ACCESS_REMOTE_WRITE;
  Owned<ibv_mr> region(ibv_reg_mr(pd_.get(), range.data(), range.size(), flags));
  if (region == nullptr) return call_failed("ibv_reg_mr", errno, "raise the limit on locked memory (`ulimit -l`)");
  const MemoryRegion made{range.data(), range.size(), region->lkey, region->rkey};
  regions_.push_back(std::move(region));
  return made;
}

Result<ConnectX::HardwareCq> ConnectX::make_cq(std::uint32_t cqes) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = cqes;
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  mlx5dv_cq_init_attr direct{};
  direct.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  direct.cqe_size = sizeof(mlx5_cqe64);
  ibv_cq_ex* made = mlx5dv_create_cq(context_.get(), &attributes, &direct);
  if (made == nullptr) return call_failed("mlx5dv_create_cq", errno, "use fewer connections or smaller queues");
  HardwareCq result{Owned<ibv_cq>(ibv_cq_ex_to_cq(made)), {}};
  mlx5dv_cq out{};
  mlx5dv_obj object{};
  object.cq.in = result.cq.get();
  object.cq.out = &out;
  if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ); error != 0) {
    return call_failed("mlx5dv_init_obj of a CQ", error, "use rdma-core 44 or later");
  }
  if (out.cqe_size != sizeof(mlx5_cqe64)) {
    return fail(kWhere, "the CQ has CQEs of " + std::to_string(out.cqe_size) + " bytes", "unset MLX5_CQE_SIZE");
  }
  result.ring = {static_cast<std::byte*>(out.buf), reinterpret_cast<Be32*>(out.dbrec), out.cqe_cnt};
  return result;
}

Result<ConnectX::HardwareQp> ConnectX::make_qp(const HardwareCq& send_cq, const HardwareCq& receive_cq,
                                               const QpSizes& sizes) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = send_cq.cq.get();
  attributes.recv_cq = receive_cq.cq.get();
  attributes.cap.max_send_wr = sizes.send_depth * kBbsPerSend;
  attributes.cap.max_recv_wr = sizes.receive_depth;
  attributes.cap.max_send_sge = 1;  // sizes the ring only; a WQE may hold more
  attributes.cap.max_recv_sge = 1;
  attributes.qp_type = IBV_QPT_RC;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  attributes.pd = pd_.get();
  mlx5dv_qp_init_attr direct{};
  direct.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  direct.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
  HardwareQp result{Owned<ibv_qp>(mlx5dv_create_qp(context_.get(), &attributes, &direct)), {}};
  if (result.qp == nullptr) return call_failed("mlx5dv_create_qp", errno, "use fewer connections or smaller queues");

  mlx5dv_qp out{};
  mlx5dv_obj object{};
  object.qp.in = result.qp.get();
  object.qp.out = &out;
  if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP); error != 0) {
    return call_failed("mlx5dv_init_obj of a QP", error, "use rdma-core 44 or later");
  }
  if (out.rq.stride != kReceiveStride || out.sq.stride != kBbBytes) {
    return fail(kWhere,
                "the queues have strides of " + std::to_string(out.sq.stride) + " and " +
                    std::to_string(out.rq.stride) + " bytes",
                "unset MLX5_QP_SIGNATURE");
  }
  result.rings.sq = static_cast<std::byte*>(out.sq.buf);
  result.rings.sq_bbs = out.sq.wqe_cnt;
  result.rings.rq = static_cast<std::byte*>(out.rq.buf);
  result.rings.rq_wqes = out.rq.wqe_cnt;
  result.rings.dbrec = reinterpret_cast<Be32*>(out.dbrec);
  result.rings.bf_reg = static_cast<std::byte*>(out.bf.reg);
  result.rings.bf_bytes = out.bf.size;
  result.rings.qpn = result.qp->qp_num;
  result.rings.max_inline = kInlineBytes;

  ibv_qp_attr init{};
  init.qp_state = IBV_QPS_INIT;
  init.port_num = port_;
  init.qp_access_flags = IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE;
  if (const int error =
          ibv_modify_qp(result.qp.get(), &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
      error != 0) {
    return call_failed("moving the QP to INIT", error, "check the port with `ibv_devinfo`");
  }
  return result;
}

Result<void> ConnectX::connect_qp(const HardwareQp& qp, const Peer& peer, std::uint32_t own_psn) {
  ibv_qp_attr ready{};
  ready.qp_state = IBV_QPS_RTR;
  ready.path_mtu = port_state_.active_mtu;
  ready.dest_qp_num = peer.qpn;
  ready.rq_psn = peer.psn;
  ready.max_dest_rd_atomic = kRdAtomic;
  ready.min_rnr_timer = kRnrTimer;
  ready.ah_attr.port_num = port_;
  ready.ah_attr.dlid = peer.lid;
  if (peer.lid == 0) {
    ready.ah_attr.is_global = 1;
    ready.ah_attr.grh.dgid = peer.gid;
    ready.ah_attr.grh.hop_limit = kHopLimit;
  }
  if (const int error = ibv_modify_qp(qp.qp.get(), &ready,
                                      IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                          IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
      error != 0) {
    return call_failed("moving the QP to RTR", error, "check that both ports are up and can reach each other");
  }
  ibv_qp_attr sending{};
  sending.qp_state = IBV_QPS_RTS;
  sending.sq_psn = own_psn;
  sending.max_rd_atomic = kRdAtomic;
  sending.timeout = kAckTimeout;
  sending.retry_cnt = kRetries;
  sending.rnr_retry = kRnrForEver;
  if (const int error = ibv_modify_qp(qp.qp.get(), &sending,
                                      IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_TIMEOUT |
                                          IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY);
      error != 0) {
    return call_failed("moving the QP to RTS", error, "check the device with `ibv_devinfo`");
  }
  return {};
}

Result<void> ConnectX::move_to_error(const HardwareQp& qp) {
  ibv_qp_attr error_state{};
  error_state.qp_state = IBV_QPS_ERR;
  if (const int error = ibv_modify_qp(qp.qp.get(), &error_state, IBV_QP_STATE); error != 0) {
    return call_failed("moving the QP to ERR", error, "check the device with `ibv_devinfo`");
  }
  return {};
}

}  // namespace rodeo::dv::mlx5
