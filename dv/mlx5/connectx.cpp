// SPDX-License-Identifier: Apache-2.0
#include "dv/mlx5/connectx.h"

#include <infiniband/mlx5dv.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <string>
#include <utility>

#include "dv/mlx5/hardware_rings.h"

namespace rodeo::dv::mlx5 {

namespace {

using rdma::Owned;

constexpr const char* kWhere = "ConnectX";
constexpr std::uint32_t kFirstCqes = 4096;
constexpr std::uint32_t kInlineBytes = 236;  // four blocks
constexpr std::uint32_t kMaxSges = 4;
constexpr std::uint32_t kBbsPerSend = 2;     // a small inline Send
constexpr std::uint32_t kBbsPerRequest = 4;  // as the library counts: a window's bind, and a piece

tl::unexpected<Error> call_failed(const std::string& call, int error, std::string next) {
  return fail(kWhere, call + " failed: " + errno_text(error), std::move(next));
}

struct HardwareCq {
  Owned<ibv_cq> cq;
  CqRing ring;
};

/// 64-byte CQEs, uncompressed.
Result<HardwareCq> make_cq(ibv_context& context, std::uint32_t cqes) {
  ibv_cq_init_attr_ex attributes{};
  attributes.cqe = cqes - 1;  // the library adds one, and takes the next power of two
  attributes.wc_flags = IBV_WC_STANDARD_FLAGS;
  mlx5dv_cq_init_attr direct{};
  direct.comp_mask = MLX5DV_CQ_INIT_ATTR_MASK_CQE_SIZE;
  direct.cqe_size = sizeof(mlx5_cqe64);
  ibv_cq_ex* made = mlx5dv_create_cq(&context, &attributes, &direct);
  if (made == nullptr) return call_failed("mlx5dv_create_cq", errno, "use fewer connections or smaller queues");
  HardwareCq result{Owned<ibv_cq>(ibv_cq_ex_to_cq(made)), {}};
  mlx5dv_cq out{};
  mlx5dv_obj object{};
  object.cq.in = result.cq.get();
  object.cq.out = &out;
  if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_CQ); error != 0) {
    return call_failed("mlx5dv_init_obj of a CQ", error, "use rdma-core 44 or later");
  }
  const auto ring = ring_of(out);
  if (!ring) return tl::unexpected(ring.error());
  result.ring = *ring;
  return result;
}

struct HardwareQp {
  Owned<ibv_qp> qp;
  mlx5dv_qp direct{};
  QpRings rings;
};

/// Of these sizes exactly, which are powers of two. Both queues complete into `cq`. Payload is never scattered into
/// CQEs.
Result<HardwareQp> make_hardware_qp(ibv_pd& domain, ibv_cq& cq, std::uint32_t send_bbs, std::uint32_t receives) {
  ibv_qp_init_attr_ex attributes{};
  attributes.send_cq = attributes.recv_cq = &cq;
  attributes.cap = {.max_send_wr = send_bbs / kBbsPerRequest,
                    .max_recv_wr = receives,
                    .max_send_sge = 1,
                    .max_recv_sge = 1,
                    .max_inline_data = 0};  // all of this only sizes the rings; a WQE may hold more
  attributes.qp_type = IBV_QPT_RC;
  attributes.comp_mask = IBV_QP_INIT_ATTR_PD;
  attributes.pd = &domain;
  mlx5dv_qp_init_attr direct{};
  direct.comp_mask = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS;
  direct.create_flags = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE;
  HardwareQp result{Owned<ibv_qp>(mlx5dv_create_qp(domain.context, &attributes, &direct)), {}, {}};
  if (result.qp == nullptr) return call_failed("mlx5dv_create_qp", errno, "use fewer connections or smaller queues");
  mlx5dv_obj object{};
  object.qp.in = result.qp.get();
  object.qp.out = &result.direct;
  if (const int error = mlx5dv_init_obj(&object, MLX5DV_OBJ_QP); error != 0) {
    return call_failed("mlx5dv_init_obj of a QP", error, "use rdma-core 44 or later");
  }
  const auto rings = rings_of(result.direct, result.qp->qp_num, kInlineBytes);
  if (!rings) return tl::unexpected(rings.error());
  result.rings = *rings;
  if (result.rings.sq_bbs != send_bbs || result.rings.rq_wqes != receives) {
    return fail(kWhere,
                "rings of " + std::to_string(send_bbs) + " and " + std::to_string(receives) +
                    " entries were asked for, and the library made " + std::to_string(result.rings.sq_bbs) + " and " +
                    std::to_string(result.rings.rq_wqes),
                "use plain verbs (?verbs=plain), and report it");
  }
  return result;
}

}  // namespace

