// SPDX-License-Identifier: Apache-2.0
// Calls that come again over another connection, with the XID that they had. A raw peer sends them, since our Requester
// never would.

#include <algorithm>

#include "apps/nfs/test_slow_store.h"
#include "pools/proves.h"

namespace rodeo::nfs {
namespace {

using rodeo::test::Pair;
using rodeo::test::RawPeer;
using test::SlowStore;

const rodeo::test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kXid = 0x4242'0001;
constexpr std::size_t kHeadersBytes = 28 + 24;  // of a Reply: to the status

class DuplicateCallsTest : public testing::Test {
 protected:
  DuplicateCallsTest() {
    Config config = rodeo::test::small_config();
    config.application_bytes = 4U << 20U;
    pair_ = std::make_unique<Pair>(
        [this](Engine& engine) {
          store_ = std::make_unique<SlowStore>(engine.application_memory(), true);
          nfs_ = test::must(NfsServer::add_to(engine, {{"/data", store_.get(), {}}}, 1U << 18U));
        },
        config, rodeo::test::small_config());
    root_ = NfsServer::handle_on_wire(nfs_->exports()[0], store_->root());
  }
  ~DuplicateCallsTest() override {
    store_->hold(false);
    pair_->until([&] { return pair_->server->connection_count() == 0; });
    pair_->server->stop();
    const auto [adds_up, where] = pair_->server->audit();
    EXPECT_TRUE(adds_up) << where;
  }

  [[nodiscard]] static std::vector<std::byte> message(NfsProc3 proc, const test::Arguments& arguments,
                                                      std::uint32_t xid = kXid, std::uint32_t uid = 1000) {
    const CallTarget target(kNfsProgram, kNfsVersion, static_cast<std::uint32_t>(proc), test::user(uid, 100));
    std::vector<std::byte> out(2048);
    std::ranges::copy(target.bytes(), out.begin());
    XdrWriter writer(std::span<std::byte>(out).subspan(target.bytes().size()));
    arguments(writer);
    out.resize(target.bytes().size() + writer.size());
    store_be32(out.data(), xid);
    store_be32(out.data() + 8, 8);  // credits
    store_be32(out.data() + 28, xid);
    return out;
  }
  [[nodiscard]] std::vector<std::byte> mkdir(const std::string& name, std::uint32_t xid = kXid,
                                             std::uint32_t uid = 1000) const {
    return message(
        NfsProc3::kMkdir,
        [&](XdrWriter& out) {
          encode(out, DirOpArgs3{root_.bytes(), name});
          encode(out, Sattr3{});
        },
        xid, uid);
  }
  /// What follows accept_stat.
  std::vector<std::byte> results(RawPeer& peer) {
    for (int i = 0; i < 200; ++i) {
      auto reply = peer.receive();
      if (reply.size() > kHeadersBytes) {
        return {reply.begin() + kHeadersBytes, reply.end()};
      }
    }
    ADD_FAILURE() << "no Reply";
    return std::vector<std::byte>(4, std::byte{0xff});
  }
  static NfsStat3 status(const std::vector<std::byte>& results) {
    return static_cast<NfsStat3>(load_be32(results.data()));
  }

  std::unique_ptr<SlowStore> store_;
  std::unique_ptr<NfsServer> nfs_;
  std::unique_ptr<Pair> pair_;
  FileHandle root_;
};

TEST_F(DuplicateCallsTest, TheSameCallOverAnotherConnectionHasTheSameAnswer) {
  proves("R1813-3-5", "ENG-RT-3", "ENG-RT-4", "ENG-RT-6");
  RawPeer first(*pair_);
  first.send(mkdir("d"));
  const auto answer = results(first);
  EXPECT_EQ(status(answer), NfsStat3::kOk);
  RawPeer second(*pair_);
  second.send(mkdir("d"));
  EXPECT_EQ(results(second), answer);
  second.send(mkdir("d", kXid + 1));  // another Call
  EXPECT_EQ(status(results(second)), NfsStat3::kExist);
  second.send(mkdir("d", kXid, 2000));  // somebody else's
  EXPECT_EQ(status(results(second)), NfsStat3::kExist);
  second.send(mkdir("e"));  // the XID of before, for something else
  EXPECT_EQ(status(results(second)), NfsStat3::kOk);
}

TEST_F(DuplicateCallsTest, ACallThatComesAgainWhileTheFirstIsUnderWayWaits) {
  proves("ENG-RT-6");
  RawPeer setting(*pair_);
  setting.send(mkdir("d", 1));
  EXPECT_EQ(status(results(setting)), NfsStat3::kOk);
  const auto rmdir = message(NfsProc3::kRmdir, test::NfsPair::of_name(root_, "d"));
  store_->hold(true);
  auto first = std::make_unique<RawPeer>(*pair_);
  first->send(rmdir);
  pair_->until([&] { return store_->waiting() == 1; });
  RawPeer second(*pair_);
  second.send(rmdir);
  EXPECT_TRUE(second.receive(500).empty());
  EXPECT_EQ(store_->waiting(), 1U);
  RawPeer third(*pair_);
  third.send(rmdir);
  EXPECT_TRUE(third.receive(500).empty());
  store_->hold(false);
  EXPECT_EQ(status(results(second)), NfsStat3::kOk);
  EXPECT_EQ(status(results(third)), NfsStat3::kOk);
  EXPECT_EQ(status(results(*first)), NfsStat3::kOk);
}

TEST_F(DuplicateCallsTest, WhatWasDoneForALostConnectionIsToldToTheNext) {
  proves("ENG-RT-6");
  RawPeer setting(*pair_);
  setting.send(mkdir("d", 1));
  EXPECT_EQ(status(results(setting)), NfsStat3::kOk);
  const auto rmdir = message(NfsProc3::kRmdir, test::NfsPair::of_name(root_, "d"));
  const std::size_t connections = pair_->server->connection_count();
  store_->hold(true);
  auto first = std::make_unique<RawPeer>(*pair_);
  first->send(rmdir);
  pair_->until([&] { return store_->waiting() == 1; });
  first.reset();
  for (int i = 0; i < 2000; ++i) pair_->turn();
  store_->hold(false);
  pair_->until([&] { return pair_->server->connection_count() == connections; });
  RawPeer second(*pair_);
  second.send(rmdir);
  EXPECT_EQ(status(results(second)), NfsStat3::kOk);  // and not NFS3ERR_NOENT
}

}  // namespace
}  // namespace rodeo::nfs
