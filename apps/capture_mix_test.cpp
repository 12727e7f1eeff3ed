// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "apps/capture_mix_derivation.h"
#include "apps/mixes.h"

namespace rodeo::apps {
namespace {

struct Recording {
  const char* file;
  const char* mix;
  std::span<const CaptureShape> shapes;
};

class CaptureMixTest : public testing::TestWithParam<Recording> {};

TEST_P(CaptureMixTest, TheTableIsWhatTheRecordingHolds) {
  const char* chosen = std::getenv("RODEO_CAPTURES");
  const std::filesystem::path folder = chosen != nullptr ? chosen : RODEO_CAPTURES_FOLDER;
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no recordings in " << folder;
  const auto shapes = derive_shapes(folder / GetParam().file);
  ASSERT_TRUE(shapes.has_value()) << shapes.error().message();
  EXPECT_TRUE(std::ranges::equal(*shapes, GetParam().shapes)) << "the rows should be\n" << table_text(*shapes);
}

TEST_P(CaptureMixTest, TheMixSendsEachShapeAsOftenAsItWasRecorded) {
  const auto mix = parse_mix(GetParam().mix, 0, 0);
  ASSERT_TRUE(mix.has_value()) << mix.error().message();
  ASSERT_EQ(mix->entries.size(), GetParam().shapes.size());
  std::vector<std::uint32_t> sent(mix->entries.size());
  for (const std::uint16_t index : schedule(*mix)) ++sent.at(index);
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const CaptureShape& shape = GetParam().shapes[i];
    EXPECT_EQ(sent[i], shape.calls);
    EXPECT_EQ(mix->entries[i].proc, shape.arguments == 0 ? TestProc::kNull : TestProc::kCapture);
    EXPECT_EQ(mix->entries[i].read_chunk, shape.read_chunk);
    EXPECT_LE(mix->entries[i].written, mix->entries[i].write_capacity);
  }
}

INSTANTIATE_TEST_SUITE_P(Recordings, CaptureMixTest,
                         testing::Values(Recording{"nfs3-tour.pcap", "kernel-nfs3", kNfs3Shapes},
                                         Recording{"nfs42-tour.pcap", "kernel-nfs42", kNfs42Shapes}),
                         [](const auto& instance) { return std::string(instance.param.file).substr(0, 4); });

}  // namespace
}  // namespace rodeo::apps
