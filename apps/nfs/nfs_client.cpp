// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/nfs_client.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "apps/nfs/mount_client.h"
#include "apps/nfs/nfs_server.h"

namespace rodeo::nfs {
namespace {

using Clock = std::chrono::steady_clock;

/// Handles, names, attributes: all arguments but a symbolic link's.
using ShortArguments = std::array<std::byte, 1024>;

constexpr std::string_view kRdmaScheme = "rdma://";
constexpr std::uint32_t kMaxDirectoryBytes = 64U << 10U;
constexpr std::size_t kMaxExportListBytes = 64U << 10U;
/// What may come beside READDIR's list: status, attributes of the directory, verifier. The count that is asked for
/// bounds them, too (RFC 1813 §3.3.17), but Linux takes it for the list alone.
constexpr std::size_t kBesideList = 4 + 4 + kFattr3Bytes + kVerfBytes;
/// With four or fewer, and the pool's one key, the send queue is so short that plain verbs, which signal every fourth
/// request, may never have the room that a call with chunks waits for.
constexpr std::uint32_t kLeastCredits = 8;
constexpr auto kBusyPause = std::chrono::milliseconds(200);

/// Of "rdma://HOST[:PORT][?device=NAME]".
std::string host_of(std::string_view address) {
  address.remove_prefix(kRdmaScheme.size());
  if (address.starts_with('[')) return std::string(address.substr(1, address.find(']') - 1));
  return std::string(address.substr(0, address.find_first_of(":?")));
}

tl::unexpected<NfsFailure> nonsense(std::string_view step) {
  return give_up(std::string(step) + ": the server's answer makes no sense");
}

}  // namespace

NfsResult<std::unique_ptr<NfsClient>> NfsClient::open(std::string_view address, const NfsClientOptions& options) {
  Config config;
  config.hugepages = options.hugepages;
  config.connections = 1;
  config.credits = std::max(options.credits, kLeastCredits);
  config.inline_send_bytes = config.inline_receive_bytes = options.inline_bytes;
  config.bulk_bytes = kMaxDirectoryBytes + 4096;
  config.bulk_buffers = 4;  // of Long Calls and Long Replies there is one at a time
  config.application_bytes = options.application_bytes;
  config.registration = options.registration;
  auto client = Client::open(address, config);
  if (!client) return give_up(client.error());
  return std::unique_ptr<NfsClient>(new NfsClient(address, options, std::move(*client)));
}

CallTarget NfsClient::target(std::uint32_t program, std::uint32_t procedure) const {
  return {program, kNfsVersion, procedure, options_.caller.credential()};
}

std::optional<NfsFailure> NfsClient::failure_of(CallError error, AcceptStat accept_stat, std::size_t results_bytes,
                                                std::string_view step) {
  const std::string name(step);
  if (error != CallError::kNone) {
    return NfsFailure{NfsStat3::kOk, name + ": " + std::string(rodeo::to_string(error)),
                      error == CallError::kDenied ? "the server refuses AUTH_SYS credentials" : ""};
  }
  switch (accept_stat) {
    case AcceptStat::kSuccess:
      break;
    case AcceptStat::kProgUnavail:
    case AcceptStat::kProgMismatch:
    case AcceptStat::kProcUnavail:
      return NfsFailure{NfsStat3::kOk, name + ": the server does not serve it",
                        "does it export anything by NFS version 3?"};
    case AcceptStat::kGarbageArgs:
      return NfsFailure{NfsStat3::kOk, name + ": the server does not understand the arguments"};
    case AcceptStat::kSystemErr:
      return NfsFailure{NfsStat3::kOk, name + ": the server could not serve the call", "it may be short of memory"};
  }
  if (results_bytes < 4) return nonsense(step).value();
  return std::nullopt;
}

void NfsClient::hang_up() {
  if (std::exchange(hung_up_, true)) return;
  client_.engine().disconnect(&client_.connection());
}

NfsResult<NfsClient::Results> NfsClient::call_once(const CallTarget& target, const XdrWriter& arguments,
                                                   std::string_view step, std::size_t max_results) {
  if (!arguments.ok()) return tl::unexpected(answered(step, NfsStat3::kNametoolong));
  if (hung_up_) return give_up(std::string(step) + ": there is no connection any more");
  auto reply = client_.call({.target = &target, .arguments = arguments.written(), .max_results = max_results},
                            options_.patience);
  if (!reply) {
    hung_up_ = true;
    return give_up(reply.error());
  }
  if (auto failure = failure_of(reply->error, reply->accept_stat, reply->results.size(), step)) {
    return tl::unexpected(std::move(*failure));
  }
  return std::move(reply->results);
}

NfsResult<NfsClient::Results> NfsClient::call(const CallTarget& target, const XdrWriter& arguments,
                                              std::string_view step, std::size_t max_results) {
  const auto begun = Clock::now();
  for (;;) {
    auto results = call_once(target, arguments, step, max_results);
    if (!results) return results;
    const auto status = static_cast<NfsStat3>(load_be32(results->data()));
    if (status == NfsStat3::kOk) {
      results->erase(results->begin(), results->begin() + 4);
      return results;
    }
    // RFC 1813 §2.6: it was started, and will be done when it is asked for again.
    if (status != NfsStat3::kJukebox || Clock::now() - begun > options_.patience || interrupted()) {
      return tl::unexpected(answered(step, status));
    }
    std::this_thread::sleep_for(kBusyPause);
  }
}

NfsResult<NfsClient::Results> NfsClient::call(NfsProc3 proc, const XdrWriter& arguments, std::string_view step,
                                              std::size_t max_results) {
  return call(target(proc), arguments, step, max_results);
}

NfsResult<std::vector<std::string>> NfsClient::exports() {
  if (address_.starts_with(kRdmaScheme)) {
    auto mount = MountClient::connect(host_of(address_), options_.mount_port, options_.caller, options_.patience);
    if (!mount) return tl::unexpected(mount.error());
    return (*mount)->exports();
  }
  constexpr std::uint32_t kExport = 5;
  const auto results = call_once(target(kMountProgram, kExport), XdrWriter({}), "EXPORT", kMaxExportListBytes);
  if (!results) return tl::unexpected(results.error());
  std::vector<std::string> paths;
  XdrReader in(*results);
  while (in.boolean()) {
    paths.emplace_back(in.string(kMaxPathBytes));
    while (in.boolean()) (void)in.string(kMaxPathBytes);
  }
  if (!in.ok()) return nonsense("EXPORT");
  return paths;
}

NfsResult<FileHandle> NfsClient::mount(const std::string& path) {
  if (address_.starts_with(kRdmaScheme)) {
    auto mount = MountClient::connect(host_of(address_), options_.mount_port, options_.caller, options_.patience);
    if (!mount) return tl::unexpected(mount.error());
    return (*mount)->mount(path);
  }
  constexpr std::uint32_t kMnt = 1;
  ShortArguments room;
  XdrWriter out(room);
  out.string(path);
  const auto results = call(target(kMountProgram, kMnt), out, "MNT", 512);
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  FileHandle root;
  decode(in, root);
  if (!in.ok()) return nonsense("MNT");
  return root;
}

NfsResult<FsLimits> NfsClient::limits(const FileHandle& root) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, root);
  const auto results = call(NfsProc3::kFsinfo, out, "FSINFO");
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  std::optional<Fattr3> attributes;
  decode(in, attributes);
  FsLimits limits;
  limits.max_read = in.u32();
  in.skip(8);  // rtpref, rtmult
  limits.max_write = in.u32();
  in.skip(8);
  limits.directory_bytes = std::clamp(in.u32(), 4096U, kMaxDirectoryBytes);
  if (!in.ok() || limits.max_read == 0 || limits.max_write == 0) return nonsense("FSINFO");
  return limits;
}

