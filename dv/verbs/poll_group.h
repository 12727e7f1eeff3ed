// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that owns the group.
//
// One CQ for all QPs of one core, of either queue. The device makes it longer as connections come, which verbs allow
// while it is polled.

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "dv/verbs/cq.h"

namespace rodeo::dv::verbs {

class Qp;

class PollGroup {
 public:
  explicit PollGroup(ibv_cq* cq) noexcept : cq_(cq) {}
  PollGroup(const PollGroup&) = delete;
  PollGroup& operator=(const PollGroup&) = delete;

  /// Takes up to out.size() completions; returns how many.
  std::size_t poll(std::span<Completion> out) noexcept {
    const std::size_t n = cq_.poll(out);
    // Behind all that the device had taken before.
    if (n == 0 && refusing_ != nullptr) [[unlikely]]
      return report_refused(out);
    return n;
  }
  template <class F>
  std::size_t poll(std::size_t most, F&& take) noexcept {
    const std::size_t n = poll(std::span(taken_).first(std::min(most, taken_.size())));
    for (std::size_t i = 0; i < n; ++i) take(taken_[i]);
    return n;
  }
  void progress() noexcept {}

  /// `qp` has requests that its device did not take.
  void add_refusing(Qp& qp) noexcept;

 private:
  friend class Qp;
  [[gnu::noinline, gnu::cold]] std::size_t report_refused(std::span<Completion> out) noexcept;

  Cq cq_;
  std::array<Completion, Cq::kBurst> taken_;
  Qp* refusing_ = nullptr;  // the first of those that wait for it
};

static_assert(PollableGroup<PollGroup>);

}  // namespace rodeo::dv::verbs
