// SPDX-License-Identifier: Apache-2.0
// A store that completes later, from another thread, with and without memory of its own: what the server does
// meanwhile, and when the client goes away first.

#include <algorithm>
#include <array>

#include "apps/nfs/test_slow_store.h"

namespace rodeo::nfs {
namespace {

using test::Answer;
using test::NfsPair;
using test::pattern;
using test::SlowStore;

const rodeo::test::RuntimeDirectory runtime_directory;

class SlowStoreTest : public testing::TestWithParam<bool> {
 protected:
  SlowStoreTest()
      : pair_(
            [this](Engine&, RegisteredBytes memory) {
              store_ = std::make_unique<SlowStore>(memory.first(NfsPair::kStoreBytes), GetParam());
              return std::vector<Export>{{"/slow", store_.get(), {}}};
            },
            3),
        root_(pair_.root()) {}

  std::unique_ptr<SlowStore> store_;
  NfsPair pair_;
  FileHandle root_;
};

TEST_P(SlowStoreTest, EveryOperationMayCompleteLater) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(300'000);
  EXPECT_EQ(pair_.write(file, 5, data).count, data.size());
  EXPECT_EQ(pair_.read(file, 5, 300'000).data, data);
  EXPECT_EQ(pair_.attributes(file).size, data.size() + 5);
  EXPECT_EQ(pair_.call(NfsProc3::kCommit, NfsPair::of_read(file, 0, 0)).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kFsinfo, NfsPair::of_handle(file)).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kFsstat, NfsPair::of_handle(file)).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kLookup, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.call(NfsProc3::kLookup, NfsPair::of_name(root_, "g")).status(), NfsStat3::kNoent);
  for (int i = 0; i < 50; ++i) pair_.make_file(root_, "entry" + std::to_string(i));
  const Answer listing = pair_.call(NfsProc3::kReaddirplus,
                                    [&](XdrWriter& out) {
                                      encode(out, root_);
                                      out.u64(0);
                                      out.u64(0);
                                      out.u32(32'000);
                                      out.u32(32'000);
                                    },
                                    {.sources = {}, .sinks = {}, .max_results = 32'004});
  EXPECT_EQ(listing.status(), NfsStat3::kOk);
  EXPECT_GT(listing.seen.results.size(), 53U * 100U);
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
}

TEST_P(SlowStoreTest, MoreCallsThanBuffersAllEnd) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(20 * 8192);
  EXPECT_EQ(pair_.write(file, 0, data).count, data.size());
  store_->hold(true);
  const RegisteredBytes memory = pair_.client->application_memory();
  std::array<rodeo::test::Seen, 20> seen;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    test::Bulk bulk;
    bulk.sinks = {memory.subspan(i * 8192, 8192)};
    bulk.max_results = 120;
    pair_.submit(NfsProc3::kRead, NfsPair::of_read(file, i * 8192, 8192), bulk, seen[i]);
  }
  for (int i = 0; i < 1000; ++i) pair_.turn();
  store_->hold(false);
  pair_.until([&] { return std::ranges::all_of(seen, [](const auto& one) { return one.times == 1; }); });
  for (const auto& one : seen) EXPECT_EQ(load_be32(one.results.data()), 0U);
  EXPECT_EQ(std::memcmp(memory.data(), data.data(), data.size()), 0);
}

TEST_P(SlowStoreTest, AClientThatGoesLeavesNothingPinned) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(100'000);
  EXPECT_EQ(pair_.write(file, 0, data).count, data.size());
  const auto free_bytes = [&] {
    const Answer answer = pair_.call(NfsProc3::kFsstat, NfsPair::of_handle(root_));
    XdrReader in = answer.body();
    std::optional<Fattr3> attributes;
    decode(in, attributes);
    (void)in.u64();
    return in.u64();
  };
  const std::uint64_t before = free_bytes();
  store_->hold(true);
  std::array<rodeo::test::Seen, 4> seen;
  const RegisteredBytes memory = pair_.client->application_memory();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    test::Bulk bulk;
    const bool read = i % 2 == 0;
    if (read) {
      bulk.sinks = {memory.subspan(i * 10'000, 10'000)};
      bulk.max_results = 120;
    } else {
      bulk.sources = {{NfsPair::offset_of_data(file), memory.subspan(i * 10'000, 10'000)}};
    }
    // The WRITEs go into a hole, and so take pages.
    pair_.submit(read ? NfsProc3::kRead : NfsProc3::kWrite,
                 read ? NfsPair::of_read(file, 0, 10'000) : NfsPair::of_write(file, 1'000'000, 10'000, 10'000), bulk,
                 seen[i]);
  }
  pair_.until([&] { return store_->waiting() >= 2; });
  pair_.client->disconnect(pair_.connection);
  for (int i = 0; i < 1000; ++i) pair_.turn();
  store_->hold(false);
  pair_.until([&] { return pair_.server->connection_count() == 0; });
  pair_.connection = pair_.connect();
  EXPECT_TRUE(pair_.call(NfsProc3::kNull, {}).ok());
  if (GetParam()) {
    EXPECT_EQ(free_bytes(), before);  // nothing came, so no page became the file's
  }
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
  EXPECT_EQ(free_bytes(), NfsPair::kStoreBytes - 65'536);  // all but the zeros
}

INSTANTIATE_TEST_SUITE_P(Memory, SlowStoreTest, testing::Values(false, true),
                         [](const auto& of) { return std::string(of.param ? "OfItsOwn" : "OfTheServer"); });

}  // namespace
}  // namespace rodeo::nfs
