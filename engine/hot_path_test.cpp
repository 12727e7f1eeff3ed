// SPDX-License-Identifier: Apache-2.0

// The data path allocates nothing: every operator new and malloc of this program is counted while calls of every shape
// run, after a warm-up.

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/test_pair.h"

namespace {

std::atomic<bool> counting{false};
std::atomic<std::uint64_t> allocations{0};

void* counted(std::size_t size, std::size_t alignment) noexcept {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  return alignment <= alignof(std::max_align_t)
             ? std::malloc(size)
             : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}

void* counted_or_throw(std::size_t size, std::size_t alignment) {
  void* out = counted(size, alignment);
  if (out == nullptr) throw std::bad_alloc();
  return out;
}

}  // namespace

// Those that throw nothing as well: the address sanitizer has them end in itself, and not in the others.
void* operator new(std::size_t size) { return counted_or_throw(size, 1); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept { return counted(size, 1); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  return counted_or_throw(size, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t size, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return counted(size, static_cast<std::size_t>(alignment));
}
// Not inlined: a compiler that sees free() take what operator new gave warns of it.
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace rodeo {
namespace {

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kProgram = 0x20000003;
constexpr std::size_t kBulk = 65536;

void null(Call& call, void*) noexcept { call.reply(); }
void mirror(Call& call, void*) noexcept {
  XdrReader reader = call.arguments();
  const BulkArgument data = call.bulk_argument(reader, kBulk);
  if (!data.ok) return call.reject(AcceptStat::kGarbageArgs);
  call.state()[0] = data.length;
  call.pull(data, [](Call& pulled, void*) noexcept {
    pulled.push(pulled.kept(0).first(pulled.state()[0]));
    pulled.reply();
  });
}

struct Counted {
  std::uint64_t replies = 0;
  std::uint64_t errors = 0;
  static void on_reply(void* context, const Reply& reply) noexcept {
    auto& self = *static_cast<Counted*>(context);
    ++self.replies;
    self.errors += reply.ok() ? 0U : 1U;
  }
};

void run_without_allocating(Registration registration) {
  Config config = test::small_config();
  config.registration = registration;
  allocations = 0;
  test::Pair pair({.number = kProgram,
                   .version = 1,
                   .name = "test",
                   .procedures = {{.number = 0, .name = "NULL", .handler = null},
                                  {.number = 1, .name = "MIRROR", .handler = mirror, .max_read_chunks = 1}}},
                  config, config);
  Connection* connection = pair.connect(8);
  const CallTarget null_call(kProgram, 1, 0, {});
  const CallTarget mirror_call(kProgram, 1, 1, {});
  Buffer source = connection->make_buffer(kBulk);
  Buffer sink = connection->make_buffer(kBulk);
  std::byte length[4];
  store_be32(length, kBulk);
  const BulkSource sources[] = {{4, source.first(kBulk)}};
  const RegisteredBytes sinks[] = {sink.first(kBulk)};
  Counted seen;
  const auto run = [&](std::uint64_t calls) {
    const std::uint64_t target = seen.replies + calls;
    for (std::uint64_t i = 0; seen.replies < target; ++i) {
      CallRequest request{.target = &null_call, .on_reply = Counted::on_reply, .context = &seen};
      if (i % 16 == 0) {
        request.target = &mirror_call;
        request.arguments = length;
        request.sources = sources;
        request.sinks = sinks;
        request.max_results = 4;
        request.force_long_call = i % 32 == 0;
      }
      (void)connection->submit(request);
      pair.turn();
    }
  };
  run(2000);
  counting = true;
  run(100000);
  counting = false;
  EXPECT_EQ(allocations.load(), 0U);
  EXPECT_EQ(seen.errors, 0U);
  EXPECT_GT(test::Pair::counter(*pair.server, "write_bytes_pushed"), kBulk * 5000);
}

TEST(HotPath, AHundredThousandCallsAllocateNothing) { run_without_allocating(Registration::kPoolKey); }
TEST(HotPath, NorWithAKeyForEachCall) { run_without_allocating(Registration::kKeyPerCall); }
TEST(HotPath, NorWithRemoteInvalidation) { run_without_allocating(Registration::kRemoteInvalidation); }

}  // namespace
}  // namespace rodeo
