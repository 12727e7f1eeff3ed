// SPDX-License-Identifier: Apache-2.0
// Every procedure of NFSv3 over a memory store, by our own Requester: what RFC 1813 says of it, and what it answers to
// what is wrong.

#include <algorithm>
#include <array>
#include <set>

#include "apps/nfs/test_nfs_pair.h"
#include "pools/proves.h"

namespace rodeo::nfs {
namespace {

using test::Answer;
using test::Bulk;
using test::NfsPair;
using test::pattern;
using test::user;

const rodeo::test::RuntimeDirectory runtime_directory;

class NfsServerTest : public testing::Test {
 protected:
  NfsServerTest()
      : pair_([this](Engine&, RegisteredBytes memory) {
          stores_.push_back(test::must(make_memory_store(memory.first(NfsPair::kStoreBytes))));
          stores_.push_back(test::must(make_memory_store(memory.subspan(NfsPair::kStoreBytes))));
          ExportOptions fixed;
          fixed.read_only = true;
          ExportOptions trusting;
          trusting.squash = Squash::kNone;
          return std::vector<Export>{{"/data", stores_[0].get(), {}},
                                     {"/fixed", stores_[0].get(), fixed},
                                     {"/other", stores_[1].get(), trusting},
                                     {"/far", stores_[0].get(), only("::/0")},
                                     {"/here", stores_[0].get(), only("local")}};
        }),
        root_(pair_.root()) {}

  static ExportOptions only(std::string_view client) {
    ExportOptions options;
    options.clients.push_back(test::must(AddressRange::parse(client)));
    return options;
  }

