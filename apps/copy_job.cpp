// SPDX-License-Identifier: Apache-2.0
#include "apps/copy_job.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <optional>

#include "apps/command_line.h"
#include "apps/progress_bar.h"
#include "apps/sum.h"
#include "pools/errno_text.h"

namespace rodeo::apps {

CopyJob::CopyJob(const CpOptions& how, nfs::NfsClient& to, nfs::PathWalker& paths)
    : options(how),
      client(to),
      walker(paths),
      transfer(to, how.block_bytes, how.window),
      mask_(::umask(0)),
      terminal_(isatty(STDERR_FILENO) == 1) {
  ::umask(mask_);
}

void CopyJob::failed(std::string_view path, const nfs::NfsFailure& failure) {
  all_well_ = false;
  complain("rodeo cp", fmt::format("{}: {}", path, failure.message()));
}

nfs::NfsResult<std::uint64_t> CopyJob::read(const nfs::FileHandle& file, std::uint64_t expected_bytes,
                                            const nfs::FsLimits& limits, const nfs::FileTransfer::Sink& sink,
                                            std::string_view name) {
  if (!terminal_) return transfer.read(file, expected_bytes, limits, sink);
  ProgressBar bar(name, expected_bytes);
  return transfer.read(file, expected_bytes, limits, sink, [&bar](std::uint64_t done) { bar.draw(done); });
}

nfs::NfsResult<std::uint64_t> CopyJob::write(const nfs::FileHandle& file, std::uint64_t expected_bytes,
                                             const nfs::FsLimits& limits, const nfs::FileTransfer::Source& source,
                                             std::string_view name) {
  if (!terminal_) return transfer.write(file, limits, source);
  ProgressBar bar(name, expected_bytes);
  return transfer.write(file, limits, source, [&bar](std::uint64_t done) { bar.draw(done); });
}

nfs::NfsResult<void> CopyJob::compare_sums(const std::string& sent, const std::string& arrived,
                                           const std::string& local_path) const {
  if (sent.empty() || sent != arrived) {
    return nfs::give_up("its SHA-256 is " + sent + ", but " + arrived + " where it was copied to",
                        "did it change meanwhile?");
  }
  fmt::print("{}\n", sum_line(sent, local_path));
  return {};
}

std::string temporary_name() {
  std::uint64_t random = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&random), sizeof random) != 1)
    random = static_cast<unsigned>(getpid());
  return fmt::format(".rodeo-cp-{:016x}", random);
}

nfs::NfsFailure system_failure(std::string_view action) {
  return {nfs::NfsStat3::kOk, fmt::format("cannot {}: {}", action, errno_text())};
}

}  // namespace rodeo::apps
