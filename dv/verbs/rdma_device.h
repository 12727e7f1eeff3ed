// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device of any kind through plain verbs, with its connections made by rdma_cm: "rdma://HOST:PORT".
//
// One engine has one device: its memory is registered there. Which one follows from the address (the interface that
// the host's route leads over, or that has the address to listen on) or from its ?device=NAME.
//
// Runs on: control thread, but for move_to_error.

#include <rdma/rdma_cma.h>

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "dv/verbs/provider.h"
#include "pools/errno_text.h"

namespace rodeo::dv::verbs {

inline constexpr int kResolveMs = 3000;  // for an address, and for a route

struct RdmaOptions {
  std::uint8_t rnr_retry = 7;  // how often a Send that finds no receive is tried again; 7: for ever
};

class RdmaDevice final : public Device {
 public:
  struct Destroy {
    void operator()(rdma_event_channel* c) const noexcept { rdma_destroy_event_channel(c); }
    void operator()(rdma_cm_id* i) const noexcept;
    void operator()(ibv_context** l) const noexcept { rdma_free_devices(l); }
    void operator()(ibv_pd* p) const noexcept { ibv_dealloc_pd(p); }
    void operator()(ibv_mr* m) const noexcept { ibv_dereg_mr(m); }
    void operator()(ibv_mw* w) const noexcept { ibv_dealloc_mw(w); }
    void operator()(ibv_cq* c) const noexcept { ibv_destroy_cq(c); }
  };
  template <class T>
  using Owned = std::unique_ptr<T, Destroy>;

  [[nodiscard]] static Result<std::unique_ptr<RdmaDevice>> open(const Address& address, const RdmaOptions& options);
  ~RdmaDevice() override;

  [[nodiscard]] const Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] Usage usage() const noexcept override;
  [[nodiscard]] Result<MemoryRegion> register_memory(std::span<std::byte> range, int fd, std::size_t fd_offset,
                                                     Access access) override;
  [[nodiscard]] Result<PollGroup*> make_poll_group() override;
  [[nodiscard]] Result<CmId> listen(const Address& address) override;
  [[nodiscard]] Result<CmId> connect(const Address& address, PollGroup& group) override;
  [[nodiscard]] Result<Qp*> make_qp(CmId id, const QpSizes& sizes) override;
  [[nodiscard]] Result<void> finish_connect(CmId id, std::span<const std::byte> private_data) override;
  [[nodiscard]] Result<void> accept(CmId id, std::span<const std::byte> private_data) override;
  void reject(CmId id, std::span<const std::byte> private_data, const std::string& reason) override;
  [[nodiscard]] Result<std::uint32_t> allocate_window(CmId id) override;
  void free_window(std::uint32_t key) override;
  void disconnect(CmId id) override;
  void move_to_error(Qp& qp) noexcept override { qp.fail(); }
  void destroy(CmId id) override;
  [[nodiscard]] std::optional<CmEvent> next_event() override;
  [[nodiscard]] int event_fd() const noexcept override { return channel_->fd; }

 private:
  struct Group {
    Owned<ibv_cq> cq;
    std::unique_ptr<PollGroup> poll_group;
    std::uint32_t cqes = 0;      // that it holds
    std::uint32_t promised = 0;  // to the queues of its QPs
    std::uint32_t connections = 0;
  };
  enum class Stage : std::uint8_t { kResolving, kResolved, kRequested, kPending, kAccepted, kEstablished, kEnded };
  struct Connection {
    CmId id{};
    CmId listener{};
    bool active = false;
    Stage stage = Stage::kResolving;
    std::uint32_t group = 0;
    std::uint32_t promised = 0;       // CQEs
    std::uint8_t peer_initiates = 0;  // passive: Reads that the peer has under way at once, and that it answers
    std::uint8_t peer_responds = 0;
    std::vector<std::byte> staging;
    Owned<ibv_mr> staging_region;
    Owned<rdma_cm_id> cm;  // with its QP: after the windows that are bound there, before its memory
    std::unique_ptr<Qp> qp;
    std::vector<Owned<ibv_mw>> windows;
  };

  explicit RdmaDevice(const RdmaOptions& options) : options_(options) {}
  [[nodiscard]] Result<void> find_context(const Address& address);
  [[nodiscard]] Result<void> read_capabilities();
  [[nodiscard]] std::uint32_t probe_inline() const;
  [[nodiscard]] Result<Owned<rdma_cm_id>> make_id(const std::string& where) const;
  [[nodiscard]] Connection* find(CmId id) noexcept;
  [[nodiscard]] Result<void> make_cq_room(Group& group, std::uint32_t more);
  [[nodiscard]] Result<rdma_conn_param> parameters(const Connection& connection, const char* where,
                                                   std::span<const std::byte> private_data, std::size_t most) const;
  void tune(const Connection& connection) const noexcept;
  void take(const rdma_cm_event& event);
  void on_request(const rdma_cm_event& event);
  void emit(const Connection& connection, CmEventKind kind, const rdma_cm_event* event, std::string reason = {});
  void forget_events(CmId id);
  [[nodiscard]] bool same_device(const rdma_cm_id& id) const noexcept { return id.verbs == context_; }

  const RdmaOptions options_;
  Owned<rdma_event_channel> channel_;
  Owned<rdma_cm_id> probe_;       // keeps the context
  Owned<ibv_context*> contexts_;  // or this
  ibv_context* context_ = nullptr;
  Owned<ibv_pd> pd_;
  ibv_device_attr attributes_{};
  Capabilities capabilities_;
  std::vector<Owned<ibv_mr>> regions_;
  std::vector<ibv_mr*> region_list_;
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_map<std::uint64_t, Owned<rdma_cm_id>> listeners_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::deque<CmEvent> events_;
  std::uint64_t last_id_ = 0;
};

}  // namespace rodeo::dv::verbs
