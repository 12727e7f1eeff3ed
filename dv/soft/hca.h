// SPDX-License-Identifier: Apache-2.0
#pragma once

// The software HCA without its connection management: regions, poll groups, lanes, queue pairs, windows. HostDevice
// (between processes, over a socket) and FabricDevice (inside one process) add how two ends meet.
// Runs on: control thread, but for what PollGroup and Qp say.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "dv/mlx5/provider.h"
#include "dv/soft/lane.h"

namespace rodeo::dv::soft {

/// Most private data that a request, and that a reply or a rejection, carries (dv/device.h).
inline constexpr std::size_t kMaxRequestData = 56;
inline constexpr std::size_t kMaxReplyData = 196;

struct SoftOptions {
  std::uint32_t rnr_retry = 7;  // how often a Send that finds no receive is tried again; 7: for ever
  std::uint32_t rnr_interval_us = 10;
  std::uint32_t qp_numbers = 1U << 20;  // QPs that the device can have at once; fewer for tests
  bool keep_lanes = false;              // on a fabric: shared memory of connections that are gone serves the next ones
};

/// What an end tells the other about its QP.
struct QpAddress {
  std::uint32_t index = 0;  // in the lane's segment
  std::uint32_t qpn = 0;
  std::uint32_t receive_wqes = 0;  // 0: the receives come from the lane's shared queue
};
/// Whether a peer's words make sense.
[[nodiscard]] bool plausible(const QpAddress& address) noexcept;

class Hca : public mlx5::Device {
 public:
  explicit Hca(const SoftOptions& options);
  ~Hca() override;

  [[nodiscard]] const Capabilities& capabilities() const noexcept override { return capabilities_; }
  [[nodiscard]] Usage usage() const noexcept override;
  [[nodiscard]] Result<MemoryRegion> register_memory(std::span<std::byte> range, int fd, std::size_t fd_offset,
                                                     Access access) override;
  [[nodiscard]] Result<mlx5::PollGroup*> make_poll_group() override;
  [[nodiscard]] Result<mlx5::Qp*> make_qp(CmId id, const QpSizes& sizes) override;
  [[nodiscard]] Result<std::uint32_t> allocate_window(CmId id) override;
  void free_window(std::uint32_t key) override;
  void move_to_error(mlx5::Qp& qp) noexcept override;

 protected:
  /// What every connection has, however its ends met.
  struct Link {
    Link() = default;
    Link(const Link&) = delete;
    Link& operator=(const Link&) = delete;
    virtual ~Link();
    /// Counts the connection with the group that is to own it.
    void assign(GroupState& owner) noexcept;
    GroupState* group = nullptr;
    std::shared_ptr<Lane> lane;
    std::unique_ptr<QpBundle> bundle;
  };
  struct RegisteredFile {
    File fd;
    std::size_t offset = 0;
    std::uint32_t index = 0;  // in own_regions_
  };

  /// The connection `id` if it may have a QP now, with its lane set; or why not.
  [[nodiscard]] virtual Result<Link*> link_for_qp(CmId id) = 0;
  [[nodiscard]] virtual Link* find_link(CmId id) noexcept = 0;
  /// Whether regions need a file that peers can map.
  [[nodiscard]] virtual bool needs_files() const noexcept = 0;
  [[nodiscard]] virtual bool has_connections() const noexcept = 0;
  /// Observers see each engine before it is used.
  virtual void on_new_engine(QpBundle& bundle) { static_cast<void>(bundle); }

  [[nodiscard]] Result<std::shared_ptr<Lane>> make_lane(GroupState& group, std::uint64_t id, bool shared);
  /// Stops polling the lane; it goes when its core has forgotten it.
  void drop_lane(const std::shared_ptr<Lane>& lane);
  /// Sends may begin. The lane's outlet must be open.
  static void connect_engine(QpBundle& bundle, const QpAddress& peer);
  [[nodiscard]] static QpAddress address_of(const QpBundle& bundle) noexcept;
  /// Nothing more will come from the peer's end; its core may still be told so.
  static void mark_peer_gone(QpBundle& bundle) noexcept;
  void retire(std::unique_ptr<QpBundle> bundle);
  /// Frees what the poll cores have let go of.
  void collect();
  [[nodiscard]] GroupState* least_loaded_group() noexcept;
  [[nodiscard]] GroupState* state_of(const mlx5::PollGroup& group) noexcept;
  /// The key of a connection or a listener in a device's tables.
  [[nodiscard]] static std::uint64_t number(CmId id) noexcept { return static_cast<std::uint64_t>(id); }
  [[nodiscard]] static tl::unexpected<Error> unknown_id(const char* where);
  [[nodiscard]] static Result<void> check_private_data(const char* where, std::span<const std::byte> data,
                                                       std::size_t limit);
  [[nodiscard]] CmId next_id() noexcept { return CmId{++last_id_}; }

  const SoftOptions options_;
  const ProcessId process_;
  Capabilities capabilities_;
  RegionTable own_regions_;
  std::vector<RegisteredFile> files_;

 private:
  IndexPool qpns_;
  IndexPool windows_;
  std::unordered_map<std::uint32_t, QpBundle*> window_owners_;
  std::uint64_t last_id_ = 0;
  std::uint32_t queue_pairs_ = 0;

 protected:
  // Last, as it is the first to go: what it keeps gives its numbers back to the pools above.
  std::vector<std::unique_ptr<GroupState>> groups_;
};

/// Random bytes that a peer cannot guess.
[[nodiscard]] std::uint64_t random_word();

}  // namespace rodeo::dv::soft
