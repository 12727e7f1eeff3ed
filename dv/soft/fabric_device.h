// SPDX-License-Identifier: Apache-2.0
#pragma once

// A device of a fabric, and what the devices of one fabric share. Runs on: the fabric's one thread.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "dv/soft/fabric.h"
#include "dv/soft/scheduler.h"

namespace rodeo::dv::soft {

class FabricDevice;

/// The exchange is that between processes (dv/soft/cm_message.h), without the files.
struct FabricMessage {
  enum class Type : std::uint8_t { kHello, kResolved, kRequest, kReply, kReject, kReady, kLeave, kClosed };
  Type type{};
  std::uint32_t from_device = 0;
  CmId from{};  // the sender's connection
  CmId to{};    // the receiver's connection; kHello: its listener
  std::uint32_t group = 0;
  QpAddress qp;
  std::vector<std::byte> private_data;
  std::string reason;
};

class FabricState {
 public:
  FabricState(Fabric::Mode mode, std::uint64_t seed);

  [[nodiscard]] FabricDevice* device(std::uint32_t index) const noexcept {
    return index < devices.size() ? devices[index] : nullptr;
  }
  void send(std::uint32_t to_device, FabricMessage message);
  void kill(std::uint32_t index);

  std::vector<FabricDevice*> devices;  // by index; null: closed or killed
  std::map<std::string, std::pair<std::uint32_t, CmId>> listeners;
  std::unique_ptr<Scheduler> scheduler;  // null: immediate

 private:
  [[nodiscard]] std::vector<FabricDevice*> receivers() const;
};

class FabricDevice final : public Hca {
 public:
  FabricDevice(std::shared_ptr<FabricState> fabric, const SoftOptions& options);
  ~FabricDevice() override;

  [[nodiscard]] Result<CmId> listen(const Address& address) override;
  [[nodiscard]] Result<CmId> connect(const Address& address, mlx5::PollGroup& group) override;
  [[nodiscard]] Result<void> finish_connect(CmId id, std::span<const std::byte> private_data) override;
  [[nodiscard]] Result<void> accept(CmId id, std::span<const std::byte> private_data) override;
  void reject(CmId id, std::span<const std::byte> private_data, const std::string& reason) override;
  void disconnect(CmId id) override;
  void destroy(CmId id) override;
  [[nodiscard]] std::optional<CmEvent> next_event() override;
  [[nodiscard]] int event_fd() const noexcept override { return -1; }

  [[nodiscard]] std::uint32_t index() const noexcept { return index_; }

 private:
  friend class FabricState;
  enum class Stage : std::uint8_t {
    kAwaitResolved,  // active
    kResolved,
    kRequested,
    kAwaitRequest,  // passive
    kPending,
    kAccepted,
    kEstablished,
    kEnded,
  };
  struct Connection : Link {
    CmId id{};
    CmId listener{};
    CmId peer{};
    Stage stage = Stage::kAwaitResolved;
    std::uint32_t peer_device = 0;
    std::uint32_t peer_group = 0;
    QpAddress peer_qp;
    bool known = false;  // to the user
  };
  using LaneKey = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t>;  // our group, peer device, peer group

  Result<Link*> link_for_qp(CmId id) override;
  Link* find_link(CmId id) noexcept override { return find(id); }
  [[nodiscard]] bool needs_files() const noexcept override { return false; }
  [[nodiscard]] bool has_connections() const noexcept override { return !connections_.empty() || !listeners_.empty(); }
  void on_new_engine(QpBundle& bundle) override;

  [[nodiscard]] Connection* find(CmId id) noexcept;
  void post(const Connection& connection, FabricMessage message);
  void take(FabricMessage message);
  void take_request(Connection& connection, FabricMessage& message);
  void take_end(Connection& connection, const FabricMessage& message);
  void emit(Connection& connection, CmEventKind kind, std::vector<std::byte> data = {}, std::string reason = {});
  [[nodiscard]] Result<std::shared_ptr<Lane>> lane_to(GroupState& group, FabricDevice& peer, std::uint32_t peer_group);
  void drop_unused_lanes();
  [[nodiscard]] std::shared_ptr<const PeerMemory> memory_for_peers() const;
  void drop_connection_of(const SendEngine& engine);
  void cut(QpBundle& bundle);
  void fall_silent();

  std::shared_ptr<FabricState> fabric_;
  std::uint32_t index_ = 0;
  bool dead_ = false;
  std::uint32_t qp_count_ = 0;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint64_t, std::string> listeners_;
  std::map<LaneKey, std::shared_ptr<Lane>> lanes_;
  std::deque<FabricMessage> wire_;  // scheduled: not delivered yet
  std::deque<FabricMessage> inbox_;
  std::deque<CmEvent> events_;
};

}  // namespace rodeo::dv::soft
