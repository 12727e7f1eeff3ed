// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: poll cores.
// READDIR and READDIRPLUS (RFC 1813 §3.3.16, §3.3.17). Their lists are what Long Replies are for: entries go straight
// into the results, which lie in a bulk buffer where the Requester gave a Reply chunk.

#include "apps/nfs/nfs_service.h"

namespace rodeo::nfs {
namespace {

/// What goes before the list: status, post_op_attr, cookieverf3.
constexpr std::size_t kBeforeList = 4 + kPostOpAttrBytes + kVerfBytes;
/// And after it, where there are no entries: the end of the list, eof.
constexpr std::size_t kAfterList = 8;
/// A smaller Reply chunk is not used: as much fits inline.
constexpr std::size_t kLeastReplyChunk = 1024;

void readdir_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Readdir>();
  XdrWriter& results = call.results();
  NfsStat3 status = request.status;
  if (status == NfsStat3::kOk && !operation.attributes) status = NfsStat3::kServerfault;
  if (status == NfsStat3::kOk && request.entries.count() == 0 && !operation.eof) status = NfsStat3::kToosmall;
  if (status == NfsStat3::kOk) {
    request.entries.finish(operation.eof);
    XdrWriter before({reinterpret_cast<std::byte*>(call.state()[1]), kBeforeList});
    before.enumeration(status);
    encode(before, operation.attributes);
    encode(before, operation.verifier);
  } else {
    results.cut(0);
    results.enumeration(status);
    encode(results, operation.attributes);
  }
  call.reply();
}

struct ReaddirArgs {
  HandleView directory;
  std::uint64_t cookie = 0;
  Verf3 verifier{};
  std::uint32_t name_bytes = UINT32_MAX;
  std::uint32_t max_bytes = 0;
};

void start_readdir(Call& call, void* context, ReaddirArgs& args, Handler again) noexcept {
  NfsService& service = service_of(context);
  NfsStat3 status{};
  const ServedExport* served = service.find(call, args.directory, status);
  if (served == nullptr) return reply_error(call, status);
  // The counts are of what follows the status. Without a Reply chunk the list ends where the message does.
  const std::size_t asked = 4 + std::size_t{args.max_bytes};
  if (asked < kBeforeList + kAfterList) return reply_error(call, NfsStat3::kToosmall);
  std::size_t most = asked;
  const bool long_reply = call.chunks().reply_capacity > kLeastReplyChunk;
  if (long_reply)
    most = std::min<std::size_t>({asked, service.bulk_bytes(), call.chunks().reply_capacity - kAcceptedReplyBytes});
  if (!call.open_results(long_reply ? most : 0, again)) return;
  XdrWriter& results = call.results();
  std::byte* const before = results.reserve(kBeforeList);
  if (before == nullptr) return call.reply();  // ERR_CHUNK
  most = std::min(most, results.size() + results.room());
  Request& request = service.open(call, *served);
  auto& operation = request.make<Readdir>();
  operation.directory = args.directory;
  operation.cookie = args.cookie;
  operation.asked_verifier = args.verifier;
  operation.plus = call.procedure() == static_cast<std::uint32_t>(NfsProc3::kReaddirplus);
  request.entries = EntryWriter(results, served->id, operation.plus, most, args.name_bytes);
  operation.entries = &request.entries;
  call.state()[1] = reinterpret_cast<std::uintptr_t>(before);
  service.start(request, &Store::readdir, &readdir_done);
}

void readdir(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  ReaddirArgs args;
  args.directory = decode_handle(reader);
  args.cookie = reader.u64();
  decode(reader, args.verifier);
  args.max_bytes = reader.u32();
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  start_readdir(call, context, args, &readdir);
}

void readdirplus(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  ReaddirArgs args;
  args.directory = decode_handle(reader);
  args.cookie = reader.u64();
  decode(reader, args.verifier);
  args.name_bytes = reader.u32();
  args.max_bytes = reader.u32();
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  start_readdir(call, context, args, &readdirplus);
}

}  // namespace

void append_directory_procedures(std::vector<Procedure>& procedures, NfsService& service) {
  procedures.push_back(procedure_of(NfsProc3::kReaddir, "READDIR", &readdir, service));
  procedures.push_back(procedure_of(NfsProc3::kReaddirplus, "READDIRPLUS", &readdirplus, service));
}

}  // namespace rodeo::nfs
