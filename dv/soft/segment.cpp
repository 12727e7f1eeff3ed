// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>

namespace rodeo::dv::soft {

namespace {

constexpr const char* kWhere = "shared memory";
constexpr std::size_t kPageBytes = 4096;

std::string failed(const char* call) { return std::string(call) + " failed: " + std::strerror(errno); }

}  // namespace

Mapping::~Mapping() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

void Mapping::populate(std::size_t offset, std::size_t length) const noexcept {
  const std::size_t begin = offset / kPageBytes * kPageBytes;
  const std::size_t end = (offset + length + kPageBytes - 1) / kPageBytes * kPageBytes;
#ifdef MADV_POPULATE_WRITE
  if (madvise(bytes_.data() + begin, end - begin, MADV_POPULATE_WRITE) == 0) return;
#endif
  // Older kernels: touch each page. The peer may be writing there, so the touch must not lose its store.
  for (std::size_t at = begin; at < end; at += kPageBytes) {
    __atomic_fetch_or(reinterpret_cast<std::uint8_t*>(bytes_.data() + at), std::uint8_t{0}, __ATOMIC_RELAXED);
  }
}

Result<void> check_shareable(int fd, std::size_t offset, std::size_t length) {
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) {
    return fail(kWhere, "the file descriptor is not a memfd that can be sealed",
                "make it with memfd_create and MFD_ALLOW_SEALING");
  }
  if ((seals & F_SEAL_SHRINK) == 0) {
    return fail(kWhere, "the memfd can still shrink under whoever maps it", "add F_SEAL_SHRINK before sharing it");
  }
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail(kWhere, failed("fstat"));
  const auto size = static_cast<std::size_t>(status.st_size);
  if (offset > size || length > size - offset) {
    return fail(kWhere,
                "bytes " + std::to_string(offset) + "+" + std::to_string(length) + " are not inside a file of " +
                    std::to_string(size) + " bytes",
                "register a range that the file holds");
  }
  return {};
}

Result<Mapping> map_peer_file(int fd, std::size_t offset, std::size_t length, bool populate) {
  if (auto good = check_shareable(fd, offset, length); !good) return tl::unexpected(good.error());
  struct stat status {};
  if (fstat(fd, &status) != 0) return fail(kWhere, failed("fstat"));
  // Huge page files are mapped in whole huge pages.
  const auto page = static_cast<std::size_t>(status.st_blksize);
  if (page == 0 || offset % page != 0 || length == 0 || length > std::numeric_limits<std::size_t>::max() - page) {
    return fail(kWhere, "the range does not begin on a page of the file", "register whole pages");
  }
  const std::size_t whole = (length + page - 1) / page * page;
  void* base = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | (populate ? MAP_POPULATE : 0),
                    fd, static_cast<off_t>(offset));
  if (base == MAP_FAILED) return fail(kWhere, failed("mmap"), "free some address space");
  return Mapping(static_cast<std::byte*>(base), whole);
}

Result<Segment> Segment::create(bool shared, const ProcessId& process, std::uint64_t lane) {
  Segment segment;
  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  if (shared) {
    segment.file_ = File(memfd_create("rodeo-lane", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!segment.file_) return fail(kWhere, failed("memfd_create"), "raise the limit on open files (`ulimit -n`)");
    if (ftruncate(segment.fd(), static_cast<off_t>(kSegmentBytes)) != 0) {
      return fail(kWhere, failed("ftruncate"), "raise the limit on file sizes (`ulimit -f`)");
    }
    if (fcntl(segment.fd(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
      return fail(kWhere, failed("sealing the memfd"), "use Linux 4.16 or later");
    }
    flags = MAP_SHARED;
  }
  void* base = mmap(nullptr, kSegmentBytes, PROT_READ | PROT_WRITE, flags | MAP_NORESERVE, segment.fd(), 0);
  if (base == MAP_FAILED) return fail(kWhere, failed("mmap"), "raise the limit on address space (`ulimit -v`)");
  segment.mapping_ = Mapping(static_cast<std::byte*>(base), kSegmentBytes);
  segment.populate_queue();

  SegmentHeader& header = segment.view().header();
  header.abi = kAbiVersion;
  header.pid = static_cast<std::uint32_t>(getpid());
  header.segment_bytes = kSegmentBytes;
  header.process[0] = process.words[0];
  header.process[1] = process.words[1];
  header.lane = lane;
  for (std::uint32_t i = 0; i < kLaneCqes; ++i) {
    segment.view().cqes()[i].op_own = static_cast<std::uint8_t>(MLX5_CQE_INVALID << 4);
  }
  store_shared(header.magic, kSegmentMagic);
  return segment;
}

Result<Segment> Segment::map(int fd, const ProcessId& process, std::uint64_t lane) {
  struct stat status {};
  if (fstat(fd, &status) != 0 || static_cast<std::size_t>(status.st_size) != kSegmentBytes) {
    return fail(kWhere, "the peer's control segment has another size than ours", "run the same version at both ends");
  }
  auto mapping = map_peer_file(fd, 0, kSegmentBytes, false);
  if (!mapping) return tl::unexpected(mapping.error());
  Segment segment;
  segment.mapping_ = std::move(*mapping);
  const SegmentHeader& header = segment.view().header();
  if (load_shared(header.magic) != kSegmentMagic || header.abi != kAbiVersion ||
      header.segment_bytes != kSegmentBytes || header.process[0] != process.words[0] ||
      header.process[1] != process.words[1] || header.lane != lane) {
    return fail(kWhere, "the peer's control segment is not what its messages say", "run the same version at both ends");
  }
  segment.populate_queue();
  return segment;
}

void Segment::populate_qp(std::uint32_t index, std::uint32_t receive_wqes) const noexcept {
  mapping_.populate(kContextsOffset + index * sizeof(QpContext), sizeof(QpContext));
  mapping_.populate(kRecordsOffset + index * sizeof(ReceiveRecord), sizeof(ReceiveRecord));
  if (receive_wqes == 0) return;
  mapping_.populate(receive_ring_offset(index, receive_wqes), std::size_t{receive_wqes} * kReceiveWqeBytes);
}

void Segment::populate_shared_receives() const noexcept {
  mapping_.populate(kSharedRecordOffset, kSharedRingOffset + kSharedRingBytes - kSharedRecordOffset);
}

void Segment::populate_queue() const noexcept {
  mapping_.populate(0, sizeof(SegmentHeader));
  mapping_.populate(kCqesOffset, kLaneCqes * sizeof(mlx5_cqe64));
}

}  // namespace rodeo::dv::soft
