// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: poll cores.
// READ, WRITE, COMMIT and READLINK (RFC 1813 §3.3.5 to §3.3.7, §3.3.21): what moves data by chunk (RFC 8267 §4).
//
// From a store with memory of its own READ's data is pushed as it lies, and WRITE's is pulled to where it belongs. With
// other stores a buffer of the engine's is in between; a Call waits for one before the store hears of it.

#include "apps/nfs/nfs_service.h"
#include "engine/xdr_pad.h"

namespace rodeo::nfs {
namespace {

/// Octets that a DDP-eligible result of `length` takes in the Reply's own XDR stream.
std::size_t bulk_result_bytes(const Call& call, std::size_t length) noexcept {
  const ChunkLists& chunks = call.chunks();
  const bool by_chunk = chunks.write_chunk_count != 0 && chunks.write_table[0].count != 0;
  return by_chunk ? 4 : 4 + xdr_padded(length);
}

void read_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  auto& operation = request.operation<Read>();
  const bool ok = request.status == NfsStat3::kOk;
  const std::size_t length = operation.data.bytes();
  const std::size_t most = 4 + kPostOpAttrBytes + (ok ? 8 + bulk_result_bytes(call, length) : 0);
  // Waits in the rare case that the data has to go by Reply chunk and no buffer is free.
  if (!call.open_results(most, &read_done)) return;
  XdrWriter& results = call.results();
  results.enumeration(request.status);
  encode(results, operation.attributes);
  if (ok) {
    results.u32(static_cast<std::uint32_t>(length));
    results.boolean(operation.eof);
    call.push(operation.data.all());
  }
  call.reply();
}

void read_into_buffer(Call& call, void* context) noexcept {
  Request& request = request_of(call);
  auto& operation = request.operation<Read>();
  operation.buffer = call.kept(0).first(operation.count);
  service_of(context).start(request, &Store::read, &read_done);
}

void read(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView handle = decode_handle(reader);
  const std::uint64_t offset = reader.u64();
  const std::uint32_t count = reader.u32();
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsService& service = service_of(context);
  NfsStat3 status{};
  const ServedExport* served = service.find(call, handle, status);
  if (served == nullptr) return reply_error(call, status);
  Request& request = service.open(call, *served);
  auto& operation = request.make<Read>();
  operation.object = handle;
  operation.offset = offset;
  operation.count = std::min(count, served->max_transfer);
  if (served->traits.own_memory) request.pins_read = &operation;
  if (served->traits.own_memory || count == 0) return service.start(request, &Store::read, &read_done);
  call.wait_for_buffer(operation.count, &read_into_buffer);
}

void write_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Write>();
  XdrWriter& results = call.results(4 + kWccDataBytes + 8 + kVerfBytes);
  results.enumeration(request.status);
  encode(results, operation.wcc);
  if (request.status == NfsStat3::kOk) {
    results.u32(operation.written);
    results.enumeration(operation.committed);
    encode(results, operation.verifier);
  }
  call.reply();
}

/// The data is there.
void write_pulled(Call& call, void* context) noexcept {
  Request& request = request_of(call);
  auto& operation = request.operation<Write>();
  if (!request.served->traits.own_memory && operation.count != 0) {
    (void)operation.data.add(call.kept(0).first(operation.count));
  }
  service_of(context).start(request, &Store::write, &write_done);
}

/// The store has said where the data is to go.
void write_prepared(Call& call, void* context) noexcept {
  Request& request = request_of(call);
  auto& operation = request.operation<Write>();
  if (request.status != NfsStat3::kOk) return write_done(call, context);
  BulkArgument& data = request.data;
  data.length = operation.count = static_cast<std::uint32_t>(operation.data.bytes());
  if (data.chunk < 0) data.inline_data = data.inline_data.first(data.length);
  call.pull(data, operation.data.all(), &write_pulled);
}

void write(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView handle = decode_handle(reader);
  const std::uint64_t offset = reader.u64();
  const std::uint32_t count = reader.u32();
  const auto stable = reader.enumeration(StableHow::kFileSync);
  BulkArgument data = call.bulk_argument(reader, UINT32_MAX);
  if (!data.ok || !reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsService& service = service_of(context);
  NfsStat3 status{};
  const ServedExport* served = service.find(call, handle, status);
  if (served != nullptr && served->exported.options.read_only) status = NfsStat3::kRofs;
  if (status != NfsStat3::kOk) return reply_error(call, status);
  Request& request = service.open(call, *served);
  auto& operation = request.make<Write>();
  operation.object = handle;
  operation.offset = offset;
  // R1813-3-1: the smaller of the two counts, and no more than was offered by FSINFO.
  operation.count = data.length = std::min({count, data.length, served->max_transfer});
  if (data.chunk < 0) data.inline_data = data.inline_data.first(data.length);
  operation.stable = stable;
  request.data = data;
  if (served->traits.own_memory) {
    request.pins_write = &operation;
    return service.start(request, &Store::prepare_write, &write_prepared);
  }
  if (data.length == 0) return write_pulled(call, context);
  call.pull(data, &write_pulled);
}

void commit_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Commit>();
  XdrWriter& results = call.results(4 + kWccDataBytes + kVerfBytes);
  results.enumeration(request.status);
  encode(results, operation.wcc);
  if (request.status == NfsStat3::kOk) encode(results, operation.verifier);
  call.reply();
}

void commit(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView handle = decode_handle(reader);
  const std::uint64_t offset = reader.u64();
  const std::uint32_t count = reader.u32();
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsStat3 status{};
  const ServedExport* served = service_of(context).find(call, handle, status);
  if (served == nullptr) return reply_error(call, status);
  Request& request = service_of(context).open(call, *served);
  auto& operation = request.make<Commit>();
  operation.object = handle;
  operation.offset = offset;
  operation.count = count;
  service_of(context).start(request, &Store::commit, &commit_done);
}

void readlink_done(Call& call, void* /*context*/) noexcept {
  Request& request = request_of(call);
  const auto& operation = request.operation<Readlink>();
  const bool ok = request.status == NfsStat3::kOk;
  const std::size_t most = 4 + kPostOpAttrBytes + (ok ? bulk_result_bytes(call, operation.length) : 0);
  XdrWriter& results = call.results(most);
  results.enumeration(request.status);
  encode(results, operation.attributes);
  if (ok) call.push(operation.buffer.first(operation.length));
  call.reply();
}

void readlink_into_buffer(Call& call, void* context) noexcept {
  Request& request = request_of(call);
  request.operation<Readlink>().buffer = call.kept(0).first(kMaxPathBytes);
  service_of(context).start(request, &Store::readlink, &readlink_done);
}

void readlink(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  HandleView handle = decode_handle(reader);
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  NfsStat3 status{};
  const ServedExport* served = service_of(context).find(call, handle, status);
  if (served == nullptr) return reply_error(call, status);
  service_of(context).open(call, *served).make<Readlink>().object = handle;
  call.wait_for_buffer(kMaxPathBytes, &readlink_into_buffer);
}

}  // namespace

void append_data_procedures(std::vector<Procedure>& procedures, NfsService& service) {
  procedures.push_back(procedure_of(NfsProc3::kReadlink, "READLINK", &readlink, service, 0, 1));
  procedures.push_back(procedure_of(NfsProc3::kRead, "READ", &read, service, 0, 1));
  procedures.push_back(procedure_of(NfsProc3::kWrite, "WRITE", &write, service, 1));
  procedures.push_back(procedure_of(NfsProc3::kCommit, "COMMIT", &commit, service));
}

}  // namespace rodeo::nfs