  std::vector<std::unique_ptr<Store>> stores_;
  NfsPair pair_;
  FileHandle root_;
};

TEST_F(NfsServerTest, TheRootIsADirectory) {
  const Fattr3 attributes = pair_.attributes(root_);
  EXPECT_EQ(attributes.type, Ftype3::kDir);
  EXPECT_EQ(attributes.mode, 01777U);
  EXPECT_EQ(attributes.nlink, 2U);
}

TEST_F(NfsServerTest, HandlesThatNobodyMadeAreRefused) {
  for (std::uint32_t size = 0; size <= kMaxHandleBytes; ++size) {
    FileHandle handle = root_;
    handle.size = size;
    if (size > root_.size) std::memset(handle.octets.data() + root_.size, 0, size - root_.size);
    const NfsStat3 status = pair_.call(NfsProc3::kGetattr, NfsPair::of_handle(handle)).status();
    EXPECT_EQ(status, size == root_.size ? NfsStat3::kOk : NfsStat3::kBadhandle) << size;
  }
  for (std::uint32_t at = 0; at < root_.size; ++at) {
    FileHandle handle = root_;
    handle.octets[at] ^= std::byte{0x40};
    EXPECT_EQ(pair_.call(NfsProc3::kGetattr, NfsPair::of_handle(handle)).status(), NfsStat3::kStale) << at;
  }
}

TEST_F(NfsServerTest, SetattrHeedsItsGuard) {
  const FileHandle file = pair_.make_file(root_, "f");
  const NfsTime3 ctime = pair_.attributes(file).ctime;
  const auto set_mode = [&](std::uint32_t mode, std::optional<NfsTime3> guard) {
    return pair_.call(NfsProc3::kSetattr, [&](XdrWriter& out) {
      Sattr3 wanted;
      wanted.mode = mode;
      encode(out, file);
      encode(out, wanted);
      encode(out, guard);
    });
  };
  EXPECT_EQ(set_mode(0600, NfsTime3{1, 2}).status(), NfsStat3::kNotSync);
  EXPECT_EQ(pair_.attributes(file).mode, 0644U);
  const Answer answer = set_mode(0600, ctime);
  EXPECT_EQ(answer.status(), NfsStat3::kOk);
  XdrReader in = answer.body();
  WccData wcc;
  decode(in, wcc);
  ASSERT_TRUE(in.ok() && wcc.before && wcc.after);
  EXPECT_EQ(wcc.before->ctime, ctime);
  EXPECT_EQ(wcc.after->mode, 0600U);
  pair_.credential = user(2000, 200);
  EXPECT_EQ(set_mode(0777, std::nullopt).status(), NfsStat3::kPerm);
}

TEST_F(NfsServerTest, LookupFindsNamesAndDots) {
  const FileHandle directory = pair_.make_directory(root_, "d");
  const FileHandle file = pair_.make_file(directory, "f");
  const auto lookup = [&](const FileHandle& where, const std::string& name) {
    const Answer answer = pair_.call(NfsProc3::kLookup, NfsPair::of_name(where, name));
    FileHandle handle;
    if (answer.status() == NfsStat3::kOk) {
      XdrReader in = answer.body();
      decode(in, handle);
      std::optional<Fattr3> object;
      std::optional<Fattr3> of_directory;
      decode(in, object);
      decode(in, of_directory);
      EXPECT_TRUE(in.ok() && in.remaining() == 0 && object && of_directory);
    }
    return std::pair(answer.status(), handle);
  };
  EXPECT_EQ(lookup(directory, "f"), std::pair(NfsStat3::kOk, file));
  EXPECT_EQ(lookup(directory, "."), std::pair(NfsStat3::kOk, directory));
  EXPECT_EQ(lookup(directory, ".."), std::pair(NfsStat3::kOk, root_));
  EXPECT_EQ(lookup(root_, ".."), std::pair(NfsStat3::kOk, root_));
  EXPECT_EQ(lookup(root_, "f").first, NfsStat3::kNoent);
  EXPECT_EQ(lookup(file, "f").first, NfsStat3::kNotdir);
  EXPECT_EQ(lookup(root_, "").first, NfsStat3::kInval);
  EXPECT_EQ(lookup(root_, "d/f").first, NfsStat3::kInval);
  EXPECT_EQ(lookup(root_, std::string(255, 'n')).first, NfsStat3::kNoent);
  EXPECT_EQ(lookup(root_, std::string(256, 'n')).first, NfsStat3::kNametoolong);
}

TEST_F(NfsServerTest, AccessIsByModeAndExport) {
  const FileHandle file = pair_.make_file(root_, "f", 0640);
  FileHandle fixed = file;
  std::memcpy(fixed.octets.data(), pair_.root(1).octets.data(), 4);  // the same object of the other export
  const auto access = [&](const FileHandle& handle) {
    const Answer answer = pair_.call(NfsProc3::kAccess, [&](XdrWriter& out) {
      encode(out, handle);
      out.u32(0x3f);
    });
    XdrReader in = answer.body();
    std::optional<Fattr3> attributes;
    decode(in, attributes);
    EXPECT_TRUE(attributes);
    return in.u32();
  };
  EXPECT_EQ(access(file), kAccessRead | kAccessModify | kAccessExtend);
  EXPECT_EQ(access(fixed), kAccessRead);
  pair_.credential = user(3000, 3000);
  EXPECT_EQ(access(file), 0U);
}

TEST_F(NfsServerTest, WhatWasWrittenIsReadWhateverItsSizeAndPlace) {
  proves("R1813-3-1", "R1813-3-2", "R8267-4-1", "R8166-3.4.5-10", "R8166-3.4.6-3");
  const FileHandle file = pair_.make_file(root_, "f");
  std::vector<std::byte> expected;
  unsigned seed = 0;
  const std::array<std::pair<std::uint64_t, std::size_t>, 12> writes{{{0, 1},
                                                                      {1, 5},
                                                                      {4090, 20},
                                                                      {65'530, 12},
                                                                      {65'536, 65'536},
                                                                      {3, 4093},
                                                                      {200'001, 70'001},
                                                                      {0, 1U << 20U},
                                                                      {100'000, 1U << 20U},
                                                                      {1'300'000, 8195},
                                                                      {2'000'000, 3},
                                                                      {12, 100}}};
  for (const auto& [offset, length] : writes) {
    const auto data = pattern(length, ++seed);
    const auto result = pair_.write(file, offset, data);
    ASSERT_EQ(result.status, NfsStat3::kOk) << offset;
    ASSERT_EQ(result.count, length);
    EXPECT_EQ(result.wcc.before->size, expected.size());
    expected.resize(std::max<std::size_t>(expected.size(), offset + length));
    std::ranges::copy(data, expected.begin() + static_cast<std::ptrdiff_t>(offset));
    EXPECT_EQ(result.wcc.after->size, expected.size());
  }
  for (const std::uint32_t count : {1U, 4096U, 65'537U, 1U << 20U}) {
    for (const std::uint64_t offset : {0UL, 3UL, 65'535UL, 1'299'999UL, 1'999'990UL}) {
      const auto result = pair_.read(file, offset, count);
      ASSERT_EQ(result.status, NfsStat3::kOk);
      const std::size_t length = std::min<std::size_t>(count, expected.size() - offset);
      ASSERT_EQ(result.data.size(), length) << offset << " " << count;
      EXPECT_TRUE(
          std::equal(result.data.begin(), result.data.end(), expected.begin() + static_cast<std::ptrdiff_t>(offset)))
          << offset << " " << count;
      EXPECT_EQ(result.eof, offset + length == expected.size());
    }
  }
}

TEST_F(NfsServerTest, ReadsOfNothingSucceed) {
  proves("F15", "R1813-3-2");
  const FileHandle file = pair_.make_file(root_, "f");
  EXPECT_EQ(pair_.write(file, 0, pattern(10)).status, NfsStat3::kOk);
  for (const std::uint64_t offset : {10UL, 11UL, ~0UL}) {
    const auto result = pair_.read(file, offset, 100);
    EXPECT_EQ(result.status, NfsStat3::kOk);
    EXPECT_TRUE(result.data.empty() && result.eof);
  }
  const auto nothing = pair_.read(file, 5, 0);
  EXPECT_EQ(nothing.status, NfsStat3::kOk);
  EXPECT_TRUE(nothing.data.empty());
  EXPECT_FALSE(nothing.eof);
  const auto written = pair_.write(file, 100, {});
  EXPECT_EQ(written.status, NfsStat3::kOk);
  EXPECT_EQ(written.count, 0U);
  EXPECT_EQ(pair_.attributes(file).size, 10U);
}

TEST_F(NfsServerTest, DataMayComeInlineAndGoInlineOrByReplyChunk) {
  proves("R8166-4.3.2-11");
  const FileHandle file = pair_.make_file(root_, "f");
  for (const std::size_t length : {1UL, 3000UL, 50'000UL}) {
    const auto data = pattern(length, 9);
    for (const bool long_call : {false, true}) {
      Bulk bulk;
      bulk.long_call = long_call || length > 3000;
      const auto result = NfsPair::decode_write(pair_.call(
          NfsProc3::kWrite,
          [&](XdrWriter& out) {
            encode(out, file);
            out.u64(7);
            out.u32(static_cast<std::uint32_t>(length));
            out.enumeration(StableHow::kUnstable);
            out.opaque(data);
          },
          bulk));
      EXPECT_EQ(result.status, NfsStat3::kOk);
      EXPECT_EQ(result.count, length);
    }
    Bulk bulk;
    bulk.max_results = length + 200;
    const Answer answer =
        pair_.call(NfsProc3::kRead, NfsPair::of_read(file, 7, static_cast<std::uint32_t>(length)), bulk);
    ASSERT_EQ(answer.status(), NfsStat3::kOk) << length;
    XdrReader in = answer.body();
    std::optional<Fattr3> attributes;
    decode(in, attributes);
    EXPECT_EQ(in.u32(), length);
    EXPECT_TRUE(in.boolean());
    EXPECT_TRUE(std::ranges::equal(in.opaque(length), data));
    EXPECT_TRUE(in.ok() && in.remaining() == 0);
  }
}

TEST_F(NfsServerTest, TheSmallerOfTwoCountsIsWritten) {
  proves("R1813-3-1");
  const FileHandle file = pair_.make_file(root_, "f");
  const RegisteredBytes source = pair_.client->application_memory().first(100);
  std::ranges::copy(pattern(100), source.begin());
  Bulk bulk;
  bulk.sources = {{NfsPair::offset_of_data(file), source}};
  EXPECT_EQ(NfsPair::decode_write(pair_.call(NfsProc3::kWrite, NfsPair::of_write(file, 0, 8, 100), bulk)).count, 8U);
  EXPECT_EQ(pair_.attributes(file).size, 8U);
  EXPECT_EQ(NfsPair::decode_write(pair_.call(NfsProc3::kWrite, NfsPair::of_write(file, 0, 1000, 100), bulk)).count,
            100U);
}

TEST_F(NfsServerTest, HolesAreZerosAndTakeNoMemory) {
  const FileHandle file = pair_.make_file(root_, "f");
  EXPECT_EQ(pair_.write(file, std::uint64_t{5} << 30U, pattern(3)).status, NfsStat3::kOk);
  const Fattr3 attributes = pair_.attributes(file);
  EXPECT_EQ(attributes.size, (std::uint64_t{5} << 30U) + 3);
  EXPECT_EQ(attributes.used, 65'536U);
  for (const std::uint64_t offset : {0UL, 60'000UL, (5UL << 30U) - 70'000}) {
    const auto result = pair_.read(file, offset, 50'000);
    EXPECT_EQ(result.data, std::vector<std::byte>(50'000)) << offset;
  }
  EXPECT_EQ(pair_.read(file, 5UL << 30U, 10).data, pattern(3));
  EXPECT_EQ(pair_.write(file, UINT64_MAX - 1, pattern(3)).status, NfsStat3::kFbig);
}

TEST_F(NfsServerTest, WhatWasCutOffIsZeroWhenTheFileGrowsAgain) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto resize = [&](std::uint64_t size) {
    return pair_
        .call(NfsProc3::kSetattr,
              [&](XdrWriter& out) {
                Sattr3 wanted;
                wanted.size = size;
                encode(out, file);
                encode(out, wanted);
                out.boolean(false);
              })
        .status();
  };
  for (const std::uint64_t size : {0UL, 1UL, 4096UL, 5000UL, 65'536UL, 100'000UL}) {
    const auto data = pattern(200'000);
    ASSERT_EQ(pair_.write(file, 0, data).status, NfsStat3::kOk);
    ASSERT_EQ(resize(size), NfsStat3::kOk);
    EXPECT_LE(pair_.attributes(file).used, size + 65'536);
    ASSERT_EQ(resize(200'000), NfsStat3::kOk);
    auto expected = data;
    std::fill(expected.begin() + static_cast<std::ptrdiff_t>(size), expected.end(), std::byte{0});
    EXPECT_EQ(pair_.read(file, 0, 200'000).data, expected) << size;
  }
}

TEST_F(NfsServerTest, CreateHasThreeModes) {
  proves("R1813-3-5");
  const auto create = [&](CreateMode3 mode, std::uint64_t verifier, std::optional<std::uint64_t> size) {
    return pair_.make(NfsProc3::kCreate, [&](XdrWriter& out) {
      encode(out, DirOpArgs3{root_.bytes(), "f"});
      out.enumeration(mode);
      if (mode == CreateMode3::kExclusive) return out.u64(verifier);
      Sattr3 wanted;
      wanted.mode = 0644;
      wanted.size = size;
      encode(out, wanted);
    });
  };
  const auto [status, file] = create(CreateMode3::kExclusive, 77, {});
  EXPECT_EQ(status, NfsStat3::kOk);
  EXPECT_EQ(create(CreateMode3::kExclusive, 77, {}), std::pair(NfsStat3::kOk, file));  // the same request again
  EXPECT_EQ(create(CreateMode3::kExclusive, 78, {}).first, NfsStat3::kExist);
  EXPECT_EQ(create(CreateMode3::kGuarded, 0, {}).first, NfsStat3::kExist);
  EXPECT_EQ(pair_.write(file, 0, pattern(10)).status, NfsStat3::kOk);
  EXPECT_EQ(create(CreateMode3::kUnchecked, 0, {}), std::pair(NfsStat3::kOk, file));
  EXPECT_EQ(pair_.attributes(file).size, 10U);
  EXPECT_EQ(create(CreateMode3::kUnchecked, 0, 0), std::pair(NfsStat3::kOk, file));
  EXPECT_EQ(pair_.attributes(file).size, 0U);
}

TEST_F(NfsServerTest, SymbolicLinksComeAndGoInlineOrByChunk) {
  proves("R8267-4-1");
  for (const std::size_t length : {1UL, 11UL, 4096UL}) {
    std::string target(length, 't');
    target.back() = 'e';
    for (const bool by_chunk : {false, true}) {
      if (length > 3000 && !by_chunk) continue;
      const std::string name = "link" + std::to_string(length) + (by_chunk ? "c" : "i");
      const RegisteredBytes memory = pair_.client->application_memory();
      std::memcpy(memory.data(), target.data(), length);
      Bulk bulk;
      std::vector<std::byte> scratch(1024);
      XdrWriter before(scratch);
      encode(before, DirOpArgs3{root_.bytes(), name});
      encode(before, Sattr3{});
      if (by_chunk) bulk.sources = {{before.size() + 4, memory.first(length)}};
      const auto [status, link] = pair_.make(
          NfsProc3::kSymlink,
          [&](XdrWriter& out) {
            encode(out, DirOpArgs3{root_.bytes(), name});
            encode(out, Sattr3{});
            by_chunk ? out.u32(static_cast<std::uint32_t>(length)) : out.string(target);
          },
          bulk);
      ASSERT_EQ(status, NfsStat3::kOk) << length;
      EXPECT_EQ(pair_.attributes(link).type, Ftype3::kLnk);
      Bulk back;
      back.max_results = by_chunk ? 120 : 120 + kMaxPathBytes;
      if (by_chunk) back.sinks = {memory.subspan(8192, kMaxPathBytes)};
      const Answer answer = pair_.call(NfsProc3::kReadlink, NfsPair::of_handle(link), back);
      ASSERT_EQ(answer.status(), NfsStat3::kOk);
      XdrReader in = answer.body();
      std::optional<Fattr3> attributes;
      decode(in, attributes);
      if (by_chunk) {
        EXPECT_EQ(in.u32(), length);
        EXPECT_EQ(answer.seen.written.at(0), length);
        EXPECT_EQ(std::memcmp(memory.data() + 8192, target.data(), length), 0);
      } else {
        EXPECT_EQ(in.string(kMaxPathBytes), target);
      }
      EXPECT_TRUE(in.ok() && in.remaining() == 0 && attributes);
    }
  }
  EXPECT_EQ(pair_.call(NfsProc3::kReadlink, NfsPair::of_handle(root_)).status(), NfsStat3::kInval);
  const auto refused = [&](const std::string& target) {
    return pair_
        .make(
            NfsProc3::kSymlink,
            [&](XdrWriter& out) {
              encode(out, DirOpArgs3{root_.bytes(), "l"});
              encode(out, Sattr3{});
              out.string(target);
            },
            Bulk{.long_call = true})
        .first;
  };
  EXPECT_EQ(refused(""), NfsStat3::kInval);
  EXPECT_EQ(refused(std::string("a\0b", 3)), NfsStat3::kInval);
  EXPECT_EQ(refused(std::string(4097, 't')), NfsStat3::kNametoolong);
}

TEST_F(NfsServerTest, MknodMakesWhatIsNoFileAndNoDirectory) {
  const auto mknod = [&](const std::string& name, Ftype3 type) {
    return pair_.make(NfsProc3::kMknod, [&](XdrWriter& out) {
      encode(out, DirOpArgs3{root_.bytes(), name});
      out.enumeration(type);
      if (type == Ftype3::kReg || type == Ftype3::kDir || type == Ftype3::kLnk) return;
      encode(out, Sattr3{});
      if (type == Ftype3::kBlk || type == Ftype3::kChr) encode(out, Specdata3{1, 3});
    });
  };
  const auto [status, fifo] = mknod("fifo", Ftype3::kFifo);
  EXPECT_EQ(status, NfsStat3::kOk);
  EXPECT_EQ(pair_.attributes(fifo).type, Ftype3::kFifo);
  EXPECT_EQ(mknod("socket", Ftype3::kSock).first, NfsStat3::kOk);
  EXPECT_EQ(mknod("null", Ftype3::kChr).first, NfsStat3::kPerm);
  EXPECT_EQ(mknod("reg", Ftype3::kReg).first, NfsStat3::kBadtype);
  EXPECT_EQ(mknod("fifo", Ftype3::kFifo).first, NfsStat3::kExist);
  EXPECT_NE(pair_.read(fifo, 0, 10).status, NfsStat3::kOk);
  pair_.credential = user(0, 0);
  root_ = pair_.root(2);  // where root is root
  const auto device = mknod("null", Ftype3::kChr);
  EXPECT_EQ(device.first, NfsStat3::kOk);
  EXPECT_EQ(pair_.attributes(device.second).rdev, (Specdata3{1, 3}));
}

TEST_F(NfsServerTest, NamesAreRemovedMovedAndLinked) {
  const auto of_two = [](const FileHandle& a, const std::string& an, const FileHandle& b, const std::string& bn) {
    return [=](XdrWriter& out) {
      encode(out, DirOpArgs3{a.bytes(), an});
      encode(out, DirOpArgs3{b.bytes(), bn});
    };
  };
  const FileHandle d = pair_.make_directory(root_, "d");
  const FileHandle e = pair_.make_directory(root_, "e");
  const FileHandle f = pair_.make_file(d, "f");
  EXPECT_EQ(pair_.attributes(root_).nlink, 4U);
  const auto status = [&](NfsProc3 proc, const test::Arguments& arguments) {
    return pair_.call(proc, arguments).status();
  };
  const auto rename = [&](const FileHandle& a, const std::string& an, const FileHandle& b, const std::string& bn) {
    return status(NfsProc3::kRename, of_two(a, an, b, bn));
  };
  const auto link = [&](const FileHandle& object, const FileHandle& where, const std::string& name) {
    return status(NfsProc3::kLink, [&](XdrWriter& out) {
      encode(out, object);
      encode(out, DirOpArgs3{where.bytes(), name});
    });
  };
  EXPECT_EQ(link(f, e, "g"), NfsStat3::kOk);
  EXPECT_EQ(pair_.attributes(f).nlink, 2U);
  EXPECT_EQ(link(f, e, "g"), NfsStat3::kExist);
  EXPECT_EQ(link(d, e, "d"), NfsStat3::kPerm);
  EXPECT_EQ(link(f, pair_.root(2), "g"), NfsStat3::kXdev);
  EXPECT_EQ(rename(d, "f", e, "g"), NfsStat3::kOk);  // two names of one object: nothing happens
  EXPECT_EQ(pair_.attributes(f).nlink, 2U);
  EXPECT_EQ(status(NfsProc3::kRemove, NfsPair::of_name(e, "g")), NfsStat3::kOk);
  EXPECT_EQ(pair_.attributes(f).nlink, 1U);

  EXPECT_EQ(status(NfsProc3::kRmdir, NfsPair::of_name(root_, "d")), NfsStat3::kNotempty);
  EXPECT_EQ(status(NfsProc3::kRemove, NfsPair::of_name(root_, "d")), NfsStat3::kIsdir);
  EXPECT_EQ(status(NfsProc3::kRmdir, NfsPair::of_name(d, "f")), NfsStat3::kNotdir);
  EXPECT_EQ(status(NfsProc3::kRmdir, NfsPair::of_name(d, ".")), NfsStat3::kInval);
  EXPECT_EQ(rename(root_, "d", d, "x"), NfsStat3::kInval);  // beneath itself
  EXPECT_EQ(rename(root_, "none", d, "x"), NfsStat3::kNoent);
  EXPECT_EQ(rename(root_, "d", pair_.root(2), "d"), NfsStat3::kXdev);
  EXPECT_EQ(rename(d, "f", root_, "e"), NfsStat3::kIsdir);
  EXPECT_EQ(rename(root_, "e", d, "f"), NfsStat3::kNotdir);
  EXPECT_EQ(rename(root_, "d", e, "moved"), NfsStat3::kOk);
  EXPECT_EQ(pair_.attributes(root_).nlink, 3U);
  EXPECT_EQ(pair_.attributes(e).nlink, 3U);
  const FileHandle g = pair_.make_file(root_, "g");
  EXPECT_EQ(rename(d, "f", root_, "g"), NfsStat3::kOk);
  EXPECT_EQ(status(NfsProc3::kGetattr, NfsPair::of_handle(g)), NfsStat3::kStale);
  EXPECT_EQ(status(NfsProc3::kRmdir, NfsPair::of_name(e, "moved")), NfsStat3::kOk);
  EXPECT_EQ(status(NfsProc3::kGetattr, NfsPair::of_handle(d)), NfsStat3::kStale);
}

struct Listing {
  NfsStat3 status = NfsStat3::kOk;
  std::vector<std::string> names;
  std::vector<std::uint64_t> cookies;
  bool eof = false;
  std::size_t bytes = 0;
};

Listing list(NfsPair& pair, const FileHandle& directory, std::uint64_t cookie, std::uint32_t name_bytes,
             std::uint32_t max_bytes, bool plus) {
  Bulk bulk;
  bulk.max_results = max_bytes + 4;
  const Answer answer = pair.call(
      plus ? NfsProc3::kReaddirplus : NfsProc3::kReaddir,
      [&](XdrWriter& out) {
        encode(out, directory);
        out.u64(cookie);
        out.u64(0);
        if (plus) out.u32(name_bytes);
        out.u32(max_bytes);
      },
      bulk);
  Listing out;
  out.status = answer.status();
  out.bytes = answer.seen.results.size() - 4;
  XdrReader in = answer.body();
  std::optional<Fattr3> attributes;
  decode(in, attributes);
  if (out.status != NfsStat3::kOk) return out;
  EXPECT_TRUE(attributes);
  Verf3 verifier;
  decode(in, verifier);
  Entry3 entry;
  while (decode_entry(in, entry, plus)) {
    out.names.emplace_back(entry.name);
    out.cookies.push_back(entry.cookie);
    EXPECT_EQ(entry.name_handle.has_value(), plus);
  }
  out.eof = in.boolean();
  EXPECT_TRUE(in.ok() && in.remaining() == 0);
  return out;
}

TEST_F(NfsServerTest, DirectoriesAreListedPieceByPieceWithinTheCounts) {
  proves("R1813-3-4", "R8166-3.5-5");
  const FileHandle directory = pair_.make_directory(root_, "d");
  std::set<std::string> expected{".", ".."};
  for (int i = 0; i < 300; ++i) {
    const std::string name = "entry-" + std::string(static_cast<std::size_t>(i % 40), 'x') + std::to_string(i);
    pair_.make_file(directory, name);
    expected.insert(name);
  }
  for (const bool plus : {false, true}) {
    for (const std::uint32_t max_bytes : {600U, 3000U, 20'000U, 200'000U}) {
      std::multiset<std::string> found;
      std::uint64_t cookie = 0;
      for (int turn = 0; turn < 400; ++turn) {
        const Listing part = list(pair_, directory, cookie, max_bytes, max_bytes, plus);
        ASSERT_EQ(part.status, NfsStat3::kOk);
        EXPECT_LE(part.bytes, max_bytes);
        found.insert(part.names.begin(), part.names.end());
        if (part.eof) break;
        ASSERT_FALSE(part.names.empty());
        cookie = part.cookies.back();
      }
      EXPECT_EQ(std::multiset<std::string>(expected.begin(), expected.end()), found) << plus << " " << max_bytes;
    }
  }
  EXPECT_EQ(list(pair_, directory, 0, 50, 20'000, true).names.size(), 2U);  // "." and "..", 24 octets each
  EXPECT_EQ(list(pair_, directory, 0, 1, 20'000, true).names.size(), 1U);   // one at least
  EXPECT_EQ(list(pair_, directory, 0, 0, 100, false).status, NfsStat3::kToosmall);
  // Also when there is nothing left to list, the answer is no longer than that.
  const Listing all = list(pair_, directory, 0, 0, 200'000, false);
  ASSERT_TRUE(all.eof);
  EXPECT_EQ(list(pair_, directory, all.cookies.back(), 0, 103, false).status, NfsStat3::kToosmall);
  const Listing none = list(pair_, directory, all.cookies.back(), 0, 104, false);
  EXPECT_EQ(none.status, NfsStat3::kOk);
  EXPECT_TRUE(none.eof && none.names.empty() && none.bytes == 104U) << none.bytes;
  EXPECT_EQ(list(pair_, pair_.make_file(root_, "f"), 0, 0, 1000, false).status, NfsStat3::kNotdir);
}

TEST_F(NfsServerTest, CookiesOutliveTheirEntries) {
  const FileHandle directory = pair_.make_directory(root_, "d");
  for (int i = 0; i < 20; ++i) pair_.make_file(directory, "f" + std::to_string(i));
  const Listing all = list(pair_, directory, 0, 0, 3000, false);
  ASSERT_EQ(all.names.size(), 22U);
  for (std::size_t i = 2; i <= 11; ++i) {
    EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(directory, all.names[i])).status(), NfsStat3::kOk);
  }
  const Listing rest = list(pair_, directory, all.cookies[11], 0, 3000, false);
  EXPECT_TRUE(rest.eof);
  EXPECT_TRUE(std::ranges::equal(rest.names, std::span(all.names).subspan(12)));
  EXPECT_TRUE(std::ranges::equal(rest.cookies, std::span(all.cookies).subspan(12)));
}

TEST_F(NfsServerTest, TheFileSystemTellsOfItself) {
  proves("ENG-NFS-1");
  const auto body = [&](NfsProc3 proc, Answer& answer) {
    answer = pair_.call(proc, NfsPair::of_handle(root_));
    EXPECT_EQ(answer.status(), NfsStat3::kOk);
    XdrReader in = answer.body();
    std::optional<Fattr3> attributes;
    decode(in, attributes);
    EXPECT_TRUE(attributes);
    return in;
  };
  Answer answer;
  XdrReader in = body(NfsProc3::kFsinfo, answer);
  for (int i = 0; i < 6; ++i) EXPECT_EQ(in.u32(), i % 3 == 2 ? 4096U : 1U << 20U);
  EXPECT_GT(in.u32(), 4096U);
  EXPECT_GT(in.u64(), std::uint64_t{1} << 40U);
  EXPECT_EQ(in.u64(), 1U);  // one nanosecond
  EXPECT_EQ(in.u32(), kFsfLink | kFsfSymlink | kFsfHomogeneous | kFsfCansettime);
  EXPECT_TRUE(in.ok() && in.remaining() == 0);

  in = body(NfsProc3::kPathconf, answer);
  EXPECT_GT(in.u32(), 1000U);
  EXPECT_EQ(in.u32(), 255U);
  for (const bool expected : {true, true, false, true}) EXPECT_EQ(in.boolean(), expected);
  EXPECT_TRUE(in.ok() && in.remaining() == 0);

  const auto free_bytes = [&] {
    XdrReader stat = body(NfsProc3::kFsstat, answer);
    EXPECT_EQ(stat.u64(), NfsPair::kStoreBytes);
    return stat.u64();
  };
  const std::uint64_t before = free_bytes();
  const FileHandle file = pair_.make_file(root_, "f");
  EXPECT_EQ(pair_.write(file, 0, pattern(100'000)).status, NfsStat3::kOk);
  EXPECT_EQ(before - free_bytes(), pair_.attributes(file).used);
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
  EXPECT_EQ(free_bytes(), before);
}

TEST_F(NfsServerTest, CommitTellsTheVerifierOfWrite) {
  proves("R1813-3-3");
  const FileHandle file = pair_.make_file(root_, "f");
  const Answer answer = pair_.call(NfsProc3::kCommit, NfsPair::of_read(file, 0, 0));
  ASSERT_EQ(answer.status(), NfsStat3::kOk);
  XdrReader in = answer.body();
  WccData wcc;
  Verf3 verifier;
  decode(in, wcc);
  decode(in, verifier);
  EXPECT_TRUE(in.ok() && in.remaining() == 0 && wcc.after);
  const Answer written = pair_.call(NfsProc3::kWrite, [&](XdrWriter& out) {
    encode(out, file);
    out.u64(0);
    out.u32(1);
    out.enumeration(StableHow::kUnstable);
    out.opaque(pattern(1));
  });
  EXPECT_TRUE(std::ranges::equal(std::span(written.seen.results).last(8), verifier));
  EXPECT_EQ(pair_.call(NfsProc3::kCommit, NfsPair::of_read(root_, 0, 0)).status(), NfsStat3::kIsdir);
}

TEST_F(NfsServerTest, NothingIsChangedThroughAReadOnlyExport) {
  const FileHandle file = pair_.make_file(root_, "f");
  const FileHandle fixed = pair_.root(1);
  FileHandle same = file;
  std::memcpy(same.octets.data(), fixed.octets.data(), 4);
  EXPECT_EQ(pair_.attributes(same).fileid, pair_.attributes(file).fileid);
  EXPECT_EQ(pair_.write(same, 0, pattern(4)).status, NfsStat3::kRofs);
  EXPECT_EQ(pair_
                .make(NfsProc3::kMkdir,
                      [&](XdrWriter& out) {
                        encode(out, DirOpArgs3{fixed.bytes(), "d"});
                        encode(out, Sattr3{});
                      })
                .first,
            NfsStat3::kRofs);
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(fixed, "f")).status(), NfsStat3::kRofs);
  EXPECT_EQ(pair_.read(same, 0, 4).status, NfsStat3::kOk);
}

TEST_F(NfsServerTest, RootIsSquashedUnlessTheExportTrustsIt) {
  const FileHandle mine = pair_.make_file(root_, "mine", 0600);
  pair_.credential = user(0, 0);
  const FileHandle squashed = pair_.make_file(root_, "squashed");
  EXPECT_EQ(pair_.attributes(squashed).uid, 65'534U);
  EXPECT_EQ(pair_.attributes(squashed).gid, 65'534U);
  EXPECT_EQ(pair_.read(mine, 0, 4).status, NfsStat3::kAcces);
  EXPECT_EQ(pair_.attributes(pair_.make_file(pair_.root(2), "trusted")).uid, 0U);
  pair_.credential = Credential{};  // AUTH_NONE
  EXPECT_EQ(pair_.attributes(pair_.make_file(root_, "nobody")).uid, 65'534U);
}

TEST_F(NfsServerTest, AFullStoreSaysSoAndFreesWhatIsRemoved) {
  const FileHandle file = pair_.make_file(root_, "f");
  const auto data = pattern(1U << 20U);
  std::uint64_t size = 0;
  NfsPair::WriteResult result;
  for (int i = 0; i < 20; ++i) {
    result = pair_.write(file, size, data);
    if (result.status != NfsStat3::kOk) break;
    size += result.count;
  }
  EXPECT_EQ(result.status, NfsStat3::kNospc);
  EXPECT_GE(size, NfsPair::kStoreBytes - 2 * 65'536);
  EXPECT_EQ(pair_.attributes(file).size, size);
  EXPECT_EQ(pair_.write(file, 0, data).status, NfsStat3::kOk);  // what it has can be overwritten
  EXPECT_EQ(pair_.call(NfsProc3::kRemove, NfsPair::of_name(root_, "f")).status(), NfsStat3::kOk);
  EXPECT_EQ(pair_.write(pair_.make_file(root_, "g"), 0, data).count, data.size());
}

TEST_F(NfsServerTest, ManyWritesIntoOneHoleAllArrive) {
  const FileHandle file = pair_.make_file(root_, "f");
  constexpr std::size_t kPart = 4096;
  constexpr std::size_t kParts = 24;
  const RegisteredBytes memory = pair_.client->application_memory();
  const auto data = pattern(kPart * kParts);
  std::ranges::copy(data, memory.begin());
  std::array<rodeo::test::Seen, kParts> seen;
  for (std::size_t i = 0; i < kParts; ++i) {
    Bulk bulk;
    bulk.sources = {{NfsPair::offset_of_data(file), memory.subspan(i * kPart, kPart)}};
    pair_.submit(NfsProc3::kWrite, NfsPair::of_write(file, 100'000 + i * kPart, kPart, kPart), bulk, seen[i]);
  }
  pair_.until([&] { return std::ranges::all_of(seen, [](const auto& one) { return one.times == 1; }); });
  EXPECT_EQ(pair_.read(file, 100'000, kPart * kParts).data, data);
  EXPECT_EQ(pair_.read(file, 0, 100'000).data, std::vector<std::byte>(100'000));
  EXPECT_EQ(pair_.attributes(file).used, 3U * 65'536U);
}

/// A Call of each procedure but NULL.
std::vector<std::pair<NfsProc3, test::Arguments>> every_call(const FileHandle& directory, const FileHandle& file) {
  const auto name_in = [=](XdrWriter& out) { encode(out, DirOpArgs3{directory.bytes(), "n"}); };
  std::vector<std::pair<NfsProc3, test::Arguments>> calls;
  const auto add = [&](NfsProc3 proc, test::Arguments arguments) { calls.emplace_back(proc, std::move(arguments)); };
  for (const NfsProc3 proc :
       {NfsProc3::kGetattr, NfsProc3::kReadlink, NfsProc3::kFsstat, NfsProc3::kFsinfo, NfsProc3::kPathconf}) {
    add(proc, NfsPair::of_handle(file));
  }
  for (const NfsProc3 proc : {NfsProc3::kLookup, NfsProc3::kRemove, NfsProc3::kRmdir}) {
    add(proc, name_in);
  }
  for (const NfsProc3 proc : {NfsProc3::kRead, NfsProc3::kCommit}) add(proc, NfsPair::of_read(file, 0, 4));
  add(NfsProc3::kSetattr, [=](XdrWriter& out) {
    Sattr3 wanted;
    wanted.size = 4;
    wanted.mtime = {TimeHow::kSetToClientTime, {1, 2}};
    encode(out, file);
    encode(out, wanted);
    encode(out, std::optional<NfsTime3>({3, 4}));
  });
  add(NfsProc3::kAccess, [=](XdrWriter& out) {
    encode(out, file);
    out.u32(1);
  });
  add(NfsProc3::kWrite, [=](XdrWriter& out) {
    NfsPair::of_write(file, 0, 8, 8)(out);
    out.u64(0);
  });
  add(NfsProc3::kCreate, [=](XdrWriter& out) {
    name_in(out);
    out.enumeration(CreateMode3::kUnchecked);
    encode(out, Sattr3{});
  });
  add(NfsProc3::kMkdir, [=](XdrWriter& out) {
    name_in(out);
    encode(out, Sattr3{});
  });
  add(NfsProc3::kSymlink, [=](XdrWriter& out) {
    name_in(out);
    encode(out, Sattr3{});
    out.string("target");
  });
  add(NfsProc3::kMknod, [=](XdrWriter& out) {
    name_in(out);
    out.enumeration(Ftype3::kChr);
    encode(out, Sattr3{});
    encode(out, Specdata3{});
  });
  add(NfsProc3::kRename, [=](XdrWriter& out) {
    name_in(out);
    name_in(out);
  });
  add(NfsProc3::kLink, [=](XdrWriter& out) {
    encode(out, file);
    name_in(out);
  });
  add(NfsProc3::kReaddir, [=](XdrWriter& out) {
    encode(out, directory);
    out.u64(0);
    out.u64(0);
    out.u32(500);
  });
  add(NfsProc3::kReaddirplus, [=](XdrWriter& out) {
    encode(out, directory);
    out.u64(0);
    out.u64(0);
    out.u32(500);
    out.u32(500);
  });
  return calls;
}

TEST_F(NfsServerTest, ArgumentsThatDoNotParseAreGarbage) {
  const auto calls = every_call(root_, pair_.make_file(root_, "f"));
  EXPECT_EQ(calls.size(), 21U);  // all but NULL
  for (const auto& call : calls) {
    const NfsProc3 proc = call.first;  // clang 14 does not capture structured bindings
    const auto& arguments = call.second;
    std::vector<std::byte> storage(2048);
    XdrWriter writer(storage);
    arguments(writer);
    const auto with = [&](std::span<const std::byte> octets) {
      return pair_.call(proc, [&](XdrWriter& out) {
        if (std::byte* at = out.reserve(octets.size())) std::ranges::copy(octets, at);
      });
    };
    for (std::size_t length = 0; length < writer.size(); length += 4) {
      EXPECT_EQ(with(writer.written().first(length)).seen.accept_stat, AcceptStat::kGarbageArgs)
          << static_cast<unsigned>(proc) << " cut at " << length;
    }
    writer.u32(0);
    EXPECT_EQ(with(writer.written()).seen.accept_stat, AcceptStat::kGarbageArgs) << static_cast<unsigned>(proc);
    // Any word may be anything: an answer comes, and the next one is right.
    for (std::size_t at = 0; at + 4 < writer.size(); at += 4) {
      for (const std::uint32_t word : {0U, 1U, 0x7fff'fffcU, 0xffff'ffffU}) {
        std::vector<std::byte> changed(writer.written().begin(), writer.written().end() - 4);
        store_be32(changed.data() + at, word);
        EXPECT_EQ(with(changed).seen.times, 1);
      }
    }
  }
  EXPECT_EQ(pair_.call(NfsProc3::kNull, [](XdrWriter& out) { out.u32(0); }).seen.accept_stat, AcceptStat::kGarbageArgs);
  EXPECT_EQ(pair_.attributes(root_).type, Ftype3::kDir);
}

/// We are a process of this host, and none of the clients that "/far" has.
TEST_F(NfsServerTest, AHandleIsOfNoUseToWhoIsNoClientOfItsExport) {
  const FileHandle file = pair_.make_file(root_, "f");
  FileHandle far_file = file;
  std::memcpy(far_file.octets.data(), pair_.root(3).octets.data(), 4);  // the same object of the other export
  const auto calls = every_call(pair_.root(3), far_file);
  for (const auto& [proc, arguments] : calls) {
    EXPECT_EQ(pair_.call(proc, arguments).status(), NfsStat3::kAcces) << static_cast<unsigned>(proc);
  }
  EXPECT_EQ(pair_.attributes(file).size, 0U);
  EXPECT_EQ(pair_.attributes(pair_.root(4)).type, Ftype3::kDir);
  // Both directories of a RENAME count.
  const auto renamed = pair_.call(NfsProc3::kRename, [&](XdrWriter& out) {
    encode(out, DirOpArgs3{root_.bytes(), "f"});
    encode(out, DirOpArgs3{pair_.root(3).bytes(), "g"});
  });
  EXPECT_EQ(renamed.status(), NfsStat3::kAcces);
  const auto mnt = [&](const char* path) {
    const CallTarget target(kMountProgram, kMountVersion, 1, Credential{});
    std::vector<std::byte> storage(64);
    XdrWriter writer(storage);
    writer.string(path);
    rodeo::test::Seen seen;
    EXPECT_EQ(pair_.connection->submit({.target = &target,
                                        .arguments = writer.written(),
                                        .on_reply = rodeo::test::Seen::on_reply,
                                        .context = &seen}),
              SubmitOutcome::kPosted);
    pair_.until([&] { return seen.times == 1; });
    return static_cast<NfsStat3>(load_be32(seen.results.data()));
  };
  EXPECT_EQ(mnt("/far"), NfsStat3::kAcces);
  EXPECT_EQ(mnt("/here"), NfsStat3::kOk);
}

TEST_F(NfsServerTest, OtherProceduresAndVersionsAreNotThere) {
  EXPECT_EQ(pair_.call(static_cast<NfsProc3>(22), {}).seen.accept_stat, AcceptStat::kProcUnavail);
  const CallTarget acl(100'227, 3, 0, Credential{});
  rodeo::test::Seen seen;
  ASSERT_EQ(pair_.connection->submit({.target = &acl, .on_reply = rodeo::test::Seen::on_reply, .context = &seen}),
            SubmitOutcome::kPosted);
  pair_.until([&] { return seen.times == 1; });
  EXPECT_EQ(seen.accept_stat, AcceptStat::kProgUnavail);
}

}  // namespace
}  // namespace rodeo::nfs
