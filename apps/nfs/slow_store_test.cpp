// SPDX-License-Identifier: Apache-2.0
// A store that completes later, from another thread, with and without memory of its own: what the server does
// meanwhile, and when the client goes away first.

#include <algorithm>
#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "apps/nfs/test_nfs_pair.h"

namespace rodeo::nfs {
namespace {

using test::Answer;
using test::NfsPair;
using test::pattern;

const rodeo::test::RuntimeDirectory runtime_directory;

/// Hands every operation to a thread, which gives it to a memory store.
class SlowStore final : public Store {
 public:
  SlowStore(RegisteredBytes memory, bool own_memory)
      : inner_(test::must(make_memory_store(memory))), own_memory_(own_memory), thread_([this] { run(); }) {}
  ~SlowStore() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    news_.notify_one();
    thread_.join();
  }

  /// While held, nothing completes.
  void hold(bool held) {
    {
      const std::scoped_lock lock(mutex_);
      held_ = held;
    }
    news_.notify_one();
  }
  [[nodiscard]] std::size_t waiting() {
    const std::scoped_lock lock(mutex_);
    return work_.size();
  }

  [[nodiscard]] StoreTraits traits() const noexcept override {
    StoreTraits traits = inner_->traits();
    traits.own_memory = own_memory_;
    return traits;
  }
  [[nodiscard]] FileHandle root() const noexcept override { return inner_->root(); }
  void getattr(Getattr& operation) noexcept override { later(operation, &Store::getattr); }
  void setattr(Setattr& operation) noexcept override { later(operation, &Store::setattr); }
  void lookup(Lookup& operation) noexcept override { later(operation, &Store::lookup); }
  void readlink(Readlink& operation) noexcept override { later(operation, &Store::readlink); }
  void create(Create& operation) noexcept override { later(operation, &Store::create); }
  void remove(Remove& operation) noexcept override { later(operation, &Store::remove); }
  void rename(Rename& operation) noexcept override { later(operation, &Store::rename); }
  void link(Link& operation) noexcept override { later(operation, &Store::link); }
  void readdir(Readdir& operation) noexcept override { later(operation, &Store::readdir); }
  void fsstat(Fsstat& operation) noexcept override { later(operation, &Store::fsstat); }
  void commit(Commit& operation) noexcept override { later(operation, &Store::commit); }
  void prepare_write(Write& operation) noexcept override { later(operation, &Store::prepare_write); }
  void end(Read& operation) noexcept override { inner_->end(operation); }
  void end(Write& operation) noexcept override { inner_->end(operation); }
  void read(Read& operation) noexcept override {
    if (own_memory_) return later(operation, &Store::read);
    push([this, &operation] { copy_out(operation); });
  }
  void write(Write& operation) noexcept override {
    if (own_memory_) return later(operation, &Store::write);
    push([this, &operation] { copy_in(operation); });
  }

 private:
  template <class Op>
  void later(Op& operation, void (Store::*method)(Op&) noexcept) noexcept {
    push([this, &operation, method] { (inner_.get()->*method)(operation); });
  }
  void push(std::function<void()> work) {
    {
      const std::scoped_lock lock(mutex_);
      work_.push_back(std::move(work));
    }
    news_.notify_one();
  }
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      news_.wait(lock, [this] { return (stopping_ || !held_) && (stopping_ || !work_.empty()); });
      if (work_.empty()) return;
      const auto work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      lock.lock();
    }
  }

  /// As a store that has no memory of its own must: through the server's buffer.
  void copy_out(Read& operation) {
    Read inner([](Operation& op, NfsStat3 status) noexcept { *static_cast<NfsStat3*>(op.context()) = status; },
               &status_);
    inner.credentials = operation.credentials;
    inner.object = operation.object;
    inner.offset = operation.offset;
    inner.count = operation.count;
    inner_->read(inner);
    if (status_ == NfsStat3::kOk) {
      std::size_t at = 0;
      for (const RegisteredBytes& piece : inner.data.all()) {
        std::memcpy(operation.buffer.data() + at, piece.data(), piece.size());
        at += piece.size();
      }
      (void)operation.data.add(operation.buffer.first(at));
      operation.eof = inner.eof;
      inner_->end(inner);
    }
    operation.attributes = inner.attributes;
    operation.complete(status_);
  }
  void copy_in(Write& operation) {
    Write inner([](Operation& op, NfsStat3 status) noexcept { *static_cast<NfsStat3*>(op.context()) = status; },
                &status_);
    inner.credentials = operation.credentials;
    inner.object = operation.object;
    inner.offset = operation.offset;
    inner.count = operation.count;
    inner_->prepare_write(inner);
    if (status_ == NfsStat3::kOk) {
      std::size_t at = 0;
      const std::span<const RegisteredBytes> from = operation.data.all();
      for (const RegisteredBytes& piece : inner.data.all()) {
        std::memcpy(piece.data(), from[0].data() + at, piece.size());
        at += piece.size();
      }
      inner_->write(inner);
      operation.written = inner.written;
      inner_->end(inner);
    }
    operation.wcc = inner.wcc;
    operation.complete(status_);
  }

  std::unique_ptr<Store> inner_;
  bool own_memory_;
  NfsStat3 status_ = NfsStat3::kOk;
  std::mutex mutex_;
  std::condition_variable news_;
  std::deque<std::function<void()>> work_;
  bool held_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

