// SPDX-License-Identifier: Apache-2.0
#include "dv/soft/send_engine.h"

// Hot path. Runs on: the core that rings the doorbell.
//
// Type-2 memory windows live in their owner's segment, where the peer's core looks them up. A window is bound on one
// QP, so exactly one core can access memory through it: the one that executes the peer's sends of that connection.
// Once an invalidation has completed, no access may be under way any more. The accessor publishes the key it uses (the
// hazard), fences, and looks at the window again; the owner takes the window away, fences, and looks at the hazard.
// Plain regions are never taken away while connections live, so they need none of this.

namespace rodeo::dv::soft {

namespace {

/// The owner's window of `key`, or nullptr; whether the key is current is another question.
Window* window_of(const SegmentView& segment, std::uint32_t key) noexcept {
  const std::uint32_t index = key_index(key);
  if (index < kFirstWindowIndex || index - kFirstWindowIndex >= kKeyCount) return nullptr;
  return &segment.window(index - kFirstWindowIndex);
}

void full_fence() noexcept { std::atomic_thread_fence(std::memory_order_seq_cst); }

Outcome invalidate(SendEngine& engine, const Wqe& wqe) noexcept {
  Window* window = window_of(engine.own_segment, wqe.immediate);
  const std::uint32_t state = window == nullptr ? std::uint32_t{kUnused} : load_shared(window->state);
  // kInvalidating: the second try of a WQE that found the window in use.
  if ((state != kBound && state != kInvalidating) || window->key != wqe.immediate || window->qpn != engine.qpn) {
    return fail_wqe(engine, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, Reason::kInvalidateKey, false);
  }
  store_shared<std::uint32_t>(window->state, kInvalidating);
  full_fence();  // pairs with the one in acquire_remote
  if (load_shared(engine.own->hazard) == wqe.immediate && !engine.peer_gone.load(std::memory_order_acquire)) {
    return wait(engine, WaitReason::kWindowInUse);
  }
  store_shared<std::uint32_t>(window->state, kFree);
  return Outcome::kDone;
}

Outcome bind(SendEngine& engine, const Wqe& wqe, const mlx5_wqe_mkey_context_seg& context) noexcept {
  const auto fail_bind = [&](Reason reason) {
    return fail_wqe(engine, wqe, MLX5_CQE_SYNDROME_MW_BIND_ERR, reason, false);
  };
  // The window is free, so only the index of its key counts: the tag that the last invalidation left is of no account.
  Window* window = window_of(engine.own_segment, wqe.immediate);
  if (window == nullptr || load_shared(window->state) != kFree) return fail_bind(Reason::kBindKey);
  const std::uint32_t qpn_mkey = byte_swap(context.qpn_mkey);
  if (qpn_mkey >> 8 != engine.qpn) return fail_bind(Reason::kBindKey);

  const std::byte* klm = wqe_at(engine, wqe, 2 * mlx5::kBbBytes);
  const std::uint32_t klm_bytes = load_be32(klm + offsetof(mlx5::Klm, byte_count_be));
  const std::uint32_t region_key = load_be32(klm + offsetof(mlx5::Klm, mkey_be));
  const std::uint64_t address = load_be64(klm + offsetof(mlx5::Klm, address_be));
  const std::uint64_t length = byte_swap(std::uint64_t{context.len});
  if (length != klm_bytes || byte_swap(std::uint64_t{context.start_addr}) != address) {
    return fail_bind(Reason::kBindRange);
  }
  const Region* region = engine.own_regions->find(region_key);
  if (region == nullptr || !region->holds(address, length)) return fail_bind(Reason::kBindRegion);

  std::uint32_t access = 0;
  if ((context.access_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ) != 0) {
    access |= static_cast<std::uint32_t>(Access::kRemoteRead);
  }
  if ((context.access_flags & MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE) != 0) {
    access |= static_cast<std::uint32_t>(Access::kRemoteWrite);
  }
  window->key = (wqe.immediate & ~0xffU) | (qpn_mkey & 0xffU);
  window->qpn = engine.qpn;
  window->access = access;
  window->address = address;
  window->length = length;
  window->region_key = region_key;
  store_shared<std::uint32_t>(window->state, kBound);  // release: pairs with the load in acquire_remote
  return Outcome::kDone;
}

}  // namespace

Outcome execute_umr(SendEngine& engine, const Wqe& wqe) noexcept {
  // The control part is one BB, the mkey context another, the KLM group a third; a wrap falls between BBs.
  constexpr std::uint32_t kInvalidateDs = mlx5::kInvalidateBbs * 4;
  constexpr std::uint32_t kBindDs = mlx5::kBindBbs * 4;
  const auto malformed = [&] {
    return fail_wqe(engine, wqe, MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, Reason::kWqeSize, false);
  };
  if (wqe.ds < kInvalidateDs) return malformed();
  const auto& context = *reinterpret_cast<const mlx5_wqe_mkey_context_seg*>(wqe_at(engine, wqe, mlx5::kBbBytes));
  if ((context.free & MLX5_WQE_MKEY_CONTEXT_FREE) != 0) return invalidate(engine, wqe);
  if (wqe.ds < kBindDs) return malformed();
  return bind(engine, wqe, context);
}

bool invalidate_remote(SendEngine& engine, std::uint32_t key) noexcept {
  Window* window = window_of(engine.outlet->peer, key);
  if (window == nullptr) return false;
  // Our own core is the only one that accesses memory through this window, so there is no hazard to wait for.
  std::uint32_t expected = kBound;
  return load_shared(window->state) == kBound && window->key == key && window->qpn == engine.peer_qpn &&
         __atomic_compare_exchange_n(&window->state, &expected, std::uint32_t{kFree}, false, __ATOMIC_ACQ_REL,
                                     __ATOMIC_RELAXED);
}

std::byte* acquire_remote(SendEngine& engine, std::uint32_t key, std::uint64_t at, std::uint64_t length,
                          Access wanted) noexcept {
  if (key_index(key) < kFirstWindowIndex) {
    const Region* region = engine.outlet->regions->find(key);
    const bool good = region != nullptr && allows(region->access, wanted) && region->holds(at, length);
    return good ? region->translate(at) : nullptr;
  }
  const Window* window = window_of(engine.outlet->peer, key);
  if (window == nullptr) return nullptr;
  store_shared(engine.peer->hazard, key);
  full_fence();  // pairs with the one in invalidate
  if (load_shared(window->state) == kBound && window->key == key && window->qpn == engine.peer_qpn &&
      allows(static_cast<Access>(window->access), wanted)) {
    const std::uint64_t offset = at - window->address;
    const bool inside = at >= window->address && offset <= window->length && length <= window->length - offset;
    // The window is the peer's word; the region is what we mapped ourselves.
    const Region* region = engine.outlet->regions->find(window->region_key);
    if (inside && region != nullptr && region->holds(at, length)) return region->translate(at);
  }
  release_remote(engine);
  return nullptr;
}

void release_remote(SendEngine& engine) noexcept {
  if (engine.peer->hazard != 0) store_shared<std::uint32_t>(engine.peer->hazard, 0);
}

}  // namespace rodeo::dv::soft
