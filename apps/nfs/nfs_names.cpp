// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: poll cores.
// LOOKUP, CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME and LINK (RFC 1813 §3.3.3, 8 to 15).

#include <cstring>

#include "apps/nfs/nfs_service.h"

namespace rodeo::nfs {
namespace {

/// The export of a directory that a name is to be found in, or changed in; nullptr when the Call was answered.
const ServedExport* find_named(Call& call, void* context, DirOpArgs3& what, bool changes) noexcept {
  NfsStat3 status{};
  const ServedExport* served = service_of(context).find(call, what.dir, status);
  if (served != nullptr) status = check_name(what.name, *served);
  if (status == NfsStat3::kOk && changes && served->exported.options.read_only) status = NfsStat3::kRofs;
  if (status == NfsStat3::kOk) return served;
  reply_error(call, status);
  return nullptr;
}

void encode_wire_handle(XdrWriter& results, const Request& request, const FileHandle& handle) noexcept {
  encode(results, wire_handle(request.served->id, handle));
}

void lookup_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Lookup>();
  XdrWriter& results = call.results(4 + 4 + kMaxHandleBytes + 2 * kPostOpAttrBytes);
  results.enumeration(request.status);
  if (request.status == NfsStat3::kOk) {
    encode_wire_handle(results, request, operation.object);
    encode(results, operation.attributes);
  }
  encode(results, operation.directory_attributes);
  call.reply();
}

void lookup(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  DirOpArgs3 what;
  decode(reader, what);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  const ServedExport* served = find_named(call, context, what, false);
  if (served == nullptr) return;
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Lookup>();
  operation.directory = what.dir;
  operation.name = what.name;
  service_of(context).start(request, &Store::lookup, &lookup_done);
}

void create_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Create>();
  XdrWriter& results = call.results(4 + kPostOpHandleBytes + kPostOpAttrBytes + kWccDataBytes);
  results.enumeration(request.status);
  if (request.status == NfsStat3::kOk) {
    results.boolean(operation.object.has_value());
    if (operation.object) encode_wire_handle(results, request, *operation.object);
    encode(results, operation.attributes);
  }
  encode(results, operation.directory_wcc);
  call.reply();
}

/// What CREATE, MKDIR, SYMLINK and MKNOD decode to.
struct CreateArgs {
  DirOpArgs3 where;
  Ftype3 type = Ftype3::kReg;
  CreateMode3 mode = CreateMode3::kGuarded;
  Sattr3 attributes;
  Verf3 verifier{};
  Specdata3 rdev;
  std::string_view target;
};

void start_create(Call& call, void* context, CreateArgs& args) noexcept {
  const ServedExport* served = find_named(call, context, args.where, true);
  if (served == nullptr) return;
  if (is_dot_or_dot_dot(args.where.name)) return reply_error(call, NfsStat3::kExist);
  if (args.type == Ftype3::kLnk && !served->traits.symbolic_links) return reply_error(call, NfsStat3::kNotsupp);
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Create>();
  operation.directory = args.where.dir;
  operation.name = args.where.name;
  operation.type = args.type;
  operation.mode = args.mode;
  operation.new_attributes = args.attributes;
  operation.verifier = args.verifier;
  operation.rdev = args.rdev;
  operation.target = args.target;
  service_of(context).start(request, &Store::create, &create_done);
}

void create(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  CreateArgs args;
  decode(reader, args.where);
  args.mode = reader.enumeration(CreateMode3::kExclusive);
  if (args.mode == CreateMode3::kExclusive) {
    decode(reader, args.verifier);
  } else {
    decode(reader, args.attributes);
  }
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  start_create(call, context, args);
}

void mkdir(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  CreateArgs args;
  args.type = Ftype3::kDir;
  decode(reader, args.where);
  decode(reader, args.attributes);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  start_create(call, context, args);
}

void mknod(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  CreateArgs args;
  decode(reader, args.where);
  args.type = reader.enumeration(Ftype3::kFifo);
  const bool device = args.type == Ftype3::kChr || args.type == Ftype3::kBlk;
  if (device || args.type == Ftype3::kSock || args.type == Ftype3::kFifo) decode(reader, args.attributes);
  if (device) decode(reader, args.rdev);
  if (!reader.ok() || reader.remaining() != 0 || args.type < Ftype3::kReg) {
    return call.reject(AcceptStat::kGarbageArgs);
  }
  if (!device && args.type != Ftype3::kSock && args.type != Ftype3::kFifo) {
    return reply_error(call, NfsStat3::kBadtype);
  }
  start_create(call, context, args);
}

/// The arguments of SYMLINK as far as the path, and its text. The path's octets, in one piece, come later when they are
/// in a Read chunk.
BulkArgument decode_symlink(Call& call, CreateArgs& args) noexcept {
  XdrReader reader = call.arguments();
  args.type = Ftype3::kLnk;
  decode(reader, args.where);
  decode(reader, args.attributes);
  BulkArgument path = call.bulk_argument(reader, UINT32_MAX);
  if (!reader.ok() || reader.remaining() != 0) path.ok = false;
  return path;
}

