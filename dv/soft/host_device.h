// SPDX-License-Identifier: Apache-2.0
#pragma once

// The software HCA between the processes of one host: "soft:NAME". Connections are made over a Unix socket; from then
// on the two processes work on shared memory, and the socket only tells when the other one leaves or dies.
//
// What is shared with a peer process (its registered memory, the lanes) lives as long as any connection to it. The
// passive end keeps its socket until the active end has closed its own, so the active end may build on whatever the
// passive end has once confirmed.
//
// Runs on: control thread.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "dv/soft/cm_message.h"
#include "dv/soft/hca.h"

namespace rodeo::dv::soft {

class HostDevice final : public Hca {
 public:
  [[nodiscard]] static Result<std::unique_ptr<HostDevice>> open(const SoftOptions& options);
  ~HostDevice() override;

  [[nodiscard]] Result<CmId> listen(const Address& address) override;
  [[nodiscard]] Result<CmId> connect(const Address& address, mlx5::PollGroup& group) override;
  [[nodiscard]] Result<void> finish_connect(CmId id, std::span<const std::byte> private_data) override;
  [[nodiscard]] Result<void> accept(CmId id, std::span<const std::byte> private_data) override;
  void reject(CmId id, std::span<const std::byte> private_data, const std::string& reason) override;
  void disconnect(CmId id) override;
  void destroy(CmId id) override;
  [[nodiscard]] std::optional<CmEvent> next_event() override;
  [[nodiscard]] int event_fd() const noexcept override { return epoll_.get(); }

  /// Connections closed because the other end broke the protocol.
  [[nodiscard]] std::uint64_t refused_peers() const noexcept { return refused_peers_; }

 private:
  /// Who made the lane, our group, its group. Each end reuses the lanes that it made itself.
  using LaneKey = std::tuple<bool, std::uint32_t, std::uint32_t>;
  /// A process at the other end, as long as a connection to it exists.
  struct PeerProcess {
    ProcessId id;
    std::shared_ptr<PeerMemory> memory;
    bool confirmed = false;  // it has our regions
    std::map<LaneKey, std::shared_ptr<Lane>> lanes;
    std::vector<std::shared_ptr<Lane>> orphans;  // replaced lanes that still have QPs
  };
  enum class Stage : std::uint8_t {
    kConnecting,        // active: the listener's backlog is full
    kAwaitServerHello,  // active
    kResolved,
    kRequested,
    kAwaitClientHello,  // passive
    kAwaitRequest,
    kPending,
    kAccepted,
    kEstablished,
    kLeaving,    // we sent kLeave
    kEnded,      // reported to the user, who is to destroy it
    kLingering,  // passive: destroyed here, until the peer closes its end
  };
  struct Connection : Link {
    CmId id{};
    CmId listener{};
    bool active = false;
    Stage stage = Stage::kConnecting;
    File socket;
    std::string path;
    std::string name;
    std::shared_ptr<PeerProcess> process;
    std::uint32_t peer_group = 0;
    QpAddress peer_qp;
    bool wants_segment = false;  // the peer has not mapped our segment yet
  };
  struct Listener {
    File socket;
    std::string path;
    std::uint64_t inode = 0;
    std::uint64_t device = 0;
  };

  explicit HostDevice(const SoftOptions& options) : Hca(options) {}

  Result<Link*> link_for_qp(CmId id) override;
  Link* find_link(CmId id) noexcept override { return find(id); }
  [[nodiscard]] bool needs_files() const noexcept override { return true; }
  [[nodiscard]] bool has_connections() const noexcept override { return !connections_.empty() || !listeners_.empty(); }

  [[nodiscard]] Connection* find(CmId id) noexcept;
  [[nodiscard]] bool watch(int fd, CmId id) noexcept;
  void accept_peers(CmId listener, int socket);
  void try_connect(Connection& connection);
  void retry_connects();
  void serve(CmId id);
  /// False: the message breaks the protocol.
  [[nodiscard]] bool on_message(Connection& connection, CmReceived& received);
  [[nodiscard]] bool on_client_hello(Connection& connection, const CmReceived& received);
  [[nodiscard]] bool on_server_hello(Connection& connection, CmReceived& received);
  [[nodiscard]] bool on_request(Connection& connection, CmReceived& received);
  [[nodiscard]] bool on_reply(Connection& connection, CmReceived& received);
  void on_peer_left(Connection& connection);
  void on_closed(Connection& connection, const std::string& reason);
  void emit(Connection& connection, CmEventKind kind, std::vector<std::byte> data = {}, std::string reason = {});
  void erase(CmId id);
  void forget_events(CmId id);

  [[nodiscard]] std::shared_ptr<PeerProcess> process_of(const ProcessId& id);
  void release_process(std::shared_ptr<PeerProcess> process);
  void sweep_orphans(PeerProcess& process);
  /// Maps the regions that came with a message, unless we have them. False: they make no sense.
  [[nodiscard]] bool take_regions(PeerProcess& process, const CmReceived& received);
  void put_regions(CmMessage& message, std::vector<int>& files) const;
  [[nodiscard]] bool same_user(int socket) const noexcept;

  File epoll_;
  File timer_;
  std::unordered_map<std::uint64_t, std::unique_ptr<Connection>> connections_;
  std::unordered_map<std::uint64_t, Listener> listeners_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<PeerProcess>> processes_;
  std::deque<CmId> retries_;
  std::deque<CmEvent> events_;
  std::uint64_t refused_peers_ = 0;
};

/// Opens the software HCA of this host.
[[nodiscard]] Result<std::unique_ptr<mlx5::Device>> open(const SoftOptions& options);

}  // namespace rodeo::dv::soft
