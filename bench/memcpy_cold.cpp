// SPDX-License-Identifier: Apache-2.0
// The limit that bulk transfers are held against: one core copying blocks from cold memory to cold memory, in the kind
// of pages that the engine's pools have. Prints one JSON object.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "bench/flags.h"
#include "bench/pinning.h"
#include "pools/arena.h"

namespace {

/// Bytes of memory that the kernel would give without swapping; 4 GiB where it does not say.
std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    std::size_t kib = 0;
    if (word == "MemAvailable:" && file >> kib) return kib * 1024;
  }
  return std::size_t{4} << 30U;
}

/// Four times the last-level cache a side, as far as a quarter of the free memory allows.
std::size_t side_bytes(std::size_t block) {
  const long reported = ::sysconf(_SC_LEVEL3_CACHE_SIZE);
  const std::size_t cache = reported > 0 ? static_cast<std::size_t>(reported) : std::size_t{32} << 20U;
  const std::size_t wanted = std::max(4 * cache, 8 * block);
  return std::min(wanted, available_memory() / 4) / block * block;
}

}  // namespace

int main(int argc, char** argv) {
  double block_bytes = 1 << 20;
  double seconds = 1.0;
  double core = 0;
  double hugepages = 1;
  if (const auto status = rodeo::bench::parse_flags(argc, argv,
                                                    {{"--block", &block_bytes, 64, 1 << 30},
                                                     {"--seconds", &seconds, 0.01, 60},
                                                     {"--core", &core, 0, CPU_SETSIZE - 1},
                                                     {"--hugepages", &hugepages, 0, 1}})) {
    return *status;
  }
  const auto block = static_cast<std::size_t>(block_bytes);
  if (!rodeo::bench::pin_to_core(static_cast<int>(core))) {
    fmt::print(stderr, "memcpy_cold: core {} is not to be had; choose one that this process may use\n", core);
    return 1;
  }
  const std::size_t side = side_bytes(block);
  const rodeo::pools::ArenaOptions options{.bytes = side, .hugepages = hugepages != 0, .name = "memcpy_cold"};
  auto from = rodeo::pools::Arena::create(options);
  auto to = rodeo::pools::Arena::create(options);
  if (!from || !to) {
    fmt::print(stderr, "{}\n", (from ? to : from).error().message());
    return 1;
  }
  std::memset(from->bytes().data(), 0x5a, side);
  std::memset(to->bytes().data(), 0, side);

  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::uint64_t copied = 0;
  std::size_t at = 0;
  auto now = start;
  while (now < end) {
    std::memcpy(to->bytes().data() + at, from->bytes().data() + at, block);
    copied += block;
    at = at + block == side ? 0 : at + block;
    now = Clock::now();
  }
  const double took = std::chrono::duration<double>(now - start).count();
  fmt::print(
      "{{\"gigabytes_per_second\": {:.4f}, \"block_bytes\": {}, \"side_bytes\": {}, \"hugepages\": {}, "
      "\"seconds\": {:.3f}}}\n",
      static_cast<double>(copied) / took / 1e9, block, side, from->hugepages() && to->hugepages(), took);
  return 0;
}
