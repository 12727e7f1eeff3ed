// SPDX-License-Identifier: Apache-2.0
#pragma once

// For tests: a store that completes later, from another thread, with or without memory of its own.

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "apps/nfs/memory_store.h"
#include "apps/nfs/test_nfs_pair.h"

namespace rodeo::nfs::test {

/// Hands every operation to a thread, which gives it to a memory store.
class SlowStore final : public Store {
 public:
  SlowStore(RegisteredBytes memory, bool own_memory)
      : inner_(must(make_memory_store(memory))), own_memory_(own_memory), thread_([this] { run(); }) {}
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

}  // namespace rodeo::nfs::test
