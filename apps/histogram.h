// SPDX-License-Identifier: Apache-2.0
#pragma once

// Hot path. Runs on: one core writes; reading and merging belong to the control thread afterwards.
// A log-linear histogram: values below 2,048 are exact, larger ones fall into 1,024 buckets for each power of two, so
// that a bucket is never wider than a thousandth of its value. The unit is the caller's.

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace rodeo::apps {

class Histogram {
 public:
  /// Values from here on are recorded as the largest that fits: five minutes of a 3.6 GHz counter.
  static constexpr std::uint64_t kLimit = std::uint64_t{1} << 40U;

  void record(std::uint64_t value) noexcept {
    value = std::min(value, kLimit - 1);
    ++buckets_[bucket_of(value)];
    ++count_;
    sum_ += value;
    max_ = std::max(max_, value);
    min_ = std::min(min_, value);
  }

  void merge(const Histogram& other) noexcept {
    for (std::size_t i = 0; i < kBuckets; ++i) buckets_[i] += other.buckets_[i];
    count_ += other.count_;
    sum_ += other.sum_;
    max_ = std::max(max_, other.max_);
    min_ = std::min(min_, other.min_);
  }

  void clear() noexcept {
    count_ = sum_ = max_ = 0;
    min_ = ~std::uint64_t{0};
    buckets_.fill(0);  // in place: a temporary would put a quarter of a megabyte on the stack
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::uint64_t max() const noexcept { return max_; }
  [[nodiscard]] std::uint64_t min() const noexcept { return count_ == 0 ? 0 : min_; }
  [[nodiscard]] double mean() const noexcept {
    return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_);
  }

  /// The smallest value that at least `percent` of the records do not exceed, to a bucket's width; 0 when empty.
  [[nodiscard]] std::uint64_t percentile(double percent) const noexcept {
    if (count_ == 0) return 0;
    const double share = std::ceil(std::clamp(percent, 0.0, 100.0) / 100.0 * static_cast<double>(count_));
    const auto wanted = std::clamp<std::uint64_t>(static_cast<std::uint64_t>(share), 1, count_);
    std::uint64_t seen = 0;
    for (std::size_t i = 0; i < kBuckets; ++i) {
      seen += buckets_[i];
      if (seen >= wanted) return std::min(highest_in(i), max_);
    }
    return max_;
  }

 private:
  static constexpr unsigned kHalfBits = 10;
  static constexpr std::uint64_t kHalf = std::uint64_t{1} << kHalfBits;
  static constexpr unsigned kMaxShift = 40 - kHalfBits - 1;
  static constexpr std::size_t kBuckets = kMaxShift * kHalf + 2 * kHalf;

  /// How far a value moves right to fall into [0, 2 * kHalf).
  static constexpr unsigned shift_of(std::uint64_t value) noexcept {
    return static_cast<unsigned>(std::bit_width(value | kHalf)) - kHalfBits - 1;
  }
  static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    const unsigned shift = shift_of(value);
    return shift * kHalf + (value >> shift);
  }
  static constexpr std::uint64_t highest_in(std::size_t bucket) noexcept {
    if (bucket < 2 * kHalf) return bucket;
    const std::size_t shift = bucket / kHalf - 1;
    return ((bucket - shift * kHalf + 1) << shift) - 1;
  }

  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
  std::uint64_t min_ = ~std::uint64_t{0};
  std::array<std::uint64_t, kBuckets> buckets_{};
};

}  // namespace rodeo::apps
