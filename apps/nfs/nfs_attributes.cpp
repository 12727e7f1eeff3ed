// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: poll cores.
// GETATTR, SETATTR, ACCESS, FSSTAT, FSINFO and PATHCONF (RFC 1813 §3.3.1, 2, 4, 18 to 20).

#include "apps/nfs/nfs_service.h"
#include "apps/nfs/permissions.h"

namespace rodeo::nfs {
namespace {

/// Directory lists at most so long in one Reply.
constexpr std::uint32_t kPreferredListBytes = 32'768;

/// A Request whose only argument is a handle, and its Getattr; nullptr when the Call was answered.
Request* open_getattr(Call& call, void* context, XdrReader& reader, HandleView handle) noexcept {
  if (!reader.ok() || reader.remaining() != 0) {
    call.reject(AcceptStat::kGarbageArgs);
    return nullptr;
  }
  NfsStat3 status{};
  const ServedExport* served = service_of(context).find(call, handle, status);
  if (served == nullptr) {
    reply_error(call, status);
    return nullptr;
  }
  Request& request = service_of(context).open(call, *served);
  request.make<Getattr>().object = handle;
  return &request;
}

void getattr_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  XdrWriter& results = call.results(4 + kFattr3Bytes);
  results.enumeration(request.status);
  if (request.status == NfsStat3::kOk) encode(results, request.operation<Getattr>().attributes);
  call.reply();
}

void getattr(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const HandleView handle = decode_handle(reader);
  if (Request* request = open_getattr(call, context, reader, handle)) {
    service_of(context).start(*request, &Store::getattr, &getattr_done);
  }
}

/// status and post_op_attr. The attributes, when there are any.
const Fattr3* begin_with_attributes(Request& request, XdrWriter& results) noexcept {
  results.enumeration(request.status);
  const bool there = request.status == NfsStat3::kOk;
  results.boolean(there);
  if (!there) return nullptr;
  const Fattr3& attributes = request.operation<Getattr>().attributes;
  encode(results, attributes);
  return &attributes;
}

void access_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  XdrWriter& results = call.results(4 + kPostOpAttrBytes + 4);
  if (const Fattr3* attributes = begin_with_attributes(request, results)) {
    std::uint32_t asked = request.asked;
    if (request.served->exported.options.read_only) asked &= ~(kAccessModify | kAccessExtend | kAccessDelete);
    results.u32(granted_access(*attributes, request.credentials, asked));
  }
  call.reply();
}

void access(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const HandleView handle = decode_handle(reader);
  const std::uint32_t asked = reader.u32();
  if (Request* request = open_getattr(call, context, reader, handle)) {
    request->asked = asked;
    service_of(context).start(*request, &Store::getattr, &access_done);
  }
}

void fsinfo_done(Call& call, void* context) noexcept {
  Request& request = request_of(call);
  XdrWriter& results = call.results(4 + kPostOpAttrBytes + 48);
  if (begin_with_attributes(request, results) != nullptr) {
    const StoreTraits& traits = request.served->traits;
    const std::uint32_t transfer = request.served->max_transfer;
    for (int read_then_write = 0; read_then_write < 2; ++read_then_write) {
      results.u32(transfer);  // rtmax, wtmax
      results.u32(transfer);  // rtpref, wtpref
      results.u32(4096);      // rtmult, wtmult
    }
    results.u32(std::min(kPreferredListBytes, static_cast<std::uint32_t>(service_of(context).bulk_bytes())));
    results.u64(traits.max_file_bytes);
    encode(results, traits.time_delta);
    results.u32(kFsfHomogeneous | (traits.hard_links ? kFsfLink : 0U) | (traits.symbolic_links ? kFsfSymlink : 0U) |
                (traits.can_set_times ? kFsfCansettime : 0U));
  }
  call.reply();
}

void fsinfo(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const HandleView handle = decode_handle(reader);
  if (Request* request = open_getattr(call, context, reader, handle)) {
    service_of(context).start(*request, &Store::getattr, &fsinfo_done);
  }
}

void pathconf_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  XdrWriter& results = call.results(4 + kPostOpAttrBytes + 24);
  if (begin_with_attributes(request, results) != nullptr) {
    results.u32(request.served->traits.link_max);
    results.u32(request.served->traits.name_max);
    results.boolean(true);   // no_trunc
    results.boolean(true);   // chown_restricted
    results.boolean(false);  // case_insensitive
    results.boolean(true);   // case_preserving
  }
  call.reply();
}

void pathconf(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const HandleView handle = decode_handle(reader);
  if (Request* request = open_getattr(call, context, reader, handle)) {
    service_of(context).start(*request, &Store::getattr, &pathconf_done);
  }
}

void setattr_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  XdrWriter& results = call.results(4 + kWccDataBytes);
  results.enumeration(request.status);
  encode(results, request.operation<Setattr>().wcc);
  call.reply();
}

void setattr(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView handle = decode_handle(reader);
  Sattr3 wanted;
  decode(reader, wanted);
  std::optional<NfsTime3> guard;
  decode(reader, guard);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsStat3 status{};
  const ServedExport* served = service_of(context).find(call, handle, status);
  if (served != nullptr && served->exported.options.read_only) status = NfsStat3::kRofs;
  if (status != NfsStat3::kOk) return reply_error(call, status);
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Setattr>();
  operation.object = handle;
  operation.new_attributes = wanted;
  operation.guard = guard;
  service_of(context).start(request, &Store::setattr, &setattr_done);
}

void fsstat_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Fsstat>();
  XdrWriter& results = call.results(4 + kPostOpAttrBytes + 52);
  results.enumeration(request.status);
  encode(results, operation.attributes);
  if (request.status == NfsStat3::kOk) {
    results.u64(operation.total_bytes);
    results.u64(operation.free_bytes);
    results.u64(operation.available_bytes);
    results.u64(operation.total_files);
    results.u64(operation.free_files);
    results.u64(operation.available_files);
    results.u32(0);  // invarsec: it may change at any time
  }
  call.reply();
}

void fsstat(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView handle = decode_handle(reader);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsStat3 status{};
  const ServedExport* served = service_of(context).find(call, handle, status);
  if (served == nullptr) return reply_error(call, status);
  Request& request = service_of(context).open(call, *served);
  request.make<Fsstat>().object = handle;
  service_of(context).start(request, &Store::fsstat, &fsstat_done);
}

}  // namespace

void append_attribute_procedures(std::vector<Procedure>& procedures, NfsService& service) {
  procedures.push_back(procedure_of(NfsProc3::kGetattr, "GETATTR", &getattr, service));
  procedures.push_back(once(procedure_of(NfsProc3::kSetattr, "SETATTR", &setattr, service)));
  procedures.push_back(procedure_of(NfsProc3::kAccess, "ACCESS", &access, service));
  procedures.push_back(procedure_of(NfsProc3::kFsstat, "FSSTAT", &fsstat, service));
  procedures.push_back(procedure_of(NfsProc3::kFsinfo, "FSINFO", &fsinfo, service));
  procedures.push_back(procedure_of(NfsProc3::kPathconf, "PATHCONF", &pathconf, service));
}

}  // namespace rodeo::nfs