class SlowStoreTest : public testing::TestWithParam<bool> {
 protected:
  SlowStoreTest()
      : pair_(
            [this](Engine&, RegisteredBytes memory) {
              store_ = std::make_unique<SlowStore>(memory.first(NfsPair::kStoreBytes), GetParam());
              return std::vector<Export>{{"/slow", store_.get(), {}}};
            },
            3),
        root_(pair_.root()) {}

  std::unique_ptr<SlowStore> store_;
  NfsPair pair_;
  FileHandle root_;
};

TEST_P(SlowStoreTest, EveryOperationMayCompleteLater) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(300'000);
  EXPECT_EQ(pair_.write(file, 5, data).count, data.size());
  EXPECT_EQ(pair_.read(file, 5, 300'000).data, data);
  EXPECT_EQ(pair_.attributes(file).size, data.size() + 5);
  EXPECT_EQ(pair_.call(NfsProc3::kCommit, NfsPair::of_read(file, 0, 0)).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kFsinfo, NfsPair::of_handle(file)).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kFsstat, NfsPair::of_handle(file)).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kLookup, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kLookup, NfsPair::of_name(root_, "g")).status(), NfsStat3::kNoent);
  for (int i = 0; i < 50; ++i) pair_.make_file(root_, "entry" + std::to_string(i));
  const Answer listing = pair_.call(NfsProc3::kReaddirplus,
                                    [&](XdrWriter& out) {
                                      encode(out, root_);
                                      out.u64(0);
                                      out.u64(0);
                                      out.u32(32'000);
                                      out.u32(32'000);
                                    },
                                    {.sources = {}, .sinks = {}, .max_results = 32'004});
  EXPECT_EQ(listing.status(), NfsStat3::kOk);
  EXPECT_GT(listing.seen.results.size(), 53U * 100U);
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
}

TEST_P(SlowStoreTest, MoreCallsThanBuffersAllEnd) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(20 * 8192);
  EXPECT_EQ(pair_.write(file, 0, data).count, data.size());
  store_->hold(true);
  const RegisteredBytes memory = pair_.client->application_memory();
  std::array<rodeo::test::Seen, 20> seen;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    test::Bulk bulk;
    bulk.sinks = {memory.subspan(i * 8192, 8192)};
    bulk.max_results = 120;
    pair_.submit(NfsProc3::kRead, NfsPair::of_read(file, i * 8192, 8192), bulk, seen[i]);
  }
  for (int i = 0; i < 1000; ++i) pair_.turn();
  store_->hold(false);
  pair_.until([&] { return std::ranges::all_of(seen, [](const auto& one) { return one.times == 1; }); });
  for (const auto& one : seen) EXPECT_EQ(load_be32(one.results.data()), 0U);
  EXPECT_EQ(std::memcmp(memory.data(), data.data(), data.size()), 0);
}

TEST_P(SlowStoreTest, AClientThatGoesLeavesNothingPinned) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(100'000);
  EXPECT_EQ(pair_.write(file, 0, data).count, data.size());
  const auto free_bytes = [&] {
    const Answer answer = pair_.call(NfsProc3::kFsstat, NfsPair::of_handle(root_));
    XdrReader in = answer.body();
    std::optional<Fattr3> attributes;
    decode(in, attributes);
    (void)in.u64();
    return in.u64();
  };
  const std::uint64_t before = free_bytes();
  store_->hold(true);
  std::array<rodeo::test::Seen, 4> seen;
  const RegisteredBytes memory = pair_.client->application_memory();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    test::Bulk bulk;
    const bool read = i % 2 == 0;
    if (read) {
      bulk.sinks = {memory.subspan(i * 10'000, 10'000)};
      bulk.max_results = 120;
    } else {
      bulk.sources = {{NfsPair::offset_of_data(file), memory.subspan(i * 10'000, 10'000)}};
    }
    // The WRITEs go into a hole, and so take pages.
    pair_.submit(read ? NfsProc3::kRead : NfsProc3::kWrite,
                 read ? NfsPair::of_read(file, 0, 10'000) : NfsPair::of_write(file, 1'000'000, 10'000, 10'000), bulk,
                 seen[i]);
  }
  pair_.until([&] { return store_->waiting() >= 2; });
  pair_.client->disconnect(pair_.connection);
  for (int i = 0; i < 1000; ++i) pair_.turn();
  store_->hold(false);
  pair_.until([&] { return pair_.server->connection_count() == 0; });
  pair_.connection = pair_.connect();
  EXPECT_TRUE(pair_.call(NfsProc3::kNull, {}).ok());
  if (GetParam()) {
    EXPECT_EQ(free_bytes(), before);  // nothing came, so no page became the file's
  }
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
  EXPECT_EQ(free_bytes(), NfsPair::kStoreBytes - 65'536);  // all but the zeros
}

INSTANTIATE_TEST_SUITE_P(Memory, SlowStoreTest, testing::Values(false, true),
                         [](const auto& of) { return std::string(of.param ? "OfItsOwn" : "OfTheServer"); });

}  // namespace
}  // namespace rodeo::nfs