NfsResult<Fattr3> NfsClient::getattr(const FileHandle& object) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, object);
  const auto results = call(NfsProc3::kGetattr, out, "GETATTR");
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  Fattr3 attributes;
  decode(in, attributes);
  if (!in.ok()) return nonsense("GETATTR");
  return attributes;
}

NfsResult<void> NfsClient::setattr(const FileHandle& object, const Sattr3& attributes) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, object);
  encode(out, attributes);
  out.boolean(false);  // no guard
  return call(NfsProc3::kSetattr, out, "SETATTR").map([](const Results&) {});
}

NfsResult<Found> NfsClient::lookup(const FileHandle& directory, std::string_view name) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, DirOpArgs3{directory.bytes(), name});
  const auto results = call(NfsProc3::kLookup, out, "LOOKUP");
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  Found found;
  std::optional<Fattr3> attributes;
  decode(in, found.handle);
  decode(in, attributes);
  if (!in.ok()) return nonsense("LOOKUP");
  if (!attributes) {
    auto asked = getattr(found.handle);
    if (!asked) return tl::unexpected(asked.error());
    attributes = *asked;
  }
  found.attributes = *attributes;
  return found;
}

NfsResult<std::string> NfsClient::readlink(const FileHandle& link) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, link);
  const auto results = call(NfsProc3::kReadlink, out, "READLINK", 4 + 4 + kFattr3Bytes + 4 + kMaxPathBytes);
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  std::optional<Fattr3> attributes;
  decode(in, attributes);
  std::string text(in.string(kMaxPathBytes));
  if (!in.ok()) return nonsense("READLINK");
  return text;
}

