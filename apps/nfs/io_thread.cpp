// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/io_thread.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>

#include "apps/nfs/directory_names.h"
#include "apps/nfs/permissions.h"
#include "pools/errno_text.h"

namespace rodeo::nfs {
namespace {

constexpr std::size_t kRequests = 8192;

template <class T>
T& as(Operation& operation) noexcept {
  return static_cast<T&>(operation);
}

HandleView object_of(Operation& operation, StoreCall what) noexcept {
  if (what == StoreCall::kRead) return as<Read>(operation).object;
  return what == StoreCall::kWrite ? as<Write>(operation).object : as<Commit>(operation).object;
}

void give_attributes(Operation& operation, StoreCall what, const Fattr3& attributes) noexcept {
  if (what == StoreCall::kRead) as<Read>(operation).attributes = attributes;
  if (what == StoreCall::kWrite) as<Write>(operation).wcc.after = attributes;
  if (what == StoreCall::kCommit) as<Commit>(operation).wcc.after = attributes;
}

/// There is one for each job, and submitting frees them.
io_uring_sqe* next_entry(io_uring& ring) noexcept {
  io_uring_sqe* entry = ::io_uring_get_sqe(&ring);
  while (entry == nullptr) {
    (void)::io_uring_submit(&ring);
    entry = ::io_uring_get_sqe(&ring);
  }
  return entry;
}

}  // namespace

Result<std::unique_ptr<IoThread>> IoThread::start(const DirectoryVolume& volume, unsigned depth) {
  std::unique_ptr<IoThread> made(new IoThread(volume));
  auto requests = pools::MpscRing<Request>::create(kRequests);
  if (!requests) return tl::unexpected(requests.error());
  made->requests_ = std::move(*requests);
  if (const int error = ::io_uring_queue_init(depth + 1, &made->ring_, 0); error != 0) {
    return fail("directory store", "io_uring is not to be had: " + errno_text(-error),
                "allow it (sysctl kernel.io_uring_disabled, or the container's system call filter)");
  }
  made->has_ring_ = true;
  made->wakeups_ = Descriptor(::eventfd(0, EFD_CLOEXEC));
  if (!made->wakeups_) return fail("directory store", "there is no eventfd: " + errno_text(), "raise `ulimit -n`");
  for (unsigned i = 0; i < depth; ++i) {
    made->jobs_.push_back(std::make_unique<Job>());
    made->free_jobs_.push_back(made->jobs_.back().get());
  }
  made->thread_ = std::thread([thread = made.get()] { thread->run(); });
  return made;
}

IoThread::~IoThread() {
  stopping_.store(true);
  if (thread_.joinable()) {
    wake();
    thread_.join();
  }
  if (has_ring_) ::io_uring_queue_exit(&ring_);
}

void IoThread::hand_over(Operation& operation, StoreCall what) noexcept {
  if (!requests_->push(Request{&operation, what})) return operation.complete(NfsStat3::kJukebox);
  // Pairs with sleep(): either it sees the request, or we see that it sleeps.
  if (sleeping_.exchange(false)) wake();
}

void IoThread::wake() noexcept {
  const std::uint64_t one = 1;
  (void)!::write(wakeups_.get(), &one, sizeof one);
}

void IoThread::watch_wakeups() noexcept {
  io_uring_sqe* entry = next_entry(ring_);
  ::io_uring_prep_read(entry, wakeups_.get(), &wakeup_count_, sizeof wakeup_count_, 0);
  ::io_uring_sqe_set_data(entry, nullptr);
}

void IoThread::run() noexcept {
  (void)::unshare(CLONE_FS);  // its own umask
  (void)::umask(0);
  watch_wakeups();
  for (;;) {
    const std::size_t taken = take_requests();
    (void)::io_uring_submit(&ring_);
    if (take_completions() + taken != 0) continue;
    if (stopping_.load() && requests_->empty() && free_jobs_.size() == jobs_.size()) return;
    sleep();
  }
}

std::size_t IoThread::take_requests() noexcept {
  std::array<Request, kBurst> burst;
  const std::size_t most = std::min(burst.size(), free_jobs_.size());
  const std::size_t n = requests_->pop(std::span(burst).first(most));
  for (const Request& request : std::span(burst).first(n)) perform(request);
  return n;
}

std::size_t IoThread::take_completions() noexcept {
  std::size_t n = 0;
  io_uring_cqe* completion = nullptr;
  while (::io_uring_peek_cqe(&ring_, &completion) == 0) {
    auto* const job = static_cast<Job*>(::io_uring_cqe_get_data(completion));
    const int result = completion->res;
    ::io_uring_cqe_seen(&ring_, completion);
    job == nullptr ? watch_wakeups() : finish(*job, result);
    ++n;
  }
  return n;
}

void IoThread::sleep() noexcept {
  (void)sleeping_.exchange(true);  // pairs with hand_over
  if (free_jobs_.empty() || requests_->empty()) (void)::io_uring_submit_and_wait(&ring_, 1);
  sleeping_.store(false);
}

void IoThread::perform(const Request& request) noexcept {
  Operation& operation = *request.operation;
  NfsStat3 status{};
  switch (request.what) {
    case StoreCall::kGetattr:
      status = directory_getattr(volume_, as<Getattr>(operation));
      break;
    case StoreCall::kSetattr:
      status = directory_setattr(volume_, as<Setattr>(operation));
      break;
    case StoreCall::kLookup:
      status = directory_lookup(volume_, as<Lookup>(operation));
      break;
    case StoreCall::kReadlink:
      status = directory_readlink(volume_, as<Readlink>(operation));
      break;
    case StoreCall::kCreate:
      status = directory_create(volume_, as<Create>(operation));
      break;
    case StoreCall::kRemove:
      status = directory_remove(volume_, as<Remove>(operation));
      break;
    case StoreCall::kRename:
      status = directory_rename(volume_, as<Rename>(operation));
      break;
    case StoreCall::kLink:
      status = directory_link(volume_, as<Link>(operation));
      break;
    case StoreCall::kReaddir:
      status = listings_.readdir(as<Readdir>(operation));
      break;
    case StoreCall::kFsstat:
      status = directory_fsstat(volume_, as<Fsstat>(operation));
      break;
    case StoreCall::kRead:
    case StoreCall::kWrite:
    case StoreCall::kCommit:
      return begin(request);
  }
  operation.complete(status);
}

void IoThread::begin(const Request& request) noexcept {
  Operation& operation = *request.operation;
  NfsStat3 status{};
  const Descriptor object = volume_.find(object_of(operation, request.what), status);
  Fattr3 attributes;
  if (object && !DirectoryVolume::stat(object.get(), attributes)) status = status_of_errno(errno);
  if (status != NfsStat3::kOk) return operation.complete(status);
  give_attributes(operation, request.what, attributes);
  const Credentials& who = operation.credentials;
  if (attributes.type != Ftype3::kReg) {
    const bool is_read_of_directory = request.what == StoreCall::kRead && attributes.type == Ftype3::kDir;
    return operation.complete(is_read_of_directory ? NfsStat3::kIsdir : NfsStat3::kInval);
  }
  // Owners may always read and write what they have open, so these rules are ours and not the kernel's.
  const bool may = request.what == StoreCall::kRead ? may_read(attributes, who)
                                                    : request.what == StoreCall::kCommit || may_write(attributes, who);
  if (!may) return operation.complete(NfsStat3::kAcces);
  if (request.what == StoreCall::kWrite) {
    const std::uint32_t mode = mode_after_write(attributes, who);
    if (mode != attributes.mode && ::chmod(DirectoryVolume::Path(object.get()).c_str(), mode) != 0) {
      return operation.complete(status_of_errno(errno));
    }
  }
  Job& job = *free_jobs_.back();
  job.request = request;
  job.file = DirectoryVolume::reopen(object.get(), request.what == StoreCall::kWrite ? O_WRONLY : O_RDONLY);
  if (!job.file) return operation.complete(status_of_errno(errno));
  free_jobs_.pop_back();
  io_uring_sqe* entry = next_entry(ring_);
  if (request.what == StoreCall::kRead) {
    auto& read = as<Read>(operation);
    ::io_uring_prep_read(entry, job.file.get(), read.buffer.data(), read.count, read.offset);
  } else if (request.what == StoreCall::kWrite) {
    auto& write = as<Write>(operation);
    unsigned n = 0;
    for (const RegisteredBytes piece : write.data.all()) job.pieces[n++] = {piece.data(), piece.size()};
    ::io_uring_prep_writev(entry, job.file.get(), job.pieces.data(), n, write.offset);
    // The kernel has the data on the disk before it answers.
    if (write.stable == StableHow::kDataSync) entry->rw_flags = RWF_DSYNC;
    if (write.stable == StableHow::kFileSync) entry->rw_flags = RWF_SYNC;
  } else {
    ::io_uring_prep_fsync(entry, job.file.get(), 0);
  }
  ::io_uring_sqe_set_data(entry, &job);
}

void IoThread::finish(Job& job, int result) noexcept {
  Operation& operation = *job.request.operation;
  const StoreCall what = job.request.what;
  Fattr3 attributes;
  const bool known = DirectoryVolume::stat(job.file.get(), attributes);
  if (known) give_attributes(operation, what, attributes);
  job.file.reset();
  free_jobs_.push_back(&job);
  if (result < 0) return operation.complete(status_of_errno(-result));
  const auto bytes = static_cast<std::size_t>(result);
  if (what == StoreCall::kRead) {
    auto& read = as<Read>(operation);
    read.data.add(read.buffer.first(bytes));
    read.eof = bytes < read.count || (known && read.offset + bytes >= attributes.size);
  } else if (what == StoreCall::kWrite) {
    auto& write = as<Write>(operation);
    if (bytes == 0 && write.count != 0) return operation.complete(NfsStat3::kNospc);
    write.written = static_cast<std::uint32_t>(bytes);
    write.committed = write.stable;
    write.verifier = volume_.verifier();
  } else {
    as<Commit>(operation).verifier = volume_.verifier();
  }
  operation.complete(NfsStat3::kOk);
}

}  // namespace rodeo::nfs
