// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: poll cores.
// What the procedures of the NFS server share: a Call's way to its store and back.
//
//   handler     decodes the arguments, finds the export, opens a Request for the Call
//   start()     gives the operation to the store
//   finish      (a stage) encodes the results: at once where the store completed at once, else on the Call's poll core
//               when it completes, from whatever thread
//   over        (the Call's end) lets the store have its memory back, and the Request the pool
//
// A Request lives as long as its Call: what the store's operation names, and the pieces that RDMA moves, lie in it.

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <vector>

#include "apps/nfs/entry_writer.h"
#include "apps/nfs/exports.h"
#include "apps/nfs/nfs3.h"
#include "apps/nfs/spin_lock.h"
#include "apps/nfs/store.h"
#include "engine/call.h"

namespace rodeo::nfs {

class NfsService;

struct ServedExport {
  Export exported;
  std::uint32_t id = 0;
  StoreTraits traits;
  std::uint32_t max_transfer = 0;  // octets of a READ or WRITE
};

/// One Call being served.
struct Request {
  enum class Phase : std::uint8_t { kRunning, kDone, kDeferred };

  explicit Request(NfsService& of) noexcept : service(of) {}

  NfsService& service;
  Call* call = nullptr;
  const ServedExport* served = nullptr;
  Credentials credentials;
  NfsStat3 status = NfsStat3::kOk;
  Handler finish = nullptr;
  DeferredCall deferred;
  std::atomic<Phase> phase{Phase::kRunning};  // of the store's operation
  Read* pins_read = nullptr;  // of a store with memory of its own: whose end it is to be told, once it succeeded
  Write* pins_write = nullptr;
  bool pinned = false;      // it did, by read() or prepare_write()
  BulkArgument data;        // WRITE's
  EntryWriter entries;      // READDIR's
  std::uint32_t asked = 0;  // ACCESS: the bits

  /// The operation that the Request holds from now on.
  template <class Op>
  Op& make() noexcept {
    static_assert(sizeof(Op) <= sizeof(storage) && std::is_trivially_destructible_v<Op>);
    Op* operation = new (storage.data()) Op(&completed, this);
    operation->credentials = credentials;
    return *operation;
  }
  template <class Op>
  [[nodiscard]] Op& operation() noexcept {
    return *std::launder(reinterpret_cast<Op*>(storage.data()));
  }

  static void completed(Operation& operation, NfsStat3 status) noexcept;

  alignas(16) std::array<std::byte, std::max(sizeof(Read), sizeof(Write)) + 64> storage;
};

class NfsService {
 public:
  NfsService(std::vector<Export> exports, std::size_t bulk_bytes);
  NfsService(const NfsService&) = delete;
  NfsService& operator=(const NfsService&) = delete;

  [[nodiscard]] const std::vector<Export>& exports() const noexcept { return exports_; }
  [[nodiscard]] std::size_t bulk_bytes() const noexcept { return bulk_bytes_; }

  /// The export that a handle of the Call's belongs to; the handle becomes the store's. nullptr, and why: also where
  /// whoever sent the Call is no client of that export, however the handle was come by.
  [[nodiscard]] const ServedExport* find(const Call& call, HandleView& handle, NfsStat3& status) const noexcept;

  /// A Request for the Call, which has its context from then on, with the credentials of its header.
  [[nodiscard]] Request& open(Call& call, const ServedExport& served) noexcept;

  /// Gives the Request's operation to the store; `finish` is run when that completes. Last in a stage.
  template <class Op>
  void start(Request& request, void (Store::*method)(Op&) noexcept, Handler finish) noexcept {
    request.finish = finish;
    request.phase.store(Request::Phase::kRunning, std::memory_order_relaxed);
    (request.served->exported.store->*method)(request.operation<Op>());
    // acquire: pairs with the exchange in completed()
    if (request.phase.load(std::memory_order_acquire) == Request::Phase::kDone) [[likely]] {
      return finish(*request.call, this);
    }
    defer(request);
  }

 private:
  static void over(void* request) noexcept;
  void defer(Request& request) noexcept;

  std::vector<Export> exports_;
  std::vector<ServedExport> served_;
  std::size_t bulk_bytes_;
  std::uint64_t number_;  // of all services of the process
  SpinLock lock_;         // of the two below
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Request*> free_requests_;
};

[[nodiscard]] inline NfsService& service_of(void* context) noexcept { return *static_cast<NfsService*>(context); }
[[nodiscard]] inline Request& request_of(Call& call) noexcept { return *reinterpret_cast<Request*>(call.state()[0]); }

/// Answers with an error whose failure arm has no attributes.
void reply_error(Call& call, NfsStat3 status) noexcept;

/// Whether a name can be one of this export; NFS3_OK, or what is wrong with it. "." and ".." are in order.
[[nodiscard]] NfsStat3 check_name(std::string_view name, const ServedExport& served) noexcept;
[[nodiscard]] inline bool is_dot_or_dot_dot(std::string_view name) noexcept { return name == "." || name == ".."; }

/// A store's handle as it goes on the wire.
[[nodiscard]] FileHandle wire_handle(std::uint32_t export_id, const FileHandle& handle) noexcept;

/// The most that a post_op_attr, wcc_data or post_op_fh3 takes.
inline constexpr std::size_t kPostOpAttrBytes = 4 + kFattr3Bytes;
inline constexpr std::size_t kWccDataBytes = 4 + 24 + kPostOpAttrBytes;
inline constexpr std::size_t kPostOpHandleBytes = 4 + 4 + kMaxHandleBytes;

// The procedures, by what they are about.
void append_attribute_procedures(std::vector<Procedure>& procedures, NfsService& service);
void append_name_procedures(std::vector<Procedure>& procedures, NfsService& service);
void append_directory_procedures(std::vector<Procedure>& procedures, NfsService& service);
void append_data_procedures(std::vector<Procedure>& procedures, NfsService& service);

/// `read_chunks`, `write_chunks`: DDP-eligible arguments and results (RFC 8267 §4).
[[nodiscard]] inline Procedure procedure_of(NfsProc3 number, const char* name, Handler handler, NfsService& service,
                                            std::uint32_t read_chunks = 0, std::uint32_t write_chunks = 0) {
  Procedure procedure;
  procedure.number = static_cast<std::uint32_t>(number);
  procedure.name = name;
  procedure.handler = handler;
  procedure.context = &service;
  procedure.max_read_chunks = read_chunks;
  procedure.max_write_chunks = write_chunks;
  return procedure;
}
/// One that must not be executed twice (RFC 1813 §4.3): a client that lost its connection sends the Call again.
[[nodiscard]] inline Procedure once(Procedure procedure) {
  procedure.remember_replies = true;
  return procedure;
}

}  // namespace rodeo::nfs