/// Ends CREATE, MKDIR and SYMLINK.
NfsResult<Found> NfsClient::made(NfsProc3 proc, const XdrWriter& arguments, std::string_view step,
                                 const FileHandle& directory, std::string_view name) {
  const auto results = call(proc, arguments, step);
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  std::optional<FileHandle> handle;
  std::optional<Fattr3> attributes;
  decode(in, handle);
  decode(in, attributes);
  if (!in.ok()) return nonsense(step);
  if (!handle || !attributes) return lookup(directory, name);
  return Found{*handle, *attributes};
}

NfsResult<Found> NfsClient::create(const FileHandle& directory, std::string_view name, const Sattr3& attributes,
                                   CreateMode3 mode) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, DirOpArgs3{directory.bytes(), name});
  out.enumeration(mode);
  encode(out, attributes);
  return made(NfsProc3::kCreate, out, "CREATE", directory, name);
}

NfsResult<Found> NfsClient::mkdir(const FileHandle& directory, std::string_view name, const Sattr3& attributes) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, DirOpArgs3{directory.bytes(), name});
  encode(out, attributes);
  return made(NfsProc3::kMkdir, out, "MKDIR", directory, name);
}

NfsResult<Found> NfsClient::symlink(const FileHandle& directory, std::string_view name, std::string_view target) {
  std::vector<std::byte> room(sizeof(ShortArguments) + target.size());
  XdrWriter out(room);
  encode(out, DirOpArgs3{directory.bytes(), name});
  encode(out, Sattr3{});
  out.string(target);
  return made(NfsProc3::kSymlink, out, "SYMLINK", directory, name);
}

NfsResult<void> NfsClient::remove(const FileHandle& directory, std::string_view name) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, DirOpArgs3{directory.bytes(), name});
  return call(NfsProc3::kRemove, out, "REMOVE").map([](const Results&) {});
}

NfsResult<void> NfsClient::rename(const FileHandle& directory, std::string_view from, std::string_view to) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, DirOpArgs3{directory.bytes(), from});
  encode(out, DirOpArgs3{directory.bytes(), to});
  return call(NfsProc3::kRename, out, "RENAME").map([](const Results&) {});
}

NfsResult<void> NfsClient::list_part(const FileHandle& directory, std::uint32_t bytes, bool plus,
                                     std::vector<Listed>& into) {
  const auto proc = plus ? NfsProc3::kReaddirplus : NfsProc3::kReaddir;
  const std::string_view step = plus ? "READDIRPLUS" : "READDIR";
  std::uint64_t cookie = 0;
  Verf3 verifier{};
  for (bool end = false; !end;) {
    if (interrupted()) return give_up("interrupted");
    ShortArguments room;
    XdrWriter out(room);
    encode(out, directory);
    out.u64(cookie);
    encode(out, verifier);
    if (plus) out.u32(bytes);
    out.u32(bytes);
    const auto results = call(proc, out, step, kBesideList + bytes);
    if (!results) return tl::unexpected(results.error());
    XdrReader in(*results);
    std::optional<Fattr3> attributes;
    decode(in, attributes);
    decode(in, verifier);
    const std::size_t before = into.size();
    Entry3 entry;
    while (decode_entry(in, entry, plus)) {
      cookie = entry.cookie;
      into.push_back({std::string(entry.name), entry.fileid, entry.name_attributes, entry.name_handle});
    }
    end = in.boolean();
    if (!in.ok() || (!end && into.size() == before)) return nonsense(step);
  }
  return {};
}

NfsResult<std::vector<Listed>> NfsClient::list(const FileHandle& directory, std::uint32_t directory_bytes,
                                               bool names_only) {
  constexpr int kMostTimes = 5;
  bool plus = !names_only;
  for (int times = 1;; ++times) {
    std::vector<Listed> entries;
    auto done = list_part(directory, directory_bytes, plus, entries);
    if (done) return entries;
    if (done.error().status == NfsStat3::kNotsupp && plus) {
      plus = false;
    } else if (done.error().status != NfsStat3::kBadCookie || times == kMostTimes) {
      return tl::unexpected(done.error());
    }
  }
}

NfsResult<Verf3> NfsClient::commit(const FileHandle& file) {
  ShortArguments room;
  XdrWriter out(room);
  encode(out, file);
  out.u64(0);
  out.u32(0);
  const auto results = call(NfsProc3::kCommit, out, "COMMIT");
  if (!results) return tl::unexpected(results.error());
  XdrReader in(*results);
  WccData wcc;
  Verf3 verifier{};
  decode(in, wcc);
  decode(in, verifier);
  if (!in.ok()) return nonsense("COMMIT");
  return verifier;
}

}  // namespace rodeo::nfs
