// SPDX-License-Identifier: Apache-2.0
// Hot path, save for set-up. Runs on: poll cores.
#include "apps/nfs/nfs_server.h"

#include <cstring>
#include <set>
#include <string>
#include <utility>

#include "apps/nfs/nfs_service.h"
#include "engine/xdr_pad.h"
#include "pools/byte_order.h"

namespace rodeo::nfs {
namespace {

constexpr std::size_t kExportIdBytes = 4;
/// What a READ or WRITE may be counted in (ENG-NFS-1).
constexpr std::size_t kTransferStep = 4096;
constexpr std::size_t kFirstRequests = 256;

/// Words of FALSE that a failure arm without attributes consists of, by procedure.
constexpr std::array<std::uint8_t, 22> kFailureWords{0, 0, 2, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 4, 3, 1, 1, 1, 1, 1, 2};

void null(Call& call, void* /*context*/) noexcept {
  if (call.arguments().remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  call.reply();
}

/// MOUNT's MNT of an export as a whole.
void mnt(Call& call, void* context) noexcept {
  constexpr std::size_t kMaxDirpath = 1024;
  XdrReader reader = call.arguments();
  const std::string_view path = reader.string(kMaxDirpath);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  XdrWriter& results = call.results(4 + 4 + kMaxHandleBytes + 8);
  auto status = NfsStat3::kNoent;
  for (const Export& exported : service_of(context).exports()) {
    if (exported.path != path) continue;
    status = admits(exported.options, call.peer()) ? NfsStat3::kOk : NfsStat3::kAcces;
    results.enumeration(status);
    if (status != NfsStat3::kOk) return call.reply();
    encode(results, wire_handle(export_id(path), exported.store->root()));
    results.u32(1);
    results.enumeration(AuthFlavor::kSys);
    return call.reply();
  }
  results.enumeration(status);
  call.reply();
}

/// MOUNT's EXPORT: those that everyone may mount.
void list_exports(Call& call, void* context) noexcept {
  if (call.arguments().remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  std::size_t most = 4;
  for (const Export& exported : service_of(context).exports()) most += 12 + xdr_padded(exported.path.size());
  if (!call.open_results(most, &list_exports)) return;
  XdrWriter& results = call.results();
  for (const Export& exported : service_of(context).exports()) {
    if (!exported.options.clients.empty()) continue;
    results.boolean(true);
    results.string(exported.path);
    results.boolean(false);  // no groups: everyone
  }
  results.boolean(false);
  call.reply();
}

void squash(Credentials& who, const ExportOptions& options) noexcept {
  const auto anonymous = [&](std::uint32_t& group) {
    if (group == 0) group = options.anonymous_gid;
  };
  if (options.squash == Squash::kAll) {
    who = {};
    who.uid = options.anonymous_uid;
    who.gid = options.anonymous_gid;
  } else if (options.squash == Squash::kRoot) {
    if (who.uid == 0) who.uid = options.anonymous_uid;
    anonymous(who.gid);
    for (std::uint32_t i = 0; i < who.gid_count; ++i) anonymous(who.gids[i]);
  }
}

Credentials decode_credentials(const OpaqueAuth& credential, const ExportOptions& options) noexcept {
  Credentials who;
  who.uid = options.anonymous_uid;
  who.gid = options.anonymous_gid;
  AuthSys sys;
  if (credential.flavor != AuthFlavor::kSys || !decode_auth_sys(credential.body, sys)) return who;
  who.uid = sys.uid;
  who.gid = sys.gid;
  who.gid_count = sys.gid_count;
  who.gids = sys.gids;
  squash(who, options);
  return who;
}

/// Calls in a row mostly have the same credential: the last one that this core decoded, and what it came to.
struct KnownCredentials {
  std::uint64_t service = 0;
  const ServedExport* served = nullptr;
  AuthFlavor flavor = AuthFlavor::kNone;
  std::size_t size = 0;
  std::array<std::byte, kMaxAuthBytes> body;
  Credentials who;
};
thread_local KnownCredentials known_credentials;

const Credentials& credentials_of(const OpaqueAuth& credential, const ServedExport& served,
                                  std::uint64_t service) noexcept {
  KnownCredentials& known = known_credentials;
  const std::size_t size = credential.body.size();
  if (known.service == service && known.served == &served && known.flavor == credential.flavor && known.size == size &&
      (size == 0 || std::memcmp(known.body.data(), credential.body.data(), size) == 0)) [[likely]] {
    return known.who;
  }
  known.who = decode_credentials(credential, served.exported.options);
  known.service = service;
  known.served = &served;
  known.flavor = credential.flavor;
  known.size = size;
  if (size != 0) std::memcpy(known.body.data(), credential.body.data(), size);
  return known.who;
}

/// Tells services apart that came and went at the same place.
std::atomic<std::uint64_t> services{0};

}  // namespace

NfsService::NfsService(std::vector<Export> exports, std::size_t bulk_bytes)
    : exports_(std::move(exports)), bulk_bytes_(bulk_bytes), number_(++services) {
  for (const Export& exported : exports_) {
    ServedExport served{exported, export_id(exported.path), exported.store->traits(), 0};
    const std::size_t most =
        served.traits.own_memory ? kMaxTransferBytes : std::min<std::size_t>(kMaxTransferBytes, bulk_bytes);
    served.max_transfer = static_cast<std::uint32_t>(most / kTransferStep * kTransferStep);
    served_.push_back(std::move(served));
  }
  for (std::size_t i = 0; i < kFirstRequests; ++i) {
    requests_.push_back(std::make_unique<Request>(*this));
    free_requests_.push_back(requests_.back().get());
  }
}

const ServedExport* NfsService::find(const Call& call, HandleView& handle, NfsStat3& status) const noexcept {
  status = NfsStat3::kBadhandle;
  if (handle.size() < kExportIdBytes) return nullptr;
  const std::uint32_t id = load_be32(handle.data());
  for (const ServedExport& served : served_) {
    if (served.id != id) continue;
    if (!admits(served.exported.options, call.peer())) [[unlikely]] {
      status = NfsStat3::kAcces;
      return nullptr;
    }
    handle = handle.subspan(kExportIdBytes);
    status = NfsStat3::kOk;
    return &served;
  }
  status = NfsStat3::kStale;  // of an export that is not there any more
  return nullptr;
}

Request& NfsService::open(Call& call, const ServedExport& served) noexcept {
  Request* request = nullptr;
  {
    const std::scoped_lock lock(lock_);
    if (free_requests_.empty()) [[unlikely]] {
      requests_.push_back(std::make_unique<Request>(*this));
      free_requests_.reserve(requests_.size());
      request = requests_.back().get();
    } else {
      request = free_requests_.back();
      free_requests_.pop_back();
    }
  }
  request->call = &call;
  request->served = &served;
  request->credentials = credentials_of(call.header().cred, served, number_);
  call.state()[0] = reinterpret_cast<std::uintptr_t>(request);
  call.at_end(&over, request);
  return *request;
}

void NfsService::over(void* context) noexcept {
  Request& request = *static_cast<Request*>(context);
  Store& store = *request.served->exported.store;
  Read* read = std::exchange(request.pins_read, nullptr);
  Write* write = std::exchange(request.pins_write, nullptr);
  if (std::exchange(request.pinned, false)) {
    if (read != nullptr) store.end(*read);
    if (write != nullptr) store.end(*write);
  }
  NfsService& service = request.service;
  const std::scoped_lock lock(service.lock_);
  service.free_requests_.push_back(&request);
}

void NfsService::defer(Request& request) noexcept {
  request.deferred = request.call->defer();
  // Both ends exchange: whichever comes second finds what the other has put, and goes on with the Call.
  if (request.phase.exchange(Request::Phase::kDeferred, std::memory_order_acq_rel) == Request::Phase::kDone) {
    request.deferred.resume(request.finish);
  }
}

void Request::completed(Operation& operation, NfsStat3 status) noexcept {
  Request& request = *static_cast<Request*>(operation.context());
  request.status = status;
  request.pinned = request.pinned || status == NfsStat3::kOk;
  if (request.phase.exchange(Phase::kDone, std::memory_order_acq_rel) == Phase::kDeferred) {
    request.deferred.resume(request.finish);
  }
}

void reply_error(Call& call, NfsStat3 status) noexcept {
  const std::size_t words = kFailureWords[call.procedure()];
  XdrWriter& results = call.results(4 + 4 * words);
  results.enumeration(status);
  for (std::size_t i = 0; i < words; ++i) results.boolean(false);
  call.reply();
}

NfsStat3 check_name(std::string_view name, const ServedExport& served) noexcept {
  if (name.empty() || name.find('/') != std::string_view::npos || name.find('\0') != std::string_view::npos) {
    return NfsStat3::kInval;
  }
  return name.size() > served.traits.name_max ? NfsStat3::kNametoolong : NfsStat3::kOk;
}

FileHandle wire_handle(std::uint32_t export_id, const FileHandle& handle) noexcept {
  FileHandle out;
  out.size = kExportIdBytes + std::min<std::uint32_t>(handle.size, kMaxStoreHandleBytes);
  store_be32(out.octets.data(), export_id);
  std::memcpy(out.octets.data() + kExportIdBytes, handle.octets.data(), out.size - kExportIdBytes);
  return out;
}

Result<std::unique_ptr<NfsServer>> NfsServer::add_to(Engine& engine, std::vector<Export> exports,
                                                     std::size_t bulk_bytes) {
  std::set<std::uint32_t> ids;
  for (const Export& exported : exports) {
    if (!exported.path.starts_with('/')) {
      return fail("export", "\"" + exported.path + "\" does not begin with a slash", "write it as /" + exported.path);
    }
    if (!ids.insert(export_id(exported.path)).second) {
      return fail("export", "\"" + exported.path + "\" is there already, or cannot be told from another by its handles",
                  "choose another path");
    }
  }
  auto service = std::make_unique<NfsService>(std::move(exports), bulk_bytes);
  Program program{.number = kNfsProgram, .version = kNfsVersion, .name = "nfs", .procedures = {}};
  program.procedures.push_back(procedure_of(NfsProc3::kNull, "NULL", &null, *service));
  append_attribute_procedures(program.procedures, *service);
  append_name_procedures(program.procedures, *service);
  append_directory_procedures(program.procedures, *service);
  append_data_procedures(program.procedures, *service);
  if (auto added = engine.add_program(std::move(program)); !added) return tl::unexpected(added.error());
  Program mount{.number = kMountProgram, .version = kMountVersion, .name = "mount", .procedures = {}};
  mount.procedures.push_back(procedure_of(NfsProc3::kNull, "NULL", &null, *service));
  mount.procedures.push_back(procedure_of(NfsProc3{1}, "MNT", &mnt, *service));
  mount.procedures.push_back(procedure_of(NfsProc3{5}, "EXPORT", &list_exports, *service));
  if (auto added = engine.add_program(std::move(mount)); !added) return tl::unexpected(added.error());
  return std::unique_ptr<NfsServer>(new NfsServer(std::move(service)));
}

NfsServer::NfsServer(std::unique_ptr<NfsService> service) : service_(std::move(service)) {}
NfsServer::~NfsServer() = default;

const std::vector<Export>& NfsServer::exports() const noexcept { return service_->exports(); }

FileHandle NfsServer::handle_on_wire(const Export& exported, const FileHandle& handle) noexcept {
  return wire_handle(export_id(exported.path), handle);
}

}  // namespace rodeo::nfs
