// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device with its connections made by rdma_cm, "rdma://HOST:PORT": all of it but how queues are made and driven,
// which is for the devices of dv/rdma/device.h.
//
// One engine has one device: its memory is registered there. Which one follows from the address (the interface that
// the host's route leads over, or that has the address to listen on) or from its ?device=NAME.
//
// rdma_cm never sees a QP of ours, only its number: not every QP can be made by rdma_create_qp. So each is moved
// through its states here, with what rdma_init_qp_attr says, and the active side ends the handshake by rdma_establish.
//
// Runs on: control thread.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "dv/device.h"
#include "dv/rdma/owned.h"
#include "pools/errno_text.h"

namespace rodeo::dv::rdma {

inline constexpr int kResolveMs = 3000;  // for an address, and for a route

struct RdmaOptions {
  std::uint8_t rnr_retry = 7;  // how often a Send that finds no receive is tried again; 7: for ever
};

/// The queues of one connection with what drives them, as a device makes them.
class Queues {
 public:
  Queues() = default;
  Queues(const Queues&) = delete;
  Queues& operator=(const Queues&) = delete;
  virtual ~Queues() = default;
  [[nodiscard]] virtual ibv_qp& hardware() const noexcept = 0;
  /// `window` may be bound on the QP from now on. False: it has too many.
  [[nodiscard]] virtual bool add_window(ibv_mw& window) noexcept {
    static_cast<void>(window);
    return true;
  }
  virtual void remove_window(const ibv_mw& window) noexcept { static_cast<void>(window); }
};

class CmDevice {
 public:
  /// Finds and opens the device of `address`.
  [[nodiscard]] static Result<std::unique_ptr<CmDevice>> open(const Address& address, const RdmaOptions& options);
  CmDevice(const CmDevice&) = delete;
  CmDevice& operator=(const CmDevice&) = delete;
  ~CmDevice() { close(); }

  [[nodiscard]] ibv_context& context() const noexcept { return *context_; }
  [[nodiscard]] ibv_pd& pd() const noexcept { return *pd_; }
  [[nodiscard]] const ibv_device_attr& attributes() const noexcept { return attributes_; }
  /// What the device says of itself. What depends on how its queues are driven is for its user to fill in.
  [[nodiscard]] Capabilities& capabilities() noexcept { return capabilities_; }
  [[nodiscard]] Usage usage() const noexcept;

  [[nodiscard]] Result<MemoryRegion> register_memory(std::span<std::byte> range, Access access);
  /// What was registered. Does not change any more when there are connections.
  [[nodiscard]] std::span<ibv_mr* const> regions() const noexcept { return region_list_; }

  /// Connections are spread over the groups, which have numbers from 0. `poll_group`: by what connect() knows it.
  void add_group(const void* poll_group) { groups_.push_back({poll_group, 0}); }

  [[nodiscard]] Result<CmId> listen(const Address& address);
  [[nodiscard]] Result<CmId> connect(const Address& address, const void* poll_group);
  /// The group of a connection that may get queues of these sizes now.
  [[nodiscard]] Result<std::uint32_t> group_for_queues(CmId id, const QpSizes& sizes);
  /// Gives the connection its queues, whose QP has not left the state RESET.
  [[nodiscard]] Result<void> attach(CmId id, std::unique_ptr<Queues> queues);
  [[nodiscard]] Result<void> finish_connect(CmId id, std::span<const std::byte> private_data);
  [[nodiscard]] Result<void> accept(CmId id, std::span<const std::byte> private_data);
  void reject(CmId id, std::span<const std::byte> private_data);
  [[nodiscard]] Result<std::uint32_t> allocate_window(CmId id);
  void free_window(std::uint32_t key);
  void disconnect(CmId id);
  void destroy(CmId id);
  [[nodiscard]] std::optional<CmEvent> next_event();
  [[nodiscard]] int event_fd() const noexcept { return channel_->fd; }
  /// Ends all listeners and connections, with their queues.
  void close() noexcept;

 private:
  struct Group {
    const void* poll_group = nullptr;
    std::uint32_t connections = 0;
  };
  enum class Stage : std::uint8_t { kResolving, kResolved, kRequested, kPending, kAccepted, kEstablished, kEnded };
  struct Connection {
    CmId id{};
    CmId listener{};
    bool active = false;
    Stage stage = Stage::kResolving;
    std::uint32_t group = 0;
    std::uint8_t peer_initiates = 0;  // passive: Reads that the peer has under way at once, and that it answers
    std::uint8_t peer_responds = 0;
    Owned<rdma_cm_id> cm;
    std::unique_ptr<Queues> queues;
    std::vector<Owned<ibv_mw>> windows;  // first to go: a QP with bound ones is held by them
  };

  explicit CmDevice(const RdmaOptions& options) : options_(options) {}
  [[nodiscard]] Result<void> find_context(const Address& address);
  [[nodiscard]] Result<void> read_capabilities();
  [[nodiscard]] Result<Owned<rdma_cm_id>> make_id(const std::string& where) const;
  [[nodiscard]] Connection* find(CmId id) noexcept;
  [[nodiscard]] Result<rdma_conn_param> parameters(const Connection& connection, const char* where,
                                                   std::span<const std::byte> private_data, std::size_t most) const;
  [[nodiscard]] static Result<void> move_qp(const Connection& connection, ibv_qp_state state,
                                            const rdma_conn_param* accepted);
  [[nodiscard]] static Result<void> start_qp(const Connection& connection, const rdma_conn_param* accepted);
  void take(const rdma_cm_event& event);
  void on_response(Connection& connection, const rdma_cm_event& event);
  void on_request(const rdma_cm_event& event);
  void end(Connection& connection, CmEventKind kind, const rdma_cm_event& event, std::string reason);
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
  std::vector<Group> groups_;
  std::unordered_map<std::uint64_t, Owned<rdma_cm_id>> listeners_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::deque<CmEvent> events_;
  std::uint64_t last_id_ = 0;
};

}  // namespace rodeo::dv::rdma
