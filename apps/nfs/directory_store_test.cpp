// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/directory_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <map>
#include <set>
#include <vector>

#include "apps/nfs/sip_hash.h"

namespace rodeo::nfs {
namespace {

namespace fs = std::filesystem;

/// An operation that its maker waits for.
template <class Op>
class Waiting : public Op {
 public:
  Waiting() noexcept : Op(&done, nullptr) {}
  [[nodiscard]] NfsStat3 result() { return future_.get(); }

 private:
  static void done(Operation& operation, NfsStat3 status) noexcept {
    static_cast<Waiting&>(static_cast<Op&>(operation)).promise_.set_value(status);
  }
  std::promise<NfsStat3> promise_;
  std::future<NfsStat3> future_ = promise_.get_future();
};

Credentials user(std::uint32_t uid, std::uint32_t gid) {
  Credentials who;
  who.uid = uid;
  who.gid = gid;
  return who;
}
const Credentials kRoot = user(0, 0);
const Credentials kAlice = user(1001, 1001);
const Credentials kBob = user(1002, 1002);

Sattr3 with_mode(std::uint32_t mode) {
  Sattr3 wanted;
  wanted.mode = mode;
  return wanted;
}
Sattr3 with_size(std::uint64_t size) {
  Sattr3 wanted;
  wanted.size = size;
  return wanted;
}
Sattr3 with_owner(std::uint32_t uid) {
  Sattr3 wanted;
  wanted.uid = uid;
  return wanted;
}

class Sink final : public EntrySink {
 public:
  explicit Sink(std::size_t room) : room_(room) {}
  bool add(const Entry3& entry) noexcept override {
    if (entries.size() == room_) return false;
    entries.push_back({std::string(entry.name), entry});
    return true;
  }
  std::vector<std::pair<std::string, Entry3>> entries;

 private:
  std::size_t room_;
};

class DirectoryStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "handles are opened as root only";
    std::string made = (fs::temp_directory_path() / "rodeo-store-XXXXXX").string();
    ASSERT_NE(::mkdtemp(made.data()), nullptr);
    path_ = made;
    ASSERT_EQ(::chmod(made.c_str(), 0777), 0);
    restart();
  }
  void TearDown() override {
    store_.reset();
    if (!path_.empty()) fs::remove_all(path_);
  }
  void restart() {
    store_.reset();
    auto opened = make_directory_store(path_.string());
    ASSERT_TRUE(opened) << opened.error().message();
    store_ = std::move(*opened);
    root_ = store_->root();
  }

