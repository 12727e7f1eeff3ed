// SPDX-License-Identifier: Apache-2.0
// What the bench prepares is what it then recognises, and nothing else is.

#include "apps/bench_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "apps/pattern.h"
#include "engine/xdr_writer.h"

namespace rodeo::apps {
namespace {

constexpr std::size_t kMaxPayload = 8192;

class BenchCallTest : public testing::Test {
 protected:
  BenchCallTest() : pattern_(kPatternPeriod + kMaxPayload), sink_(kMaxPayload) { fill_pattern(pattern_, 0); }

  static void ignore(void* /*context*/, const Reply& /*reply*/) noexcept {}

  void prepare(const MixEntry& entry) {
    call_.reset();
    shape_ = std::make_unique<CallShape>(entry, Credential{}, pattern_, true);
    call_ = std::make_unique<PreparedCall>(*shape_, sink_, &ignore, nullptr);
    call_->renew();
  }

  /// The engine's part of one call, by the letter of apps/test_protocol.h.
  std::vector<std::byte> serve() {
    const CallRequest& request = call_->request();
    XdrReader reader(request.arguments);
    std::vector<std::byte> results(4 * kMaxPayload);
    XdrWriter writer(results);
    written_.clear();
    switch (shape_->entry.proc) {
      case TestProc::kEcho:
        writer.opaque(reader.opaque(kMaxPayload));
        break;
      case TestProc::kLongCall: {
        EXPECT_TRUE(request.force_long_call);
        const auto data = reader.opaque(kMaxPayload);
        writer.u32(static_cast<std::uint32_t>(data.size()));
        writer.u64(checksum(data));
        break;
      }
      case TestProc::kChecksum:
        EXPECT_EQ(reader.u32(), request.sources[0].data.size());
        EXPECT_EQ(request.sources[0].arguments_offset, 4U);
        writer.u32(static_cast<std::uint32_t>(request.sources[0].data.size()));
        writer.u64(checksum(request.sources[0].data));
        break;
      case TestProc::kMirror:
        EXPECT_EQ(reader.u32(), request.sources[0].data.size());
        write_chunk(request.sources[0].data, writer);
        break;
      case TestProc::kFill:
      case TestProc::kLongReply: {
        const std::uint64_t start = reader.u64();
        std::vector<std::byte> data(reader.u32());
        fill_pattern(data, start);
        if (shape_->entry.proc == TestProc::kFill) {
          write_chunk(data, writer);
        } else {
          writer.opaque(data);
        }
        break;
      }
      case TestProc::kCapture: {
        std::vector<std::byte> fixed(reader.u32());
        std::vector<std::byte> bulk(reader.u32());
        const std::uint32_t length = reader.u32();
        const auto data = request.sources.empty() ? std::span<const std::byte>{} : request.sources[0].data;
        EXPECT_EQ(length, data.size());
        const std::uint32_t start = reader.remaining() >= 4 ? reader.u32() : 0;
        fill_pattern(fixed, start);
        fill_pattern(bulk, start);
        if (fixed.size() >= 8) store_be64(fixed.data(), checksum(data));
        writer.opaque_fixed(fixed);
        if (!bulk.empty()) write_chunk(bulk, writer);
        break;
      }
      default:
        break;
    }
    EXPECT_TRUE(writer.ok());
    results.resize(writer.size());
    return results;
  }

  void write_chunk(std::span<const std::byte> data, XdrWriter& writer) {
    writer.u32(static_cast<std::uint32_t>(data.size()));
    const auto& sinks = call_->request().sinks;
    if (sinks.empty()) return;
    ASSERT_GE(sinks[0].size(), data.size());
    std::copy(data.begin(), data.end(), sinks[0].begin());
    written_.push_back(static_cast<std::uint32_t>(data.size()));
  }

  bool accepts(const std::vector<std::byte>& results) {
    Reply reply;
    reply.results = results;
    reply.written = written_;
    return call_->verify(reply);
  }

