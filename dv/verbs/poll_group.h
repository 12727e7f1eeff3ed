// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: the one core that owns the group.
//
// One CQ for all QPs of one core, of either queue. The device makes it longer as connections come, which verbs allow
// while it is polled.

#include <cstddef>

#include "dv/verbs/cq.h"

namespace rodeo::dv::verbs {

class Qp;

class PollGroup {
 public:
  explicit PollGroup(ibv_cq* cq) noexcept : cq_(cq) {}
  PollGroup(const PollGroup&) = delete;
  PollGroup& operator=(const PollGroup&) = delete;

  /// Hands up to `most` completions, and no more than a burst, to take(const Completion&); returns how many.
  template <class F>
  std::size_t poll(std::size_t most, F&& take) noexcept {
    std::size_t n = cq_.poll(most, take);
    if (n != 0 || refusing_ == nullptr) [[likely]]
      return n;
    // Behind all that the device had taken before.
    for (Completion refused; n < most && next_refused(refused); ++n) take(refused);
    return n;
  }
  void progress() noexcept {}
  /// Always: verbs look at a CQ only by polling it.
  [[nodiscard]] bool ready() const noexcept { return true; }

  /// `qp` has requests that its device did not take.
  void add_refusing(Qp& qp) noexcept;

 private:
  friend class Qp;
  /// The next request that its device did not take, as flushed. False: there is none now.
  [[nodiscard, gnu::noinline, gnu::cold]] bool next_refused(Completion& completion) noexcept;

  Cq cq_;
  Qp* refusing_ = nullptr;  // the first of those that wait for it
};

static_assert(PollableGroup<PollGroup>);

}  // namespace rodeo::dv::verbs
