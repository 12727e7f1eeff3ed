// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs_bench_file.h"

#include <algorithm>

#include "apps/bench_call.h"
#include "apps/nfs/file_transfer.h"
#include "apps/pattern.h"

namespace rodeo::apps {
namespace {

constexpr const char* kWhere = "rodeo bench";
constexpr const char* kName = "rodeo-bench";
constexpr std::uint32_t kWindow = 4;

tl::unexpected<Error> failed(const nfs::NfsFailure& failure) { return fail(kWhere, failure.what, failure.next); }

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
  nfs::NfsClientOptions options;
  options.caller = nfs::Caller::of_process();
  options.hugepages = hugepages;
  options.credits = kWindow + 1;
  options.application_bytes = std::size_t{nfs::kMaxTransferBytes} * kWindow;
  const auto client = nfs::NfsClient::open(address, options);
  if (!client) return failed(client.error());
  const auto root = (*client)->mount(export_path);
  if (!root) return failed(root.error());
  const auto limits = (*client)->limits(*root);
  if (!limits) return failed(limits.error());
  nfs::Sattr3 wanted;
  wanted.mode = 0666;
  const auto file = (*client)->create(*root, kName, wanted, nfs::CreateMode3::kUnchecked);
  if (!file) return failed(file.error());
  nfs::FileTransfer transfer(**client, nfs::kMaxTransferBytes, kWindow);
  const auto source = [bytes](std::uint64_t offset, RegisteredBytes into) -> Result<std::size_t> {
    const auto length = static_cast<std::size_t>(std::min<std::uint64_t>(into.size(), bytes - offset));
    fill_pattern(into.first(length), offset % kPatternPeriod);
    return length;
  };
  const auto written = transfer.write(file->handle, *limits, source);
  if (!written) return failed(written.error());
  return file->handle;
}

}  // namespace rodeo::apps