struct ConnectX::SharedCq {
  explicit SharedCq(HardwareCq made) : hardware(std::move(made)), cq(hardware.ring) {}
  HardwareCq hardware;
  Cq cq;                       // unused for the first of a group, which the group itself polls
  std::uint32_t promised = 0;  // entries, to the queues of its QPs
};

struct ConnectX::Group {
  Owned<ibv_td> thread_domain;
  Owned<ibv_pd> domain;  // the device's PD with the register of thread_domain
  BlueFlame bf;          // that register, once a QP has told of it
  std::vector<std::unique_ptr<SharedCq>> cqs;
  // All lists that the group has polled: few, as each CQ is twice as long as the one before.
  std::vector<std::unique_ptr<PollGroup::Members>> members;
  std::unique_ptr<PollGroup> poll_group;

  /// A CQ with room for `cqes` more. Every request of a queue may complete before anybody polls: in error, all do.
  [[nodiscard]] Result<SharedCq*> cq_for(ibv_context& context, std::uint32_t cqes, std::uint32_t most);
};

Result<ConnectX::SharedCq*> ConnectX::Group::cq_for(ibv_context& context, std::uint32_t cqes, std::uint32_t most) {
  for (const auto& shared : cqs) {
    if (shared->promised + cqes <= shared->hardware.ring.cqe_count) return shared.get();
  }
  const std::uint32_t twice = cqs.empty() ? kFirstCqes : 2 * cqs.back()->hardware.ring.cqe_count;
  const std::uint32_t wanted = std::max(std::bit_ceil(cqes), std::min(twice, std::bit_floor(most)));
  auto made = make_cq(context, wanted);
  if (!made) return tl::unexpected(made.error());
  cqs.push_back(std::make_unique<SharedCq>(std::move(*made)));
  if (poll_group != nullptr) {
    auto list = std::make_unique<PollGroup::Members>(*members.back());
    ++list->generation;
    list->receive_cqs.push_back(&cqs.back()->cq);
    poll_group->publish(list.get());
    members.push_back(std::move(list));
  }
  return cqs.back().get();
}

/// A QP with its share of a CQ.
class ConnectX::HardwareQueues final : public rdma::Queues {
 public:
  /// What the QP is, and what moves it to error.
  struct Driven final : Qp {
    Driven(const QpRings& rings, ibv_qp& of) : Qp(rings), hardware(of) {}
    ibv_qp& hardware;
  };

  HardwareQueues(SharedCq& cq, std::uint32_t cqes, HardwareQp made, BlueFlame* shared)
      : cq_(cq), cqes_(cqes), made_(std::move(made)), own_register_(register_of(made_.direct, false)) {
    cq_.promised += cqes_;
    made_.rings.bf = shared != nullptr ? shared : &own_register_;
    qp_ = std::make_unique<Driven>(made_.rings, *made_.qp);
  }
  ~HardwareQueues() override { cq_.promised -= cqes_; }

  [[nodiscard]] ibv_qp& hardware() const noexcept override { return *made_.qp; }
  [[nodiscard]] Qp& qp() const noexcept { return *qp_; }