  std::vector<std::byte> pattern_;
  std::vector<std::byte> sink_;
  std::vector<std::uint32_t> written_;
  std::unique_ptr<CallShape> shape_;
  std::unique_ptr<PreparedCall> call_;
};

std::vector<MixEntry> entries_to_try() {
  std::vector<MixEntry> entries;
  for (const TestProc proc : {TestProc::kNull, TestProc::kEcho, TestProc::kChecksum, TestProc::kFill, TestProc::kMirror,
                              TestProc::kDelay, TestProc::kLongCall, TestProc::kLongReply}) {
    for (const std::uint32_t bytes : {1U, 7U, 8U, 1000U, 4096U, 5001U}) {
      MixEntry entry;
      entry.proc = proc;
      entry.bytes = bytes;
      entries.push_back(entry);
    }
  }
  const auto add_capture = [&entries](std::uint32_t arguments, std::uint32_t results, std::uint32_t read,
                                      std::uint32_t capacity, std::uint32_t written, std::uint32_t reply) {
    entries.push_back({TestProc::kCapture, 0, 1, arguments, results, read, capacity, written, reply});
  };
  add_capture(12, 60, 0, 0, 0, 0);
  add_capture(36, 104, 0, 4096, 3900, 0);
  add_capture(44, 112, 5001, 0, 0, 0);
  add_capture(36, 3344, 0, 0, 0, 6000);
  add_capture(128, 5, 300, 4096, 1, 0);
  return entries;
}

TEST_F(BenchCallTest, TheRightAnswerIsAcceptedForManyVariantsInARow) {
  for (const MixEntry& entry : entries_to_try()) {
    prepare(entry);
    for (unsigned i = 0; i < 3 * kVariants; ++i) {
      ASSERT_TRUE(accepts(serve())) << static_cast<unsigned>(entry.proc) << " of " << entry.bytes << ", call " << i;
      call_->renew();
    }
  }
}

TEST_F(BenchCallTest, OneWrongBitOrOneMissingOctetIsNoticed) {
  for (const MixEntry& entry : entries_to_try()) {
    prepare(entry);
    auto results = serve();
    for (std::size_t i = 0; i < results.size(); i += 1 + i / 8) {
      results[i] ^= std::byte{0x04};
      // XDR padding may be anything.
      const bool is_pad = entry.proc == TestProc::kLongReply && i >= 4 + entry.bytes;
      const bool is_capture_pad = entry.proc == TestProc::kCapture && entry.results == 5;
      EXPECT_TRUE(!accepts(results) || is_pad || is_capture_pad) << static_cast<unsigned>(entry.proc) << " octet " << i;
      results[i] ^= std::byte{0x04};
    }
    EXPECT_TRUE(accepts(results));
    results.push_back(std::byte{0});
    EXPECT_FALSE(accepts(results));
  }
}

TEST_F(BenchCallTest, WhatAWriteChunkBroughtIsCompared) {
  for (const TestProc proc : {TestProc::kFill, TestProc::kMirror}) {
    MixEntry entry;
    entry.proc = proc;
    entry.bytes = 5001;
    prepare(entry);
    const auto results = serve();
    sink_[5000] ^= std::byte{1};
    EXPECT_FALSE(accepts(results));
    sink_[5000] ^= std::byte{1};
    EXPECT_TRUE(accepts(results));
    written_[0] = 5000;
    EXPECT_FALSE(accepts(results));
    written_.clear();
    EXPECT_FALSE(accepts(results));
  }
}

TEST_F(BenchCallTest, TheReplyToThePreviousCallIsNoticed) {
  for (const MixEntry& entry : entries_to_try()) {
    const bool same_always = entry.proc == TestProc::kNull || entry.proc == TestProc::kDelay;
    const bool too_small = entry.bytes < 8 && entry.proc != TestProc::kCapture;
    if (same_always || too_small || entry.arguments == 12) continue;
    prepare(entry);
    const auto stale = serve();
    call_->renew();
    EXPECT_FALSE(accepts(stale)) << static_cast<unsigned>(entry.proc) << " of " << entry.bytes;
  }
}

}  // namespace
}  // namespace rodeo::apps
