// SPDX-License-Identifier: Apache-2.0
#include "apps/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace rodeo::apps {
namespace {

TEST(Histogram, IsAllZeroWhenNothingWasRecorded) {
  const auto histogram = std::make_unique<Histogram>();
  EXPECT_EQ(histogram->count(), 0U);
  EXPECT_EQ(histogram->percentile(99), 0U);
  EXPECT_EQ(histogram->max(), 0U);
  EXPECT_EQ(histogram->min(), 0U);
  EXPECT_EQ(histogram->mean(), 0.0);
}

TEST(Histogram, KeepsSmallValuesExactly) {
  const auto histogram = std::make_unique<Histogram>();
  for (std::uint64_t value = 0; value < 2048; ++value) histogram->record(value);
  EXPECT_EQ(histogram->percentile(0), 0U);
  EXPECT_EQ(histogram->percentile(50), 1023U);
  EXPECT_EQ(histogram->percentile(100), 2047U);
  EXPECT_EQ(histogram->min(), 0U);
  EXPECT_DOUBLE_EQ(histogram->mean(), 1023.5);
}

TEST(Histogram, ReportsOneValueWithinAThousandthAtEveryMagnitude) {
  for (unsigned bit = 0; bit < 40; ++bit) {
    const std::uint64_t value = (std::uint64_t{1} << bit) + (std::uint64_t{1} << bit) / 3;
    const auto histogram = std::make_unique<Histogram>();
    histogram->record(value);
    histogram->record(value * 2);  // so that the maximum does not cap the answer
    const std::uint64_t reported = histogram->percentile(50);
    EXPECT_GE(reported, value);
    EXPECT_LE(static_cast<double>(reported - value), static_cast<double>(value) / 1000.0);
  }
}

TEST(Histogram, AgreesWithSortingOnPercentilesOfASkewedSample) {
  std::mt19937_64 random(7);  // NOLINT: a fixed seed repeats
  std::lognormal_distribution<double> latency(8.0, 1.5);
  std::vector<std::uint64_t> values(100'000);
  const auto histogram = std::make_unique<Histogram>();
  for (auto& value : values) {
    value = static_cast<std::uint64_t>(latency(random));
    histogram->record(value);
  }
  std::sort(values.begin(), values.end());
  for (const double percent : {50.0, 90.0, 99.0, 99.9, 99.99}) {
    const auto rank = static_cast<std::size_t>(std::ceil(percent / 100.0 * static_cast<double>(values.size()))) - 1;
    const auto exact = static_cast<double>(values[rank]);
    EXPECT_NEAR(static_cast<double>(histogram->percentile(percent)), exact, exact / 1000.0 + 1) << percent;
  }
  EXPECT_EQ(histogram->max(), values.back());
  EXPECT_EQ(histogram->min(), values.front());
}

TEST(Histogram, NeverReportsAPercentileAboveTheMaximum) {
  const auto histogram = std::make_unique<Histogram>();
  histogram->record(1'000'000);
  EXPECT_EQ(histogram->percentile(99.99), 1'000'000U);
}

TEST(Histogram, ClampsWhatIsTooLargeInsteadOfWritingOutside) {
  const auto histogram = std::make_unique<Histogram>();
  histogram->record(~std::uint64_t{0});
  EXPECT_EQ(histogram->count(), 1U);
  EXPECT_EQ(histogram->max(), Histogram::kLimit - 1);
  EXPECT_EQ(histogram->percentile(50), Histogram::kLimit - 1);
}

TEST(Histogram, MergedHalvesEqualTheWhole) {
  const auto whole = std::make_unique<Histogram>();
  const auto left = std::make_unique<Histogram>();
  const auto right = std::make_unique<Histogram>();
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    whole->record(i * i);
    (i % 2 == 0 ? left : right)->record(i * i);
  }
  left->merge(*right);
  EXPECT_EQ(left->count(), whole->count());
  EXPECT_DOUBLE_EQ(left->mean(), whole->mean());
  EXPECT_EQ(left->max(), whole->max());
  EXPECT_EQ(left->min(), whole->min());
  for (const double percent : {0.0, 1.0, 50.0, 99.0, 99.9, 100.0}) {
    EXPECT_EQ(left->percentile(percent), whole->percentile(percent)) << percent;
  }
}

TEST(Histogram, ForgetsEverythingWhenCleared) {
  const auto histogram = std::make_unique<Histogram>();
  histogram->record(123'456);
  histogram->clear();
  EXPECT_EQ(histogram->count(), 0U);
  EXPECT_EQ(histogram->percentile(100), 0U);
}

}  // namespace
}  // namespace rodeo::apps