  FileHandle lookup(const FileHandle& in, std::string_view name, NfsStat3 expected = NfsStat3::kOk,
                    const Credentials& who = kRoot) {
    Waiting<Lookup> op;
    op.credentials = who;
    op.directory = in.bytes();
    op.name = name;
    store_->lookup(op);
    EXPECT_EQ(op.result(), expected) << name;
    return op.object;
  }
  FileHandle create(std::string_view name, Ftype3 type = Ftype3::kReg, const Credentials& who = kRoot,
                    NfsStat3 expected = NfsStat3::kOk, std::uint32_t mode = 0640, std::string_view target = {}) {
    Waiting<Create> op;
    op.credentials = who;
    op.directory = root_.bytes();
    op.name = name;
    op.type = type;
    op.new_attributes.mode = mode;
    op.target = target;
    store_->create(op);
    EXPECT_EQ(op.result(), expected) << name;
    EXPECT_TRUE(op.directory_wcc.after);
    EXPECT_EQ(op.object.has_value(), expected == NfsStat3::kOk);
    return op.object.value_or(FileHandle{});
  }
  NfsStat3 write(const FileHandle& file, std::uint64_t offset, std::string text, StableHow stable,
                 const Credentials& who = kRoot, Verf3* verifier = nullptr) {
    Waiting<Write> op;
    op.credentials = who;
    op.object = file.bytes();
    op.offset = offset;
    op.count = static_cast<std::uint32_t>(text.size());
    op.stable = stable;
    const auto bytes = std::as_writable_bytes(std::span(text));
    op.data.add(bytes.first(bytes.size() / 2));
    op.data.add(bytes.subspan(bytes.size() / 2));
    store_->write(op);
    const NfsStat3 status = op.result();
    if (status == NfsStat3::kOk) {
      EXPECT_EQ(op.written, text.size());
      EXPECT_EQ(op.committed, stable);
      if (verifier != nullptr) *verifier = op.verifier;
    }
    return status;
  }
  NfsStat3 read(const FileHandle& file, std::uint64_t offset, std::uint32_t count, std::string& text, bool& eof,
                const Credentials& who = kRoot) {
    std::vector<std::byte> buffer(count);
    Waiting<Read> op;
    op.credentials = who;
    op.object = file.bytes();
    op.offset = offset;
    op.count = count;
    op.buffer = buffer;
    store_->read(op);
    const NfsStat3 status = op.result();
    text.clear();
    for (const RegisteredBytes piece : op.data.all()) {
      text.append(reinterpret_cast<const char*>(piece.data()), piece.size());
    }
    eof = op.eof;
    return status;
  }
  Fattr3 attributes(const FileHandle& object, NfsStat3 expected = NfsStat3::kOk) {
    Waiting<Getattr> op;
    op.object = object.bytes();
    store_->getattr(op);
    EXPECT_EQ(op.result(), expected);
    return op.attributes;
  }
  NfsStat3 set(const FileHandle& object, const Sattr3& wanted, const Credentials& who = kRoot,
               std::optional<NfsTime3> guard = {}) {
    Waiting<Setattr> op;
    op.credentials = who;
    op.object = object.bytes();
    op.new_attributes = wanted;
    op.guard = guard;
    store_->setattr(op);
    return op.result();
  }
  NfsStat3 remove(std::string_view name, bool is_rmdir = false, const Credentials& who = kRoot) {
    Waiting<Remove> op;
    op.credentials = who;
    op.directory = root_.bytes();
    op.name = name;
    op.is_rmdir = is_rmdir;
    store_->remove(op);
    return op.result();
  }
  NfsStat3 rename(std::string_view from, std::string_view to, const FileHandle& into, const Credentials& who = kRoot) {
    Waiting<Rename> op;
    op.credentials = who;
    op.from_directory = root_.bytes();
    op.from_name = from;
    op.to_directory = into.bytes();
    op.to_name = to;
    store_->rename(op);
    return op.result();
  }

  fs::path path_;
  std::unique_ptr<Store> store_;
  FileHandle root_;
};

TEST(SipHash, GivesWhatItsAuthorsSay) {
  std::array<std::byte, 15> octets;
  for (std::size_t i = 0; i < octets.size(); ++i) octets[i] = static_cast<std::byte>(i);
  EXPECT_EQ(sip_hash({0x0706050403020100U, 0x0f0e0d0c0b0a0908U}, octets), 0xa129ca6149be45e5U);
}

TEST_F(DirectoryStoreTest, KeepsDataThatOtherProgramsSeeAndSeesTheirs) {
  const FileHandle file = create("file");
  EXPECT_EQ(write(file, 3, "abcdef", StableHow::kUnstable), NfsStat3::kOk);
  std::string seen(fs::file_size(path_ / "file"), ' ');
  std::ifstream(path_ / "file").read(seen.data(), static_cast<std::streamsize>(seen.size()));
  EXPECT_EQ(seen, std::string("\0\0\0abcdef", 9));
  std::ofstream(path_ / "file", std::ios::app) << "!";
  std::string text;
  bool eof = false;
  EXPECT_EQ(read(file, 3, 4, text, eof), NfsStat3::kOk);
  EXPECT_EQ(text, "abcd");
  EXPECT_FALSE(eof);
  EXPECT_EQ(read(file, 7, 3, text, eof), NfsStat3::kOk);
  EXPECT_EQ(text, "ef!");
  EXPECT_TRUE(eof);
  EXPECT_EQ(read(file, 100, 10, text, eof), NfsStat3::kOk);
  EXPECT_TRUE(text.empty() && eof);
  EXPECT_EQ(read(root_, 0, 10, text, eof), NfsStat3::kIsdir);
}

