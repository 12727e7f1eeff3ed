// SPDX-License-Identifier: Apache-2.0
// Preloaded into a program (LD_PRELOAD), counts what each of its threads allocates and locks, in a file that another
// process reads while the program runs: $RODEO_PROBE_DIR/PID holds kSlots times {thread id, allocations, locks}, three
// 64-bit words each. Without that variable it only passes calls on.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" {
void* __libc_malloc(std::size_t bytes);
void* __libc_calloc(std::size_t count, std::size_t bytes);
void* __libc_realloc(void* memory, std::size_t bytes);
void* __libc_memalign(std::size_t alignment, std::size_t bytes);
}

namespace {

struct Slot {
  std::atomic<std::uint64_t> thread_id;
  std::atomic<std::uint64_t> allocations;
  std::atomic<std::uint64_t> locks;
};
constexpr std::size_t kSlots = 256;

/// Where threads count that the file has no slot for, and all of them when there is no file.
constinit Slot nowhere{};
constinit std::atomic<std::uint32_t> slots_used{0};
constinit std::atomic<Slot*> shared_slots{nullptr};
[[gnu::tls_model("initial-exec")]] constinit thread_local Slot* own_slot = nullptr;

[[gnu::constructor]] void open_file() {
  const char* directory = std::getenv("RODEO_PROBE_DIR");
  if (directory == nullptr) return;
  char path[512];
  std::snprintf(path, sizeof path, "%s/%d", directory, static_cast<int>(::getpid()));
  const int fd = ::open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  if (::ftruncate(fd, kSlots * sizeof(Slot)) == 0) {
    void* memory = ::mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory != MAP_FAILED) shared_slots.store(static_cast<Slot*>(memory), std::memory_order_release);
  }
  ::close(fd);
}

Slot& slot() noexcept {
  if (own_slot != nullptr) return *own_slot;
  Slot* slots = shared_slots.load(std::memory_order_acquire);  // pairs with open_file
  if (slots == nullptr) return nowhere;
  const std::uint32_t index = slots_used.fetch_add(1, std::memory_order_relaxed);
  own_slot = index < kSlots ? slots + index : &nowhere;
  own_slot->thread_id.store(static_cast<std::uint64_t>(::gettid()), std::memory_order_relaxed);
  return *own_slot;
}

void count_allocation() noexcept { slot().allocations.fetch_add(1, std::memory_order_relaxed); }
void count_lock() noexcept { slot().locks.fetch_add(1, std::memory_order_relaxed); }

template <class Lock>
using LockFunction = int(Lock*);

/// The C library's own function of that name.
template <class Lock>
LockFunction<Lock>* real(const char* name, std::atomic<LockFunction<Lock>*>& known) noexcept {
  LockFunction<Lock>* function = known.load(std::memory_order_relaxed);
  if (function == nullptr) {
    function = reinterpret_cast<LockFunction<Lock>*>(::dlsym(RTLD_NEXT, name));
    known.store(function, std::memory_order_relaxed);
  }
  return function;
}

}  // namespace

extern "C" {

void* malloc(std::size_t bytes) noexcept {
  count_allocation();
  return __libc_malloc(bytes);
}
void* calloc(std::size_t count, std::size_t bytes) noexcept {
  count_allocation();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, std::size_t bytes) noexcept {
  count_allocation();
  return __libc_realloc(memory, bytes);
}
void* memalign(std::size_t alignment, std::size_t bytes) noexcept {
  count_allocation();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept { return memalign(alignment, bytes); }
int posix_memalign(void** memory, std::size_t alignment, std::size_t bytes) noexcept {
  *memory = memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  static constinit std::atomic<LockFunction<pthread_mutex_t>*> known{nullptr};
  count_lock();
  return real("pthread_mutex_lock", known)(mutex);
}
int pthread_mutex_trylock(pthread_mutex_t* mutex) noexcept {
  static constinit std::atomic<LockFunction<pthread_mutex_t>*> known{nullptr};
  count_lock();
  return real("pthread_mutex_trylock", known)(mutex);
}
int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static constinit std::atomic<LockFunction<pthread_rwlock_t>*> known{nullptr};
  count_lock();
  return real("pthread_rwlock_rdlock", known)(lock);
}
int pthread_rwlock_wrlock(pthread_rwlock_t* lock) noexcept {
  static constinit std::atomic<LockFunction<pthread_rwlock_t>*> known{nullptr};
  count_lock();
  return real("pthread_rwlock_wrlock", known)(lock);
}
int pthread_spin_lock(pthread_spinlock_t* lock) noexcept {
  static constinit std::atomic<LockFunction<pthread_spinlock_t>*> known{nullptr};
  count_lock();
  return real("pthread_spin_lock", known)(lock);
}

}  // extern "C"
