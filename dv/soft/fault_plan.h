// SPDX-License-Identifier: Apache-2.0
#pragma once

// What is to go wrong in a simulated fabric. A plan is a list of rules; each WQE about to be executed meets them in
// order, and the first that matches acts.

#include <cstdint>
#include <vector>

namespace rodeo::dv::soft {

enum class FaultAction : std::uint8_t {
  kDelay,       // the WQE waits `value` nanoseconds of the simulated clock
  kNotReady,    // the peer has no receive, `value` times in a row
  kSyndrome,    // the WQE fails with mlx5 syndrome `value`, and both QPs go to ERR
  kDisconnect,  // the connection drops
  kKillPeer,    // the device at the other end stops, as if its process were killed
};

struct FaultRule {
  // What matches. The defaults match everything.
  std::uint32_t device = kAny;                // index of the posting device, in the order of Fabric::open_device
  std::uint32_t qp = kAny;                    // index of its QP, in the order of make_qp
  std::uint64_t opcodes = ~std::uint64_t{0};  // bit n: WQE opcode n (opcodes above 63 never match)
  std::uint32_t nth = 0;                      // the how-manieth match acts, counted from 1; 0: every one
  double probability = 1.0;

  FaultAction action = FaultAction::kDelay;
  std::uint64_t value = 0;

  static constexpr std::uint32_t kAny = ~std::uint32_t{0};
};

struct FaultPlan {
  std::vector<FaultRule> rules;
};

}  // namespace rodeo::dv::soft