void start_symlink(Call& call, void* context, CreateArgs& args, std::span<const std::byte> path) noexcept {
  args.target = {reinterpret_cast<const char*>(path.data()), path.size()};
  if (args.target.empty() || args.target.find('\0') != std::string_view::npos) {
    return reply_error(call, NfsStat3::kInval);
  }
  start_create(call, context, args);
}

void symlink_pulled(Call& call, void* context) noexcept {
  // Decoded once more: what the arguments are views of has stayed where it is.
  CreateArgs args;
  XdrReader reader = call.arguments();
  args.type = Ftype3::kLnk;
  decode(reader, args.where);
  decode(reader, args.attributes);
  start_symlink(call, context, args, call.kept(0).first(call.state()[0]));
}

void symlink(Call& call, void* context) noexcept {
  CreateArgs args;
  const BulkArgument path = decode_symlink(call, args);
  if (!path.ok) return call.reject(AcceptStat::kGarbageArgs);
  if (path.length > kMaxPathBytes) return reply_error(call, NfsStat3::kNametoolong);
  if (path.chunk < 0) return start_symlink(call, context, args, path.inline_data);
  call.state()[0] = path.length;
  call.pull(path, &symlink_pulled);
}

void remove_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  XdrWriter& results = call.results(4 + kWccDataBytes);
  results.enumeration(request.status);
  encode(results, request.operation<Remove>().directory_wcc);
  call.reply();
}

void start_remove(Call& call, void* context, bool is_rmdir) noexcept {
  XdrReader reader = call.arguments();
  DirOpArgs3 what;
  decode(reader, what);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  const ServedExport* served = find_named(call, context, what, true);
  if (served == nullptr) return;
  if (is_dot_or_dot_dot(what.name)) return reply_error(call, NfsStat3::kInval);
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Remove>();
  operation.directory = what.dir;
  operation.name = what.name;
  operation.is_rmdir = is_rmdir;
  service_of(context).start(request, &Store::remove, &remove_done);
}
void remove(Call& call, void* context) noexcept { start_remove(call, context, false); }
void rmdir(Call& call, void* context) noexcept { start_remove(call, context, true); }

void rename_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Rename>();
  XdrWriter& results = call.results(4 + 2 * kWccDataBytes);
  results.enumeration(request.status);
  encode(results, operation.from_wcc);
  encode(results, operation.to_wcc);
  call.reply();
}

void rename(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  DirOpArgs3 from;
  DirOpArgs3 to;
  decode(reader, from);
  decode(reader, to);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  const ServedExport* served = find_named(call, context, from, true);
  const ServedExport* served_to = served == nullptr ? nullptr : find_named(call, context, to, true);
  if (served_to == nullptr) return;
  if (served != served_to) return reply_error(call, NfsStat3::kXdev);
  if (is_dot_or_dot_dot(from.name) || is_dot_or_dot_dot(to.name)) return reply_error(call, NfsStat3::kInval);
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Rename>();
  operation.from_directory = from.dir;
  operation.from_name = from.name;
  operation.to_directory = to.dir;
  operation.to_name = to.name;
  service_of(context).start(request, &Store::rename, &rename_done);
}

void link_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Link>();
  XdrWriter& results = call.results(4 + kPostOpAttrBytes + kWccDataBytes);
  results.enumeration(request.status);
  encode(results, operation.attributes);
  encode(results, operation.directory_wcc);
  call.reply();
}

void link(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView object = decode_handle(reader);
  DirOpArgs3 where;
  decode(reader, where);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsStat3 status{};
  const ServedExport* served_object = service_of(context).find(call, object, status);
  if (served_object == nullptr) return reply_error(call, status);
  const ServedExport* served = find_named(call, context, where, true);
  if (served == nullptr) return;
  if (served != served_object) return reply_error(call, NfsStat3::kXdev);
  if (is_dot_or_dot_dot(where.name)) return reply_error(call, NfsStat3::kExist);
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Link>();
  operation.object = object;
  operation.directory = where.dir;
  operation.name = where.name;
  service_of(context).start(request, &Store::link, &link_done);
}

}  // namespace

void append_name_procedures(std::vector<Procedure>& procedures, NfsService& service) {
  procedures.push_back(procedure_of(NfsProc3::kLookup, "LOOKUP", &lookup, service));
  procedures.push_back(once(procedure_of(NfsProc3::kCreate, "CREATE", &create, service)));
  procedures.push_back(once(procedure_of(NfsProc3::kMkdir, "MKDIR", &mkdir, service)));
  procedures.push_back(once(procedure_of(NfsProc3::kSymlink, "SYMLINK", &symlink, service, 1)));
  procedures.push_back(once(procedure_of(NfsProc3::kMknod, "MKNOD", &mknod, service)));
  procedures.push_back(once(procedure_of(NfsProc3::kRemove, "REMOVE", &remove, service)));
  procedures.push_back(once(procedure_of(NfsProc3::kRmdir, "RMDIR", &rmdir, service)));
  procedures.push_back(once(procedure_of(NfsProc3::kRename, "RENAME", &rename, service)));
  procedures.push_back(once(procedure_of(NfsProc3::kLink, "LINK", &link, service)));
}

}  // namespace rodeo::nfs
