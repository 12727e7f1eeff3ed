// SPDX-License-Identifier: Apache-2.0
#include "dv/provider_suite.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace rodeo::dv::suite {

namespace {
constexpr std::chrono::seconds kDestroyPatience{10};
}  // namespace

SharedBytes::SharedBytes(std::size_t bytes) : fd_(memfd_create("suite", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  EXPECT_NE(base, MAP_FAILED);
  bytes_ = {static_cast<std::byte*>(base), bytes};
}

SharedBytes::~SharedBytes() {
  munmap(bytes_.data(), bytes_.size());
  ::close(fd_);
}

void End::post_receives(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) ASSERT_TRUE(qp->post_receive(buffer(i), kBufferBytes, region.lkey));
  qp->publish_receives();
  if (qp->srq() != nullptr) qp->srq()->publish();
}

bool End::send(std::string_view text) {
  std::byte* bytes = qp->post_inline_send(static_cast<std::uint32_t>(text.size()));
  if (bytes == nullptr) return false;
  std::memcpy(bytes, text.data(), text.size());
  return true;
}

void ProviderSuite::open(std::uint32_t rnr_retry) {
  bed_ = GetParam().make(rnr_retry);
  ASSERT_NE(bed_, nullptr);
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    End& end = ends_[i];
    end = {};
    end.device = &bed_->device(i);
    end.memory = std::make_unique<SharedBytes>(End::kBytes);
    const auto whole = end.memory->bytes();
    auto region = end.device->register_memory(whole, end.memory->fd(), 0, Access::kRemoteReadWrite);
    ASSERT_TRUE(region) << region.error().message();
    end.region = *region;
    const std::size_t quarter = End::kBytes / 4;
    end.read_only =
        *end.device->register_memory(whole.subspan(quarter, quarter), end.memory->fd(), quarter, Access::kRemoteRead);
    end.local_only = *end.device->register_memory(whole.subspan(2 * quarter, quarter), end.memory->fd(), 2 * quarter,
                                                  Access::kLocal);
    auto group = end.device->make_poll_group();
    ASSERT_TRUE(group) << group.error().message();
    end.group = *group;
  }
}

void ProviderSuite::TearDown() { bed_.reset(); }

void ProviderSuite::turn() {
  bed_->settle();
  for (End& end : ends_) {
    while (auto event = end.device->next_event()) end.events.push_back(std::move(*event));
    std::array<Completion, 16> batch;
    const std::size_t n = poll_into(*end.group, batch);
    for (std::size_t i = 0; i < n; ++i) {
      const Completion& completion = batch[i];
      if (end.qp == nullptr || completion.qpn() != end.qp->qpn()) {
        ADD_FAILURE() << "a completion of a QP that does not exist: " << completion.qpn();
        continue;
      }
      if (completion.kind == CompletionKind::kSendQueue) {
        if (completion.status != Status::kSuccess) end.send_errors.push_back(completion);
        end.qp->retire_send(completion, [&](Token token) { end.tokens.push_back(token); });
      } else {
        std::byte* buffer = end.qp->take_receive(completion);
        if (buffer == nullptr && end.qp->srq() != nullptr && completion.status == Status::kFlushed) continue;
        EXPECT_NE(buffer, nullptr) << "a receive out of order: " << completion.wqe_counter();
        end.arrivals.push_back({completion, buffer});
      }
    }
    end.group->progress();
  }
}

bool ProviderSuite::run_until(const std::function<bool()>& done) {
  const auto end = std::chrono::steady_clock::now() + bed_->traits().patience;
  while (!done()) {
    if (std::chrono::steady_clock::now() > end) return false;
    turn();
  }
  return true;
}

void ProviderSuite::run_a_while() {
  for (int i = 0; i < 200; ++i) turn();
}

bool ProviderSuite::arrived(std::span<const std::byte> sent, std::span<const std::byte> received) const {
  if (received.size() < sent.size() || !std::equal(sent.begin(), sent.end(), received.begin())) return false;
  const auto rest = received.subspan(sent.size());
  if (!bed_->traits().pads_private_data) return rest.empty();
  return std::all_of(rest.begin(), rest.end(), [](std::byte b) { return b == std::byte{0}; });
}

bool ProviderSuite::has_event(const End& end, CmEventKind kind) const {
  for (const CmEvent& event : end.events) {
    if (event.kind == kind) return true;
  }
  return false;
}

void ProviderSuite::listen() {
  auto listener = b_.device->listen(bed_->address());
  ASSERT_TRUE(listener) << listener.error().message();
  listener_ = *listener;
}

void ProviderSuite::connect(std::size_t receives, const QpSizes& sizes) {
  listen();
  connect_again(receives, sizes);
}

void ProviderSuite::connect_again(std::size_t receives, const QpSizes& sizes) {
  for (End& end : ends_) {
    end.events.clear();
    end.arrivals.clear();
    end.send_errors.clear();
    end.tokens.clear();
  }
  const std::array<std::byte, 8> asked{std::byte{1}, std::byte{2}, std::byte{3}};
  const std::array<std::byte, 4> answered{std::byte{9}, std::byte{8}};
  auto id = a_.device->connect(bed_->address(), *a_.group);
  ASSERT_TRUE(id) << id.error().message();
  a_.id = *id;
  ASSERT_TRUE(run_until([&] { return has_event(a_, CmEventKind::kRouteResolved); }));
  auto qp = a_.device->make_qp(a_.id, sizes);
  ASSERT_TRUE(qp) << qp.error().message();
  a_.qp = *qp;
  a_.post_receives(receives);
  ASSERT_TRUE(a_.device->finish_connect(a_.id, asked));
  ASSERT_TRUE(run_until([&] { return has_event(b_, CmEventKind::kConnectRequest); }));
  const CmEvent request = b_.events.back();
  EXPECT_EQ(request.listener, listener_);
  EXPECT_TRUE(arrived(asked, request.private_data));
  b_.id = request.id;
  qp = b_.device->make_qp(b_.id, sizes);
  ASSERT_TRUE(qp) << qp.error().message();
  b_.qp = *qp;
  b_.post_receives(receives);
  ASSERT_TRUE(b_.device->accept(b_.id, answered));
  ASSERT_TRUE(
      run_until([&] { return has_event(a_, CmEventKind::kEstablished) && has_event(b_, CmEventKind::kEstablished); }));
  const auto& reply = a_.events.back().private_data;
  EXPECT_TRUE(arrived(answered, reply));
}

void ProviderSuite::drain(End& end) {
  end.device->move_to_error(*end.qp);
  ASSERT_TRUE(end.qp->post_drain(kNoToken));
  end.qp->ring_doorbell();
}

void ProviderSuite::close() {
  a_.device->disconnect(a_.id);
  ASSERT_TRUE(run_until([&] { return has_event(b_, CmEventKind::kDisconnected); }));
  for (End& end : ends_) drain(end);
  ASSERT_TRUE(run_until([&] { return a_.qp->drained() && b_.qp->drained(); }));
  for (End& end : ends_) {
    end.taken_back.clear();
    if (end.qp->srq() != nullptr) {
      end.qp->srq()->take_back([&](std::byte* buffer) { end.taken_back.push_back(buffer); });
    }
  }
  const auto begin = std::chrono::steady_clock::now();
  for (End& end : ends_) {
    end.device->destroy(end.id);
    end.qp = nullptr;
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, kDestroyPatience) << "something still holds a QP";
}

}  // namespace rodeo::dv::suite
