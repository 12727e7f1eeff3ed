// SPDX-License-Identifier: Apache-2.0
// The mlx5 queues without a device: WQEs built in the send ring and rung with one doorbell a burst, and CQEs taken by
// owner bit. The doorbell register is ordinary memory, and a few stores per burst stand in for the device's
// completions, so the figures are those of our code, with those stores in them.

#include <benchmark/benchmark.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>

#include "bench/per_operation.h"
#include "dv/mlx5/cq.h"
#include "dv/mlx5/qp.h"
#include "dv/provider.h"

namespace {

using rodeo::bench::PerOperation;
using namespace rodeo::dv;

constexpr std::uint32_t kQpn = 0x123;
constexpr std::uint32_t kSendBbs = 1024;
constexpr std::uint32_t kReceives = 1024;
constexpr std::uint32_t kCqes = 1024;
constexpr std::uint32_t kMessageBytes = 92;  // a NULL Call: transport header, RPC header, short AUTH_SYS
constexpr std::uint32_t kReceiveBytes = 1024;
constexpr std::uint32_t kMaxBurst = 64;

/// Zeroed memory on page boundaries, as rings are.
class Pages {
 public:
  explicit Pages(std::size_t bytes) : memory_(static_cast<std::byte*>(::operator new(bytes, kAlignment))) {
    std::memset(memory_.get(), 0, bytes);
  }
  [[nodiscard]] std::byte* data() const noexcept { return memory_.get(); }
  [[nodiscard]] rodeo::Be32* words() const noexcept { return reinterpret_cast<rodeo::Be32*>(memory_.get()); }

