// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs_bench_file.h"

#include <unistd.h>

#include <algorithm>
#include <optional>

#include "apps/bench_call.h"
#include "apps/nfs/nfs_server.h"
#include "apps/pattern.h"
#include "engine/client.h"

namespace rodeo::apps {
namespace {

constexpr const char* kWhere = "rodeo bench";
constexpr const char* kName = "rodeo-bench";

/// Blocking calls of NFS and MOUNT.
class Caller {
 public:
  explicit Caller(Client& client) : client_(client) {
    credential_.flavor = AuthFlavor::kSys;
    credential_.sys.machine_name = "rodeo";
    credential_.sys.uid = geteuid();
    credential_.sys.gid = getegid();
  }

  /// The results behind their status.
  Result<std::vector<std::byte>> call(std::uint32_t program, std::uint32_t procedure, const XdrWriter& arguments,
                                      std::span<const BulkSource> sources, const char* name) {
    const CallTarget target(program, nfs::kNfsVersion, procedure, credential_);
    auto reply = client_.call(
        {.target = &target, .arguments = arguments.written(), .sources = sources, .sinks = {}, .max_results = 512});
    if (!reply) return tl::unexpected(reply.error());
    if (reply->error != CallError::kNone || reply->accept_stat != AcceptStat::kSuccess || reply->results.size() < 4) {
      return fail(kWhere, std::string(name) + " was refused", "does rodeod serve there, with --export?");
    }
    const auto status = static_cast<nfs::NfsStat3>(load_be32(reply->results.data()));
    if (status != nfs::NfsStat3::kOk) {
      return fail(kWhere, std::string(name) + " was answered " + std::string(to_string(status)));
    }
    return std::vector<std::byte>(reply->results.begin() + 4, reply->results.end());
  }

 private:
  Client& client_;
  Credential credential_;
};

}  // namespace

std::uint64_t nfs_file_bytes(const Mix& mix) noexcept {
  std::uint64_t bytes = 0;
  for (const MixEntry& entry : mix.entries) {
    if (is_nfs(entry.proc)) bytes = std::max(bytes, std::uint64_t{kVariants} * nfs_stride(entry.bytes));
  }
  return bytes;
}

Result<nfs::FileHandle> make_nfs_bench_file(std::string_view address, const std::string& export_path,
                                            std::uint64_t bytes, bool hugepages) {
  constexpr std::size_t kPiece = nfs::kMaxTransferBytes;
  Config config;
  config.hugepages = hugepages;
  config.connections = 1;
  config.credits = 4;
  config.application_bytes = kPatternPeriod + kPiece;
  auto client = Client::open(address, config);
  if (!client) return tl::unexpected(client.error());
  const RegisteredBytes pattern = client->engine().application_memory();
  fill_pattern(pattern, 0);
  Caller caller(*client);
  std::array<std::byte, 2048> storage{};

  XdrWriter mount(storage);
  mount.string(export_path);
  auto mounted = caller.call(nfs::kMountProgram, 1, mount, {}, "MOUNT's MNT");
  if (!mounted) return tl::unexpected(mounted.error());
  nfs::FileHandle root;
  XdrReader in(*mounted);
  decode(in, root);

  XdrWriter create(storage);
  encode(create, nfs::DirOpArgs3{root.bytes(), kName});
  create.enumeration(nfs::CreateMode3::kUnchecked);
  nfs::Sattr3 wanted;
  wanted.mode = 0666;
  encode(create, wanted);
  auto created =
      caller.call(nfs::kNfsProgram, static_cast<std::uint32_t>(nfs::NfsProc3::kCreate), create, {}, "CREATE");
  if (!created) return tl::unexpected(created.error());
  std::optional<nfs::FileHandle> file;
  in = XdrReader(*created);
  decode(in, file);
  if (!in.ok() || !file) return fail(kWhere, "CREATE returned no handle");

  for (std::uint64_t offset = 0; offset < bytes;) {
    const auto piece = static_cast<std::uint32_t>(std::min<std::uint64_t>(kPiece, bytes - offset));
    XdrWriter write(storage);
    encode(write, *file);
    write.u64(offset);
    write.u32(piece);
    write.enumeration(nfs::StableHow::kUnstable);
    write.u32(piece);
    const BulkSource source{write.size(), pattern.subspan(offset % kPatternPeriod, piece)};
    auto written =
        caller.call(nfs::kNfsProgram, static_cast<std::uint32_t>(nfs::NfsProc3::kWrite), write, {&source, 1}, "WRITE");
    if (!written) return tl::unexpected(written.error());
    in = XdrReader(*written);
    nfs::WccData wcc;
    decode(in, wcc);
    const std::uint32_t count = in.u32();
    if (!in.ok() || count == 0) return fail(kWhere, "WRITE wrote nothing");
    offset += count;
  }
  return *file;
}

}  // namespace rodeo::apps