 private:
  SharedCq& cq_;
  const std::uint32_t cqes_;
  HardwareQp made_;
  BlueFlame own_register_;
  std::unique_ptr<Driven> qp_;
};

Result<void> ConnectX::check(const rdma::CmDevice& opened) {
  if (!mlx5dv_is_supported(opened.context().device)) {
    return fail(kWhere, "no mlx5 device", "direct verbs drive ConnectX-4 and later");
  }
  const auto cq = make_cq(opened.context(), 64);
  if (!cq) return tl::unexpected(cq.error());
  const auto qp = make_hardware_qp(opened.pd(), *cq->cq, 64, 16);
  if (!qp) return tl::unexpected(qp.error());
  return {};
}

ConnectX::ConnectX(std::unique_ptr<rdma::CmDevice> opened) : rdma::Device<Provider>(std::move(opened)) {
  Capabilities& can = cm().capabilities();
  can.driver = "direct verbs";
  can.max_inline = kInlineBytes;
  can.max_sges = std::min(kMaxSges, can.max_sges);
}

ConnectX::~ConnectX() { cm().close(); }

Result<PollGroup*> ConnectX::make_poll_group() {
  auto group = std::make_unique<Group>();
  ibv_td_init_attr no_wishes{};
  group->thread_domain.reset(ibv_alloc_td(&cm().context(), &no_wishes));
  if (group->thread_domain != nullptr) {
    ibv_parent_domain_init_attr wanted{};
    wanted.pd = &cm().pd();
    wanted.td = group->thread_domain.get();
    group->domain.reset(ibv_alloc_parent_domain(&cm().context(), &wanted));
  }
  const auto first = group->cq_for(cm().context(), 1, static_cast<std::uint32_t>(cm().attributes().max_cqe));
  if (!first) return tl::unexpected(first.error());
  group->members.push_back(std::make_unique<PollGroup::Members>());
  group->poll_group = std::make_unique<PollGroup>((*first)->hardware.ring, nullptr, group->members.back().get());
  groups_.push_back(std::move(group));
  cm().add_group(groups_.back()->poll_group.get());
  return groups_.back()->poll_group.get();
}

Result<ConnectX::Made> ConnectX::make_queues(std::uint32_t group, const QpSizes& sizes) {
  Group& owner = *groups_[group];
  const std::uint32_t send_bbs = std::max(2 * Qp::kSendRoom, std::bit_ceil(sizes.send_depth * kBbsPerSend));
  const std::uint32_t receives = std::bit_ceil(sizes.receive_depth);
  const std::uint32_t cqes = send_bbs + receives;  // a request takes a block at least
  const auto most = static_cast<std::uint32_t>(cm().attributes().max_cqe);
  const auto cq = owner.cq_for(cm().context(), cqes, most);
  if (!cq) return tl::unexpected(cq.error());
  ibv_pd& domain = owner.domain != nullptr ? *owner.domain : cm().pd();
  auto made = make_hardware_qp(domain, *(*cq)->hardware.cq, send_bbs, receives);
  if (!made) return tl::unexpected(made.error());
  BlueFlame* shared = nullptr;
  if (owner.domain != nullptr) {
    const BlueFlame own = register_of(made->direct, true);
    if (owner.bf.reg == nullptr) owner.bf = own;
    if (owner.bf.reg == own.reg) shared = &owner.bf;
  }
  auto queues = std::make_unique<HardwareQueues>(**cq, cqes, std::move(*made), shared);
  Qp* qp = &queues->qp();
  return Made{std::move(queues), qp};
}

void ConnectX::move_to_error(Qp& qp) noexcept {
  ibv_qp_attr wanted{};
  wanted.qp_state = IBV_QPS_ERR;
  // Refused only when the device is gone.
  (void)ibv_modify_qp(&static_cast<HardwareQueues::Driven&>(qp).hardware, &wanted, IBV_QP_STATE);
}

}  // namespace rodeo::dv::mlx5