 private:
  static constexpr std::align_val_t kAlignment{4096};
  struct Free {
    void operator()(std::byte* bytes) const noexcept { ::operator delete(bytes, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> memory_;
};

/// Writes CQEs as the device would: fields first, owner bit last.
class CqeWriter {
 public:
  explicit CqeWriter(const Pages& ring) : cqes_(reinterpret_cast<mlx5_cqe64*>(ring.data())) {
    for (std::uint32_t i = 0; i < kCqes; ++i) cqes_[i].op_own = MLX5_CQE_INVALID << 4;
  }
  void write(std::uint8_t opcode, std::uint16_t wqe_counter, std::uint32_t byte_count) noexcept {
    mlx5_cqe64& cqe = cqes_[producer_ & (kCqes - 1)];
    cqe.byte_cnt = htobe32(byte_count);
    cqe.sop_drop_qpn = htobe32(kQpn);
    cqe.wqe_counter = htobe16(wqe_counter);
    const auto owner = static_cast<std::uint8_t>((producer_ & kCqes) != 0 ? 1 : 0);
    __atomic_store_n(&cqe.op_own, static_cast<std::uint8_t>((opcode << 4) | owner), __ATOMIC_RELEASE);
    ++producer_;
  }

 private:
  mlx5_cqe64* cqes_;
  std::uint32_t producer_ = 0;
};

struct Queues {
  Pages sq{kSendBbs * std::size_t{mlx5::kBbBytes}};
  Pages rq{kReceives * std::size_t{mlx5::kReceiveStride}};
  Pages cqes{kCqes * sizeof(mlx5_cqe64)};
  Pages records{4096};
  Pages doorbell{4096};
  mlx5::BlueFlame bf{.reg = doorbell.data(), .bytes = 256};
  CqeWriter device{cqes};
  mlx5::Cq cq{mlx5::CqRing{.cqes = cqes.data(), .dbrec = records.words() + 16, .cqe_count = kCqes}};
  mlx5::Qp qp{mlx5::QpRings{.sq = sq.data(),
                            .sq_bbs = kSendBbs,
                            .rq = rq.data(),
                            .rq_wqes = kReceives,
                            .dbrec = records.words(),
                            .bf = &bf,
                            .qpn = kQpn,
                            .max_inline = 512}};
};

void post_inline_sends(benchmark::State& state) {
  Queues queues;
  const auto burst = static_cast<std::uint32_t>(state.range(0));
  std::array<std::byte, kMessageBytes> message{};
  std::array<Completion, kMaxBurst> completions;
  const std::uint32_t blocks = mlx5::bbs_of_ds(mlx5::ds_of_inline_send(kMessageBytes));
  std::uint16_t last = 0;
  PerOperation per_operation(state);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < burst; ++i) {
      std::byte* out = queues.qp.post_inline_send(kMessageBytes);
      if (out == nullptr) {
        state.SkipWithError("the send ring was full");
        break;
      }
      std::memcpy(out, message.data(), kMessageBytes);
    }
    queues.qp.ring_doorbell();
    last = static_cast<std::uint16_t>(last + burst * blocks);
    // Every so often a WQE is signalled; a completion of the burst's last one covers all of them.
    queues.device.write(MLX5_CQE_REQ, static_cast<std::uint16_t>(last - blocks), 0);
    const std::size_t n = poll_into(queues.cq, completions);
    for (std::size_t i = 0; i < n; ++i) queues.qp.retire_send(completions[i], [](Token) {});
  }
  per_operation.report(burst);
}
BENCHMARK(post_inline_sends)->ArgName("burst")->Arg(1)->Arg(8)->Arg(32);

void take_and_refill_receives(benchmark::State& state) {
  Queues queues;
  Pages buffers(kReceives * std::size_t{kReceiveBytes});
  const auto burst = static_cast<std::uint32_t>(state.range(0));
  std::array<Completion, kMaxBurst> completions;
  for (std::uint32_t i = 0; i < kReceives; ++i) {
    if (!queues.qp.post_receive(buffers.data() + i * std::size_t{kReceiveBytes}, kReceiveBytes, 0x4200)) break;
  }
  queues.qp.publish_receives();
  std::uint16_t next = 0;
  PerOperation per_operation(state);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < burst; ++i) queues.device.write(MLX5_CQE_RESP_SEND, next++, kMessageBytes);
    const std::size_t n = poll_into(queues.cq, std::span(completions.data(), burst));
    for (std::size_t i = 0; i < n; ++i) {
      std::byte* buffer = queues.qp.take_receive(completions[i]);
      if (buffer == nullptr || !queues.qp.post_receive(buffer, kReceiveBytes, 0x4200)) {
        state.SkipWithError("a receive was lost");
        break;
      }
    }
    queues.qp.publish_receives();
  }
  per_operation.report(burst);
}
BENCHMARK(take_and_refill_receives)->ArgName("burst")->Arg(1)->Arg(8)->Arg(32);

void post_writes(benchmark::State& state) {
  Queues queues;
  Pages source(1 << 20);
  const std::array<Sge, 1> piece{Sge{source.data(), 1 << 20, 0x4200}};
  const auto burst = static_cast<std::uint32_t>(state.range(0));
  std::array<Completion, kMaxBurst> completions;
  std::uint16_t last = 0;
  PerOperation per_operation(state);
  for (auto _ : state) {
    for (std::uint32_t i = 0; i < burst; ++i) {
      if (!queues.qp.post_write(piece, RemoteAddress{0x7f0000000000, 0x1234}, kNoToken)) {
        state.SkipWithError("the send ring was full");
        break;
      }
    }
    queues.qp.ring_doorbell();
    last = static_cast<std::uint16_t>(last + burst);
    queues.device.write(MLX5_CQE_REQ, static_cast<std::uint16_t>(last - 1), 0);
    const std::size_t n = poll_into(queues.cq, completions);
    for (std::size_t i = 0; i < n; ++i) queues.qp.retire_send(completions[i], [](Token) {});
  }
  per_operation.report(burst);
}
BENCHMARK(post_writes)->ArgName("burst")->Arg(1)->Arg(8)->Arg(32);

}  // namespace

BENCHMARK_MAIN();
