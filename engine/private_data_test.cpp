// SPDX-License-Identifier: Apache-2.0
#include "engine/private_data.h"

#include <gtest/gtest.h>

#include "engine/golden_messages.h"
#include "pools/proves.h"

namespace rodeo {
namespace {

using golden::cut;
using golden::joined;
using golden::Octets;
using golden::wire;

Octets encoded(const PrivateData& own) {
  const auto octets = encode_private_data(own);
  return {octets.begin(), octets.end()};
}

TEST(PrivateData, HasTheEightOctetsOfTheStandard) {
  proves("R8797-4-3", "R8797-4-4", "R8797-4-6");
  EXPECT_EQ(encoded({4096, 4096, true}), wire({0xf6ab0e18, 0x01010303}));
  EXPECT_EQ(encoded({4096, 4096, false}), wire({0xf6ab0e18, 0x01000303}));
  EXPECT_EQ(encoded({8192, 2048, false}), wire({0xf6ab0e18, 0x01000701}));
  EXPECT_EQ(decode_private_data(wire({0xf6ab0e18, 0x01010701})), (PrivateData{8192, 2048, true}));
}

TEST(PrivateData, EncodesSizesInStepsOf1024) {
  proves("R8797-4.2-1");
  for (std::uint32_t size = 1024; size <= 262144; size += 1024) {
    const Octets octets = encoded({size, 263168 - size, false});
    EXPECT_EQ(std::to_integer<std::uint32_t>(octets[6]), size / 1024 - 1);
    EXPECT_EQ(decode_private_data(octets), (PrivateData{size, 263168 - size, false}));
  }
}

TEST(PrivateData, RoundsSizesDown) {
  proves("ENG-8797-4");
  EXPECT_EQ(encoded({5000, 5000, false}), encoded({4096, 4096, false}));
  EXPECT_EQ(round_inline_size(5000), 4096U);
  EXPECT_EQ(round_inline_size(0), 1024U);
  EXPECT_EQ(round_inline_size(1ULL << 40), 262144U);
  EXPECT_EQ(inline_thresholds({5000, 5000, false}, {262144, 262144, false}).outgoing, 4096U);
}

TEST(PrivateData, ReservedFlagsAreSentZeroAndIgnored) {
  proves("R8797-4-5");
  EXPECT_EQ(encoded({1024, 1024, true})[5], std::byte{1});
  EXPECT_EQ(decode_private_data(wire({0xf6ab0e18, 0x01ff0000})), (PrivateData{1024, 1024, true}));
  EXPECT_EQ(decode_private_data(wire({0xf6ab0e18, 0x01fe0000})), (PrivateData{1024, 1024, false}));
}

TEST(PrivateData, IsFoundAtAnyOctet) {
  proves("R8797-5.2-1");
  const PrivateData sent{8192, 16384, true};
  for (std::size_t before = 0; before < 60; ++before) {
    const Octets octets = joined(joined(Octets(before, std::byte{0xf6}), encoded(sent)), Octets(20));
    EXPECT_EQ(decode_private_data(octets), sent) << before;
    EXPECT_EQ(decode_private_data(cut(octets, before + 8)), sent) << before;
  }
}

TEST(PrivateData, NothingConformingMeansDefaults) {
  proves("R8797-5.1-1", "R8797-5.2-2", "R8797-4-4");
  const PrivateData defaults;
  EXPECT_EQ(defaults, (PrivateData{1024, 1024, false}));
  EXPECT_EQ(decode_private_data({}), defaults);
  EXPECT_EQ(decode_private_data(Octets(196, std::byte{0x5a})), defaults);
  EXPECT_EQ(decode_private_data(wire({0xf6ab0e19, 0x01010303})), defaults);
  EXPECT_EQ(decode_private_data(wire({0xf6ab0e18, 0x02010303})), defaults);
  EXPECT_EQ(decode_private_data(wire({0xf6ab0e18, 0x00010303})), defaults);
}

TEST(PrivateData, AHitMustFitTheBuffer) {
  proves("R8797-5.2-3");
  const Octets whole = encoded({4096, 4096, true});
  for (std::size_t length = 0; length < 8; ++length) {
    EXPECT_EQ(decode_private_data(cut(whole, length)), PrivateData{});
    EXPECT_EQ(decode_private_data(joined(Octets(28), cut(whole, length))), PrivateData{});
  }
}

TEST(PrivateData, AnotherLayersLookalikeDoesNotHideIt) {
  proves("R8797-5.2-3");
  EXPECT_EQ(decode_private_data(joined(wire({0xf6ab0e18, 0x09000000}), encoded({4096, 4096, true}))),
            (PrivateData{4096, 4096, true}));
}

TEST(InlineThresholds, AreTheSmallerOfSenderAndReceiver) {
  proves("R8797-4.2-2", "R8797-4.2-3", "R8166-3.3.2-1");
  const PrivateData client{8192, 2048, false};
  const PrivateData server{65536, 4096, false};
  EXPECT_EQ(inline_thresholds(client, server).outgoing, 4096U);  // call threshold
  EXPECT_EQ(inline_thresholds(client, server).incoming, 2048U);  // reply threshold
  EXPECT_EQ(inline_thresholds(server, client).outgoing, 2048U);
  EXPECT_EQ(inline_thresholds(server, client).incoming, 4096U);
}

TEST(InlineThresholds, Are1024WithASilentPeer) {
  proves("R8166-3.3.2-4");
  const auto thresholds = inline_thresholds({65536, 65536, true}, decode_private_data({}));
  EXPECT_EQ(thresholds.outgoing, 1024U);
  EXPECT_EQ(thresholds.incoming, 1024U);
}

TEST(RemoteInvalidation, NeedsBothEnds) {
  proves("R8797-4.1-1", "R8797-4.1-3");
  const PrivateData yes{1024, 1024, true};
  const PrivateData no{1024, 1024, false};
  EXPECT_TRUE(may_invalidate(yes, yes));
  EXPECT_FALSE(may_invalidate(yes, no));
  EXPECT_FALSE(may_invalidate(no, yes));
  EXPECT_FALSE(may_invalidate(no, no));
}

TEST(InlineSize, OutsideTheRangeIsRefusedWithAReason) {
  proves("R8166-3.3.2-3");
  EXPECT_EQ(check_inline_size(4096).value(), 4096U);
  EXPECT_EQ(check_inline_size(5000).value(), 4096U);
  for (const std::uint64_t bad : {0ULL, 1023ULL, 262145ULL, 1ULL << 40}) {
    const auto result = check_inline_size(bad);
    ASSERT_FALSE(result.has_value());
    EXPECT_NE(result.error().message().find(std::to_string(bad)), std::string::npos);
    EXPECT_FALSE(result.error().next.empty());
  }
}

}  // namespace
}  // namespace rodeo