TEST_F(DirectoryStoreTest, TellsTheAttributesOfTheFile) {
  const FileHandle file = create("file", Ftype3::kReg, kAlice);
  ASSERT_EQ(write(file, 0, "12345", StableHow::kFileSync, kAlice), NfsStat3::kOk);
  struct stat expected {};
  ASSERT_EQ(::stat((path_ / "file").c_str(), &expected), 0);
  const Fattr3 found = attributes(file);
  EXPECT_EQ(found.type, Ftype3::kReg);
  EXPECT_EQ(found.mode, 0640U);
  EXPECT_EQ(found.uid, 1001U);
  EXPECT_EQ(found.gid, 1001U);
  EXPECT_EQ(found.size, 5U);
  EXPECT_EQ(found.fileid, expected.st_ino);
  EXPECT_EQ(found.mtime.nseconds, static_cast<std::uint32_t>(expected.st_mtim.tv_nsec));
  EXPECT_EQ(lookup(root_, "file"), file);
  EXPECT_EQ(attributes(root_).type, Ftype3::kDir);
}

TEST_F(DirectoryStoreTest, HandlesOutliveRestartsAndRenamesAndNotTheirObjects) {
  const FileHandle file = create("before");
  const FileHandle into = create("directory", Ftype3::kDir);
  ASSERT_EQ(write(file, 0, "text", StableHow::kFileSync), NfsStat3::kOk);
  EXPECT_EQ(rename("before", "after", into), NfsStat3::kOk);
  Verf3 first{};
  Verf3 second{};
  ASSERT_EQ(write(file, 0, "text", StableHow::kUnstable, kRoot, &first), NfsStat3::kOk);
  const FileHandle root = root_;
  restart();
  EXPECT_EQ(root_, root);
  std::string text;
  bool eof = false;
  EXPECT_EQ(read(file, 0, 10, text, eof), NfsStat3::kOk);
  EXPECT_EQ(text, "text");
  ASSERT_EQ(write(file, 0, "text", StableHow::kUnstable, kRoot, &second), NfsStat3::kOk);
  EXPECT_NE(first, second) << "clients must send again what they had not committed";
  fs::remove(path_ / "directory" / "after");
  attributes(file, NfsStat3::kStale);
}

TEST_F(DirectoryStoreTest, OpensNoHandleThatItDidNotMake) {
  FileHandle file = create("file");
  for (std::size_t i = 0; i < file.size; ++i) {
    file.octets[i] ^= std::byte{1};
    attributes(file, NfsStat3::kBadhandle);
    file.octets[i] ^= std::byte{1};
  }
  attributes(FileHandle{}, NfsStat3::kBadhandle);
  file.size -= 1;
  attributes(file, NfsStat3::kBadhandle);
  // One of another export of the same file system is none of this one's.
  const fs::path other = path_.string() + "-other";
  fs::create_directory(other);
  auto opened = make_directory_store(other.string());
  ASSERT_TRUE(opened);
  attributes((*opened)->root(), NfsStat3::kBadhandle);
  fs::remove_all(other);
}

TEST_F(DirectoryStoreTest, LooksUpInsideTheExportOnly) {
  EXPECT_EQ(lookup(root_, ".."), root_);
  EXPECT_EQ(lookup(root_, "."), root_);
  const FileHandle directory = create("directory", Ftype3::kDir, kRoot, NfsStat3::kOk, 0755);
  EXPECT_EQ(lookup(directory, ".."), root_);
  create("link", Ftype3::kLnk, kRoot, NfsStat3::kOk, 0777, "/etc");
  const FileHandle link = lookup(root_, "link");
  EXPECT_EQ(attributes(link).type, Ftype3::kLnk);
  lookup(link, "passwd", NfsStat3::kNotdir);
  lookup(root_, "nothing", NfsStat3::kNoent);
  std::array<std::byte, kMaxPathBytes> buffer;
  Waiting<Readlink> op;
  op.object = link.bytes();
  op.buffer = buffer;
  store_->readlink(op);
  EXPECT_EQ(op.result(), NfsStat3::kOk);
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(buffer.data()), op.length), "/etc");
}

