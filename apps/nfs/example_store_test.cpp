// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/example_store.h"

#include "apps/nfs/test_nfs_pair.h"

namespace rodeo::nfs {
namespace {

using test::Answer;
using test::NfsPair;

const rodeo::test::RuntimeDirectory runtime_directory;

class ExampleStoreTest : public testing::Test {
 protected:
  ExampleStore store_{{{"hello", "Hello, world!\n"}, {"empty", ""}}};
  NfsPair pair_{[this](Engine&, RegisteredBytes) { return std::vector<Export>{{"/example", &store_, {}}}; }};
  FileHandle root_ = pair_.root();
};

TEST_F(ExampleStoreTest, ItsFilesAreFoundAndRead) {
  const Answer found = pair_.call(NfsProc3::kLookup, NfsPair::of_name(root_, "hello"));
  ASSERT_EQ(found.status(), NfsStat3::kOk);
  FileHandle file;
  XdrReader in = found.body();
  decode(in, file);
  const auto result = pair_.read(file, 7, 100);
  EXPECT_TRUE(result.eof);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(result.data.data()), result.data.size()), "world!\n");
  EXPECT_EQ(pair_.attributes(file).size, 14U);
  EXPECT_EQ(pair_.call(NfsProc3::kLookup, NfsPair::of_name(root_, "none")).status(), NfsStat3::kNoent);
}

TEST_F(ExampleStoreTest, ItsDirectoryIsListed) {
  const Answer listing = pair_.call(NfsProc3::kReaddirplus, [&](XdrWriter& out) {
    encode(out, root_);
    out.u64(0);
    out.u64(0);
    out.u32(800);
    out.u32(800);
  });
  ASSERT_EQ(listing.status(), NfsStat3::kOk);
  XdrReader in = listing.body();
  std::optional<Fattr3> attributes;
  decode(in, attributes);
  in.skip(kVerfBytes);
  std::vector<std::string> names;
  for (Entry3 entry; decode_entry(in, entry, true);) names.emplace_back(entry.name);
  EXPECT_EQ(names, (std::vector<std::string>{".", "..", "hello", "empty"}));
  EXPECT_TRUE(in.boolean());
}

TEST_F(ExampleStoreTest, WhatItDoesNotDoIsNotSupported) {
  EXPECT_EQ(pair_.write(root_, 0, test::pattern(10)).status, NfsStat3::kNotsupp);
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "hello")).status(), NfsStat3::kNotsupp);
  EXPECT_EQ(pair_.call(NfsProc3::kReadlink, NfsPair::of_handle(root_)).status(), NfsStat3::kNotsupp);
  EXPECT_EQ(pair_.call(NfsProc3::kFsstat, NfsPair::of_handle(root_)).status(), NfsStat3::kNotsupp);
  EXPECT_EQ(pair_.call(NfsProc3::kFsinfo, NfsPair::of_handle(root_)).status(), NfsStat3::kOk);
  FileHandle other = root_;
  other.octets[root_.size - 1] = std::byte{9};
  EXPECT_EQ(pair_.call(NfsProc3::kGetattr, NfsPair::of_handle(other)).status(), NfsStat3::kBadhandle);
}

}  // namespace
}  // namespace rodeo::nfs
