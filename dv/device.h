// SPDX-License-Identifier: Apache-2.0
#pragma once

// The slow path of a device: open, register, connect, close. Its connection events are those of rdma_cm, in the same
// order, so that a device over rdma_cm and the software HCA look alike:
//
//   active side:  connect() → kRouteResolved → make_qp(), post receives, finish_connect() → kEstablished | kRejected
//   passive side: listen() → kConnectRequest → make_qp(), post receives, accept() → kEstablished
//   both:         kDisconnected (the peer left or died) → move_to_error(), drain the QP, destroy()
//
// Runs on: the control thread, one at a time, unless a function says otherwise. Nothing here is called per RPC.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dv/address.h"
#include "dv/peer.h"
#include "dv/provider.h"
#include "pools/result.h"

namespace rodeo::dv {

struct Capabilities {
  std::string name;              // "software HCA", "mlx5_0"
  std::string driver;            // what drives its queues, and why not direct verbs where something else does
  std::uint32_t max_inline = 0;  // bytes of one inline Send
  std::uint32_t max_sges = 0;
  std::uint32_t max_queue_depth = 0;      // receives of one QP
  std::uint32_t max_shared_receives = 0;  // of a shared receive queue; 0: there is none
  bool memory_windows = false;            // type 2B
  std::uint32_t max_windows = 0;          // of one connection
  bool remote_invalidate = false;
  bool one_host = false;  // peers are processes of this host
  int numa_node = -1;     // -1: unknown or none
};

enum class Access : std::uint8_t { kLocal = 0, kRemoteRead = 1, kRemoteWrite = 2, kRemoteReadWrite = 3 };

/// Memory the device may touch. Segments name it as (rkey, length, Offset = address of the first byte).
struct MemoryRegion {
  std::byte* base = nullptr;
  std::size_t length = 0;
  std::uint32_t lkey = 0;
  std::uint32_t rkey = 0;
};

/// Queue sizes of one QP: work requests for the send side, posted receives for the receive side.
struct QpSizes {
  std::uint32_t send_depth = 128;
  std::uint32_t receive_depth = 64;  // 0: the receives come from the shared receive queue of the group (Qp::srq)
};

/// Names a connection or a listener of one device. Never reused within a process.
enum class CmId : std::uint64_t {};

enum class CmEventKind : std::uint8_t {
  kConnectRequest,
  kRouteResolved,
  kEstablished,
  kRejected,
  kUnreachable,
  kDisconnected,
};
[[nodiscard]] std::string_view to_string(CmEventKind kind) noexcept;

struct CmEvent {
  CmEventKind kind = CmEventKind::kDisconnected;
  CmId id{};
  CmId listener{};                      // kConnectRequest only
  std::uint32_t group = 0;              // kConnectRequest: index of the poll group that is to own the connection
  Peer peer;                            // kConnectRequest: who asks
  std::vector<std::byte> private_data;  // kConnectRequest, kEstablished (active side), kRejected
  std::string reason;                   // kRejected, kUnreachable, kDisconnected: what, and perhaps "; what helps"
};

/// What of a device is in use. A connection that is gone leaves nothing of it behind.
struct Usage {
  std::uint32_t queue_pairs = 0;  // made and not destroyed
  std::uint32_t memory_windows = 0;
  std::uint32_t memory_regions = 0;
};

template <Provider P>
class Device {
 public:
  using Qp = typename P::Qp;
  using PollGroup = typename P::PollGroup;

  virtual ~Device() = default;

  [[nodiscard]] virtual const Capabilities& capabilities() const noexcept = 0;
  [[nodiscard]] virtual Usage usage() const noexcept = 0;

  /// Registers `range`, which `fd` backs from `fd_offset` on. Register everything before the first connection.
  [[nodiscard]] virtual Result<MemoryRegion> register_memory(std::span<std::byte> range, int fd, std::size_t fd_offset,
                                                             Access access) = 0;

  /// Makes the CQs of one core. Groups are numbered from 0 in the order they are made; passive connections are spread
  /// over them. The device owns the group.
  [[nodiscard]] virtual Result<PollGroup*> make_poll_group() = 0;

  [[nodiscard]] virtual Result<CmId> listen(const Address& address) = 0;
  [[nodiscard]] virtual Result<CmId> connect(const Address& address, PollGroup& group) = 0;

  /// After kRouteResolved or kConnectRequest. The QP takes receives at once; it sends after kEstablished.
  /// The device owns the QP until destroy().
  [[nodiscard]] virtual Result<Qp*> make_qp(CmId id, const QpSizes& sizes) = 0;

  /// `private_data`: at most 56 bytes in a request, 196 in a reply or rejection (InfiniBand's limits).
  [[nodiscard]] virtual Result<void> finish_connect(CmId id, std::span<const std::byte> private_data) = 0;
  [[nodiscard]] virtual Result<void> accept(CmId id, std::span<const std::byte> private_data) = 0;
  virtual void reject(CmId id, std::span<const std::byte> private_data, const std::string& reason) = 0;

  /// A free type-2 memory window for the QP of `id` (after make_qp), to be bound by Qp::post_bind. Returns its key,
  /// whose low 8 bits the next bind may change. destroy() frees the windows that are left.
  [[nodiscard]] virtual Result<std::uint32_t> allocate_window(CmId id) = 0;
  /// `key`: any key that the window has had. The window must be unbound (invalidated, or its QP in error).
  virtual void free_window(std::uint32_t key) = 0;

  /// Tells the peer that we leave (DREQ). The QP is still to be moved to error, drained and destroyed.
  virtual void disconnect(CmId id) = 0;

  /// QP → ERR: everything posted comes back as kFlushed completions. Runs on: the core that polls the QP's group.
  virtual void move_to_error(Qp& qp) noexcept = 0;

  /// Frees the QP (which must be drained and no longer polled for) and forgets the id. Also ends a listener.
  virtual void destroy(CmId id) = 0;

  /// The next connection event, if there is one. Never blocks.
  [[nodiscard]] virtual std::optional<CmEvent> next_event() = 0;

  /// Readable (poll, epoll) when next_event may have something; -1 when the caller must just ask.
  [[nodiscard]] virtual int event_fd() const noexcept = 0;
};

}  // namespace rodeo::dv