TEST_F(DirectoryStoreTest, WhoeverAsksHasHisOwnRightsAndNoMore) {
  const FileHandle file = create("alices", Ftype3::kReg, kAlice, NfsStat3::kOk, 0600);
  std::string text;
  bool eof = false;
  EXPECT_EQ(write(file, 0, "secret", StableHow::kUnstable, kBob), NfsStat3::kAcces);
  EXPECT_EQ(read(file, 0, 10, text, eof, kBob), NfsStat3::kAcces);
  EXPECT_EQ(write(file, 0, "secret", StableHow::kUnstable, kAlice), NfsStat3::kOk);
  EXPECT_EQ(set(file, with_mode(0666), kBob), NfsStat3::kPerm);
  EXPECT_EQ(set(file, with_owner(1002), kAlice), NfsStat3::kPerm);
  EXPECT_EQ(set(file, with_mode(0), kAlice), NfsStat3::kOk);
  EXPECT_EQ(read(file, 0, 10, text, eof, kAlice), NfsStat3::kOk) << "an owner may have it open";
  const FileHandle directory = create("closed", Ftype3::kDir, kAlice, NfsStat3::kOk, 0700);
  lookup(directory, "x", NfsStat3::kAcces, kBob);
  lookup(directory, "x", NfsStat3::kNoent, kAlice);
  // A sticky directory.
  EXPECT_EQ(set(root_, with_mode(01777)), NfsStat3::kOk);
  EXPECT_NE(remove("alices", false, kBob), NfsStat3::kOk);
  EXPECT_EQ(remove("alices", false, kAlice), NfsStat3::kOk);
  // A supplementary group counts, and a squashed root is nobody.
  Credentials member = kBob;
  member.gid_count = 1;
  member.gids[0] = 1001;
  const FileHandle shared = create("shared", Ftype3::kDir, kAlice, NfsStat3::kOk, 0750);
  lookup(shared, "x", NfsStat3::kNoent, member);
  lookup(shared, "x", NfsStat3::kAcces, Credentials{});
  EXPECT_EQ(attributes(create("nobodys", Ftype3::kReg, Credentials{})).uid, 65'534U);
  create("device", Ftype3::kBlk, kBob, NfsStat3::kPerm);
  // And after all that the threads are root's again.
  EXPECT_EQ(attributes(create("roots", Ftype3::kReg, kRoot)).uid, 0U);
}

TEST_F(DirectoryStoreTest, ASetuidFileLosesTheBitWhenAnotherWrites) {
  const FileHandle file = create("program", Ftype3::kReg, kAlice, NfsStat3::kOk, 04777);
  EXPECT_EQ(attributes(file).mode, 04777U);
  EXPECT_EQ(write(file, 0, "x", StableHow::kUnstable, kBob), NfsStat3::kOk);
  EXPECT_EQ(attributes(file).mode, 0777U);
}

TEST_F(DirectoryStoreTest, SetsAttributesAndHeedsTheGuard) {
  const FileHandle file = create("file", Ftype3::kReg, kAlice);
  Sattr3 wanted = with_mode(0604);
  wanted.size = 100;
  wanted.atime = {TimeHow::kSetToClientTime, {1'000'000, 5}};
  wanted.mtime = {TimeHow::kSetToClientTime, {2'000'000, 6}};
  EXPECT_EQ(set(file, wanted, kAlice), NfsStat3::kOk);
  const Fattr3 now = attributes(file);
  EXPECT_EQ(now.mode, 0604U);
  EXPECT_EQ(now.size, 100U);
  EXPECT_EQ(now.atime, (NfsTime3{1'000'000, 5}));
  EXPECT_EQ(now.mtime, (NfsTime3{2'000'000, 6}));
  EXPECT_EQ(set(file, with_size(7), kAlice, NfsTime3{1, 1}), NfsStat3::kNotSync);
  EXPECT_EQ(set(file, with_size(7), kAlice, now.ctime), NfsStat3::kOk);
  EXPECT_EQ(attributes(file).size, 7U);
  EXPECT_EQ(set(root_, with_size(7)), NfsStat3::kIsdir);
}

TEST_F(DirectoryStoreTest, CreatesInAllThreeModes) {
  Waiting<Create> op;
  op.credentials = kAlice;
  op.directory = root_.bytes();
  op.name = "exclusive";
  op.mode = CreateMode3::kExclusive;
  op.verifier.fill(std::byte{0x35});
  store_->create(op);
  ASSERT_EQ(op.result(), NfsStat3::kOk);
  ASSERT_TRUE(op.object);
  for (const bool same : {true, false}) {
    Waiting<Create> again;
    again.credentials = kAlice;
    again.directory = root_.bytes();
    again.name = "exclusive";
    again.mode = CreateMode3::kExclusive;
    again.verifier = op.verifier;
    if (!same) again.verifier[5] ^= std::byte{1};
    store_->create(again);
    EXPECT_EQ(again.result(), same ? NfsStat3::kOk : NfsStat3::kExist);
    if (same) {
      EXPECT_EQ(again.object, op.object);
    }
  }
  create("exclusive", Ftype3::kReg, kAlice, NfsStat3::kExist);
  ASSERT_EQ(write(*op.object, 0, "text", StableHow::kUnstable, kAlice), NfsStat3::kOk);
  Waiting<Create> unchecked;
  unchecked.credentials = kAlice;
  unchecked.directory = root_.bytes();
  unchecked.name = "exclusive";
  unchecked.mode = CreateMode3::kUnchecked;
  unchecked.new_attributes.size = 0;
  store_->create(unchecked);
  EXPECT_EQ(unchecked.result(), NfsStat3::kOk);
  EXPECT_EQ(unchecked.object, op.object);
  EXPECT_EQ(unchecked.attributes->size, 0U);
}

TEST_F(DirectoryStoreTest, LinksRenamesAndRemoves) {
  const FileHandle file = create("one");
  Waiting<Link> link;
  link.credentials = kRoot;
  link.object = file.bytes();
  link.directory = root_.bytes();
  link.name = "two";
  store_->link(link);
  EXPECT_EQ(link.result(), NfsStat3::kOk);
  EXPECT_EQ(link.attributes->nlink, 2U);
  EXPECT_EQ(lookup(root_, "two"), file);
  const FileHandle directory = create("directory", Ftype3::kDir);
  EXPECT_EQ(rename("two", "three", directory), NfsStat3::kOk);
  EXPECT_EQ(remove("directory", true), NfsStat3::kNotempty);
  EXPECT_EQ(remove("one", true), NfsStat3::kNotdir);
  EXPECT_EQ(remove("directory"), NfsStat3::kIsdir);
  EXPECT_EQ(remove("one"), NfsStat3::kOk);
  EXPECT_EQ(attributes(file).nlink, 1U);
  EXPECT_EQ(rename("directory", "below", directory), NfsStat3::kInval);
  EXPECT_EQ(rename("nothing", "x", root_), NfsStat3::kNoent);
}

TEST_F(DirectoryStoreTest, CookiesStayWhileTheDirectoryChangesAndTheStoreRestarts) {
  std::set<std::string> names{".", ".."};
  for (int i = 0; i < 300; ++i) {
    names.insert("name" + std::to_string(i));
    std::ofstream(path_ / ("name" + std::to_string(i))) << i;
  }
  std::map<std::string, std::uint64_t> seen;
  std::uint64_t cookie = 0;
  for (int call = 0;; ++call) {
    ASSERT_LT(call, 100);
    Sink sink(17);
    Waiting<Readdir> op;
    op.credentials = kRoot;
    op.directory = root_.bytes();
    op.cookie = cookie;
    op.plus = true;
    op.entries = &sink;
    store_->readdir(op);
    ASSERT_EQ(op.result(), NfsStat3::kOk);
    for (const auto& [name, entry] : sink.entries) {
      EXPECT_TRUE(seen.emplace(name, entry.cookie).second) << name << " twice";
      ASSERT_TRUE(entry.name_handle && entry.name_attributes) << name;
      EXPECT_EQ(entry.name_attributes->fileid, entry.fileid);
      if (name[0] == 'n') {
        EXPECT_EQ(*entry.name_handle, lookup(root_, name));
      }
      cookie = entry.cookie;
    }
    if (op.eof) break;
    // What was listed goes, something else comes, and the store is another one.
    if (!sink.entries.empty() && sink.entries[0].first[0] == 'n') fs::remove(path_ / sink.entries[0].first);
    std::ofstream(path_ / ("new" + std::to_string(call))) << call;
    if (call % 5 == 0) restart();
  }
  for (const std::string& name : names) EXPECT_TRUE(seen.contains(name)) << name;
  Sink sink(1);
  Waiting<Readdir> op;
  op.credentials = kRoot;
  op.directory = root_.bytes();
  op.cookie = 5;
  op.asked_verifier.fill(std::byte{1});
  op.entries = &sink;
  store_->readdir(op);
  EXPECT_EQ(op.result(), NfsStat3::kBadCookie);
}

TEST_F(DirectoryStoreTest, NothingThatWasAcknowledgedAsStableIsLostBySigkill) {
  store_.reset();
  std::array<int, 2> pipe{};
  ASSERT_EQ(::pipe(pipe.data()), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto opened = make_directory_store(path_.string());
    if (!opened) ::_exit(1);
    store_ = std::move(*opened);
    root_ = store_->root();
    const FileHandle file = create("log", Ftype3::kReg, kAlice);
    if (::write(pipe[1], &file, sizeof file) != sizeof file) ::_exit(1);
    for (std::uint64_t i = 0;; ++i) {
      if (write(file, i * 8, "record" + std::to_string(i % 90 + 10), StableHow::kFileSync, kAlice) != NfsStat3::kOk ||
          ::write(pipe[1], &i, sizeof i) != sizeof i) {
        ::_exit(1);
      }
    }
  }
  ::close(pipe[1]);
  FileHandle file;
  ASSERT_EQ(::read(pipe[0], &file, sizeof file), static_cast<ssize_t>(sizeof file));
  std::uint64_t acknowledged = 0;
  while (acknowledged < 20) ASSERT_EQ(::read(pipe[0], &acknowledged, sizeof acknowledged), 8);
  ::kill(child, SIGKILL);
  while (::read(pipe[0], &acknowledged, sizeof acknowledged) == 8) continue;
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  restart();
  for (std::uint64_t i = 0; i <= acknowledged; ++i) {
    std::string text;
    bool eof = false;
    ASSERT_EQ(read(file, i * 8, 8, text, eof), NfsStat3::kOk);
    EXPECT_EQ(text, "record" + std::to_string(i % 90 + 10));
  }
}

TEST_F(DirectoryStoreTest, CommitsAndTellsItsSpace) {
  const FileHandle file = create("file");
  Verf3 verifier{};
  ASSERT_EQ(write(file, 0, "x", StableHow::kUnstable, kRoot, &verifier), NfsStat3::kOk);
  Waiting<Commit> commit;
  commit.credentials = kRoot;
  commit.object = file.bytes();
  store_->commit(commit);
  EXPECT_EQ(commit.result(), NfsStat3::kOk);
  EXPECT_EQ(commit.verifier, verifier);
  Waiting<Fsstat> space;
  space.object = root_.bytes();
  store_->fsstat(space);
  EXPECT_EQ(space.result(), NfsStat3::kOk);
  EXPECT_GT(space.total_bytes, space.available_bytes);
  EXPECT_GT(space.available_bytes, 0U);
}

TEST_F(DirectoryStoreTest, ManyOperationsAtOnceAllComeBack) {
  const FileHandle file = create("file");
  std::vector<std::byte> buffer(4096, std::byte{7});
  std::vector<std::unique_ptr<Waiting<Write>>> writes;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    auto& op = *writes.emplace_back(std::make_unique<Waiting<Write>>());
    op.credentials = kRoot;
    op.object = file.bytes();
    op.offset = i * buffer.size();
    op.count = static_cast<std::uint32_t>(buffer.size());
    op.stable = StableHow::kUnstable;
    op.data.add(buffer);
    store_->write(op);
  }
  for (const auto& op : writes) EXPECT_EQ(op->result(), NfsStat3::kOk);
  EXPECT_EQ(attributes(file).size, 1000 * buffer.size());
}

TEST(DirectoryStore, WhatCannotBeExportedIsAnErrorThatSaysWhy) {
  const auto opened = make_directory_store("/nonexistent");
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message().find("/nonexistent"), std::string::npos);
}

}  // namespace
}  // namespace rodeo::nfs
