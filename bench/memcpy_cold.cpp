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
#include <sched.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

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

bool pin(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("One-core memcpy between cold memories, in GB/s");
  std::size_t block = std::size_t{1} << 20U;
  double seconds = 1.0;
  int core = 0;
  bool no_hugepages = false;
  app.add_option("--block", block, "bytes of one copy")->check(CLI::Range(std::size_t{64}, std::size_t{1} << 30U));
  app.add_option("--seconds", seconds, "how long to copy")->check(CLI::Range(0.01, 60.0));
  app.add_option("--core", core, "the core to run on")->check(CLI::Range(0, CPU_SETSIZE - 1));
  app.add_flag("--no-hugepages", no_hugepages, "ordinary pages, even if there are hugepages");
  CLI11_PARSE(app, argc, argv);

  if (!pin(core)) {
    fmt::print(stderr, "memcpy_cold: core {} is not to be had; choose one that this process may use\n", core);
    return 1;
  }
  const std::size_t side = side_bytes(block);
  const rodeo::pools::ArenaOptions options{.bytes = side, .hugepages = !no_hugepages, .name = "memcpy_cold"};
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
