// SPDX-License-Identifier: Apache-2.0
#include "pools/arena.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "pools/host_memory.h"
#include "pools/topology.h"

namespace rodeo::pools {
namespace {

constexpr const char* kWhere = "arena";
/// Left to everything else on the machine.
constexpr std::uint64_t kSpareBytes = std::uint64_t{64} << 20;

std::size_t ordinary_page_bytes() { return static_cast<std::size_t>(sysconf(_SC_PAGESIZE)); }

std::string mib_text(std::uint64_t bytes) { return std::to_string((bytes + (1U << 20) - 1) >> 20) + " MiB"; }

std::string call_failed(const char* call) { return std::string(call) + " failed: " + std::strerror(errno); }

/// What an operator types so that the next start finds enough hugepages.
std::string reserve_command(std::size_t bytes) {
  const std::uint64_t needed = (bytes + kHugepageBytes - 1) / kHugepageBytes;
  const Hugepages host = host_hugepages();
  const std::uint64_t missing = needed - std::min<std::uint64_t>(needed, host.free);
  return "sudo sysctl -w vm.nr_hugepages=" + std::to_string(host.reserved + missing);
}

/// Maps every page of a range whose pages the file holds already, so that this cannot run out of memory.
Result<void> map_pages(std::span<std::byte> bytes, std::size_t page_bytes) {
  if (madvise(bytes.data(), bytes.size(), MADV_POPULATE_WRITE) == 0) return {};
  if (errno != EINVAL) return fail(kWhere, call_failed("populating the pages"), "free some memory");
  for (std::size_t at = 0; at < bytes.size(); at += page_bytes) {  // kernels before 5.14
    auto* page = reinterpret_cast<volatile char*>(bytes.data() + at);
    *page = *page;
  }
  return {};
}

}  // namespace

Result<Arena> Arena::create(const ArenaOptions& options) {
  if (options.bytes == 0) return fail(kWhere, "0 bytes were asked for", "ask for at least one page");
  if (options.bytes > std::numeric_limits<std::size_t>::max() / 4) {
    return fail(kWhere, std::to_string(options.bytes) + " bytes are more than any machine has",
                "ask for at most " + mib_text(host_available_bytes()));
  }
  if (options.hugepages) {
    auto arena = create_with_pages(options, true);
    if (arena) return arena;
  }
  const std::uint64_t available = host_available_bytes();
  if (available != 0 && options.bytes > available - std::min(available, kSpareBytes)) {
    return fail(kWhere, mib_text(options.bytes) + " of memory do not fit: " + mib_text(available) + " are available",
                "use smaller or fewer pools, or free some memory");
  }
  auto arena = create_with_pages(options, false);
  if (arena && options.hugepages) {
    const std::string slower = mib_text(options.bytes) + " of buffers are on ordinary pages (slower), as only " +
                               std::to_string(host_hugepages().free) + " hugepages of 2 MiB are free; `" +
                               reserve_command(options.bytes) + "` reserves enough";
    arena->warning_ = arena->warning_ ? slower + "; " + *arena->warning_ : slower;
  }
  return arena;
}

Result<Arena> Arena::create_with_pages(const ArenaOptions& options, bool hugepages) {
  Arena arena;
  arena.hugepages_ = hugepages;
  arena.page_bytes_ = hugepages ? kHugepageBytes : ordinary_page_bytes();
  const std::size_t size = (options.bytes + arena.page_bytes_ - 1) / arena.page_bytes_ * arena.page_bytes_;

  const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (hugepages ? MFD_HUGETLB | MFD_HUGE_2MB : 0U);
  arena.fd_ = memfd_create(options.name.c_str(), flags);
  if (arena.fd_ < 0) return fail(kWhere, call_failed("memfd_create"), "raise the limit on open files (`ulimit -n`)");
  if (ftruncate(arena.fd_, static_cast<off_t>(size)) != 0) {
    return fail(kWhere, call_failed("ftruncate"), "ask for fewer bytes");
  }
  void* mapped = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, arena.fd_, 0);
  if (mapped == MAP_FAILED) return fail(kWhere, call_failed("mmap"), "ask for fewer bytes or reserve more hugepages");
  arena.bytes_ = {static_cast<std::byte*>(mapped), size};

  if (options.numa_node >= 0) {  // before any page exists: a page stays on the node that it was born on
    const auto topology = Topology::load();
    if (!topology) return tl::unexpected(topology.error());
    if (!topology->node_exists(options.numa_node)) {
      return fail(kWhere, "NUMA node " + std::to_string(options.numa_node) + " does not exist",
                  "`numactl --hardware` lists those that do");
    }
    if (auto bound = topology->prefer_node(arena.bytes_, options.numa_node); !bound) {
      arena.warning_ = bound.error().message();
    }
  }
  if (!hugepages) madvise(mapped, size, MADV_HUGEPAGE);  // a wish: honoured where shmem_enabled is "advise"

  // The file gets its pages by fallocate, which reports a shortage; a page fault would raise SIGBUS instead.
  if (fallocate(arena.fd_, 0, 0, static_cast<off_t>(size)) != 0) {
    return fail(kWhere, call_failed("allocating the pages"), "free some memory or ask for fewer bytes");
  }
  if (auto populated = map_pages(arena.bytes_, arena.page_bytes_); !populated) {
    return tl::unexpected(populated.error());
  }
  if (fcntl(arena.fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return fail(kWhere, call_failed("sealing the memfd"), "use Linux 4.16 or later");
  }
  return arena;
}

Arena::~Arena() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
  if (fd_ >= 0) close(fd_);
}

void Arena::swap(Arena& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(fd_, other.fd_);
  std::swap(page_bytes_, other.page_bytes_);
  std::swap(hugepages_, other.hugepages_);
  std::swap(warning_, other.warning_);
}

}  // namespace rodeo::pools
