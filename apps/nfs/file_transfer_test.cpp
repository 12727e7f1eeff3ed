// SPDX-License-Identifier: Apache-2.0
// The client against a server whose store does all that RFC 1813 allows and few servers do: short reads, short writes,
// answers that come later, a write verifier that changes, and refusals.

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "apps/nfs/file_transfer.h"
#include "apps/nfs/nfs_server.h"
#include "apps/nfs/path_walker.h"
#include "apps/nfs/store.h"
#include "engine/test_pair.h"

namespace rodeo::nfs {
namespace {

const rodeo::test::RuntimeDirectory runtime_directory;

/// One file, "f", and beside it links: "self" to itself, "f-link" to the file, "up" to "../f", "away" to "/other/x".
class OddStore final : public Store {
 public:
  std::vector<std::byte> contents{};
  std::uint32_t most = UINT32_MAX;  // octets of a READ or WRITE that are served
  std::uint32_t busy_every = 0;     // each so many-th READ or WRITE is NFS3ERR_JUKEBOX
  std::uint32_t fail_at = 0;        // the so many-th is this:
  NfsStat3 failure = NfsStat3::kNospc;
  std::uint32_t restarts = 0;                // so often COMMIT comes from a server that started anew, without the data
  StableHow stable = StableHow::kUnstable;   // how WRITE writes
  std::uint64_t claimed_bytes = UINT64_MAX;  // what attributes say of the size, if not the truth
  std::uint32_t calls = 0;
  std::uint32_t commits = 0;

  [[nodiscard]] StoreTraits traits() const noexcept override { return {}; }
  [[nodiscard]] FileHandle root() const noexcept override { return handle_of(kRoot); }
  void getattr(Getattr& operation) noexcept override {
    operation.attributes = attributes_of(object_of(operation.object));
    operation.complete(NfsStat3::kOk);
  }
  void lookup(Lookup& operation) noexcept override {
    constexpr std::string_view kNames[] = {"", "f", "self", "f-link", "up", "away"};
    for (unsigned object = 1; object < std::size(kNames); ++object) {
      if (operation.name != kNames[object]) continue;
      operation.object = handle_of(object);  // without attributes: the client has to ask for them
      return operation.complete(NfsStat3::kOk);
    }
    operation.complete(NfsStat3::kNoent);
  }
  void readlink(Readlink& operation) noexcept override {
    constexpr std::string_view kTargets[] = {"", "", "self", "./f", "../f", "/other/x"};
    const std::string_view target = kTargets[object_of(operation.object)];
    std::memcpy(operation.buffer.data(), target.data(), target.size());
    operation.length = static_cast<std::uint32_t>(target.size());
    operation.complete(NfsStat3::kOk);
  }
  void read(Read& operation) noexcept override {
    if (refuse(operation)) return;
    const std::uint64_t offset = std::min<std::uint64_t>(operation.offset, contents.size());
    const std::size_t length = std::min<std::size_t>({operation.count, contents.size() - offset, most});
    if (length != 0) std::memcpy(operation.buffer.data(), contents.data() + offset, length);
    (void)operation.data.add(operation.buffer.first(length));
    operation.eof = offset + length == contents.size();
    operation.complete(NfsStat3::kOk);
  }
  void write(Write& operation) noexcept override {
    if (refuse(operation)) return;
    operation.written = std::min(operation.count, most);
    operation.committed = stable;
    operation.verifier = verifier();
    if (contents.size() < operation.offset + operation.written) contents.resize(operation.offset + operation.written);
    std::uint64_t at = operation.offset;
    std::uint32_t left = operation.written;
    for (const RegisteredBytes piece : operation.data.all()) {
      const std::size_t part = std::min<std::size_t>(piece.size(), left);
      std::memcpy(contents.data() + at, piece.data(), part);
      at += part;
      left -= static_cast<std::uint32_t>(part);
    }
    operation.complete(NfsStat3::kOk);
  }
  void commit(Commit& operation) noexcept override {
    if (commits++ < restarts) {
      contents.clear();
      ++boots_;
    }
    operation.verifier = verifier();
    operation.complete(NfsStat3::kOk);
  }
  void readdir(Readdir& operation) noexcept override { operation.complete(NfsStat3::kNotsupp); }

 private:
  static constexpr unsigned kRoot = 0;
  static FileHandle handle_of(unsigned object) {
    return FileHandle(std::as_bytes(std::span<const unsigned>{&object, 1}));
  }
  static unsigned object_of(HandleView handle) {
    unsigned object = kRoot;
    if (handle.size() == sizeof object) std::memcpy(&object, handle.data(), sizeof object);
    return object;
  }
  [[nodiscard]] Fattr3 attributes_of(unsigned object) const {
    Fattr3 out;
    out.type = object == kRoot ? Ftype3::kDir : object == 1 ? Ftype3::kReg : Ftype3::kLnk;
    out.mode = 0777;
    out.size = std::min<std::uint64_t>(contents.size(), claimed_bytes);
    out.fileid = object + 1;
    return out;
  }
  [[nodiscard]] Verf3 verifier() const { return Verf3{std::byte{boots_}}; }
  bool refuse(Operation& operation) {
    ++calls;
    if (calls == fail_at) {
      operation.complete(failure);
      return true;
    }
    if (busy_every != 0 && calls % busy_every == 0) {
      operation.complete(NfsStat3::kJukebox);
      return true;
    }
    return false;
  }

  std::uint8_t boots_ = 1;
};

/// A server in a thread, which turns its engine from its opening to its end.
class ServerThread {
 public:
  ServerThread(const std::string& address, OddStore& store)
      : address_(address), store_(store), thread_([this] { run(); }) {
    while (!ready_) std::this_thread::yield();
  }
  ~ServerThread() { stop(); }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
  void stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
  }

 private:
  void run() {
    Config config = rodeo::test::small_config();
    config.bulk_bytes = (1U << 20U) + 4096;
    auto engine = rodeo::test::must(Engine::open(address_, config));
    const auto server = rodeo::test::must(NfsServer::add_to(*engine, {{"/odd", &store_, {}}}, 1U << 20U));
    EXPECT_TRUE(engine->start());
    EXPECT_TRUE(engine->listen(address_));
    ready_ = true;
    while (!stopping_) engine->step();
    engine->stop();
  }

  std::string address_;
  OddStore& store_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

std::vector<std::byte> pattern(std::size_t length) {
  std::vector<std::byte> out(length);
  for (std::size_t i = 0; i < length; ++i) out[i] = static_cast<std::byte>((i * 7 + (i >> 8U) * 13 + 1) & 0xffU);
  return out;
}

class FileTransferTest : public testing::Test {
 protected:
  static constexpr std::uint32_t kBlock = 16'384;
  static constexpr std::uint32_t kWindow = 4;

  void begin() {
    server_ = std::make_unique<ServerThread>("soft:odd", store_);
    NfsClientOptions options;
    options.caller = Caller::of_process();
    options.credits = kWindow + 1;
    options.application_bytes = std::size_t{kBlock} * kWindow;
    options.patience = std::chrono::seconds(20);
    auto client = NfsClient::open("soft:odd", options);
    ASSERT_TRUE(client) << client.error().message();
    client_ = std::move(*client);
    transfer_ = std::make_unique<FileTransfer>(*client_, kBlock, kWindow);
    const auto root = client_->mount("/odd");
    ASSERT_TRUE(root) << root.error().message();
    limits_ = *client_->limits(*root);
    file_ = *client_->lookup(*root, "f");
  }

  NfsResult<std::vector<std::byte>> read() {
    std::vector<std::byte> out;
    const auto sink = [&](std::span<const std::byte> data) -> Result<void> {
      out.insert(out.end(), data.begin(), data.end());
      return {};
    };
    return transfer_->read(file_.handle, file_.attributes.size, limits_, sink).map([&](std::uint64_t bytes) {
      EXPECT_EQ(bytes, out.size());
      return out;
    });
  }
  NfsResult<std::uint64_t> write(std::span<const std::byte> data) {
    const auto source = [=](std::uint64_t offset, RegisteredBytes into) -> Result<std::size_t> {
      const auto rest = data.subspan(std::min<std::uint64_t>(offset, data.size()));
      const std::size_t length = std::min(rest.size(), into.size());
      if (length != 0) std::memcpy(into.data(), rest.data(), length);
      return length;
    };
    return transfer_->write(file_.handle, limits_, source);
  }

  OddStore store_;
  std::unique_ptr<ServerThread> server_;
  std::unique_ptr<NfsClient> client_;
  std::unique_ptr<FileTransfer> transfer_;
  FsLimits limits_;
  Found file_;
};

TEST_F(FileTransferTest, FilesOfAllLengthsAreReadWhole) {
  for (const std::size_t length : {0U, 1U, 3U, 4095U, 4096U, kBlock - 1, kBlock, kBlock + 1, 10 * kBlock + 3}) {
    store_.contents = pattern(length);
    if (!client_) begin();
    file_.attributes.size = length;
    const auto data = read();
    ASSERT_TRUE(data) << data.error().message();
    EXPECT_TRUE(*data == store_.contents) << length;
  }
}

TEST_F(FileTransferTest, FilesOfAllLengthsAreWrittenWhole) {
  begin();
  for (const std::size_t length : {0U, 1U, 3U, 4095U, 4096U, kBlock - 1, kBlock, kBlock + 1, 10 * kBlock + 3}) {
    store_.contents.clear();
    const auto data = pattern(length);
    const auto written = write(data);
    ASSERT_TRUE(written) << written.error().message();
    EXPECT_EQ(*written, length);
    EXPECT_TRUE(store_.contents == data) << length;
  }
}

TEST_F(FileTransferTest, WhatAShortReadLeavesIsAskedForAgain) {
  store_.contents = pattern(100'000);
  store_.most = 3'001;
  begin();
  const auto data = read();
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_TRUE(*data == store_.contents);
}

TEST_F(FileTransferTest, WhatAShortWriteLeavesIsWrittenAgain) {
  store_.most = 3'001;
  begin();
  const auto data = pattern(100'000);
  ASSERT_TRUE(write(data));
  EXPECT_TRUE(store_.contents == data);
}

TEST_F(FileTransferTest, AFileThatGrewIsReadToItsEnd) {
  store_.contents = pattern(3 * kBlock + 5);
  store_.claimed_bytes = 100;
  begin();
  ASSERT_EQ(file_.attributes.size, 100U);
  const auto data = read();
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_TRUE(*data == store_.contents);
}

TEST_F(FileTransferTest, AFileThatShrankEndsWhereItEnds) {
  store_.contents = pattern(kBlock + 7);
  begin();
  file_.attributes.size = 20 * kBlock;
  const auto data = read();
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_TRUE(*data == store_.contents);
}

TEST_F(FileTransferTest, ABusyServerIsAskedAgain) {
  store_.contents = pattern(6 * kBlock);
  store_.busy_every = 4;
  begin();
  const auto data = read();
  ASSERT_TRUE(data) << data.error().message();
  EXPECT_TRUE(*data == store_.contents);
  store_.contents.clear();
  ASSERT_TRUE(write(*data));
  EXPECT_TRUE(store_.contents == *data);
}

TEST_F(FileTransferTest, DataThatTheServerForgotIsWrittenAgain) {
  store_.restarts = 2;
  begin();
  const auto data = pattern(5 * kBlock + 1);
  const auto written = write(data);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_TRUE(store_.contents == data);
  EXPECT_EQ(store_.commits, 3U);
}

TEST_F(FileTransferTest, AServerThatForgetsAgainAndAgainIsGivenUp) {
  store_.restarts = 1000;
  begin();
  const auto written = write(pattern(kBlock));
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message().find("again and again"), std::string::npos) << written.error().message();
}

TEST_F(FileTransferTest, WhatIsStableAlreadyIsNotCommitted) {
  store_.stable = StableHow::kFileSync;
  begin();
  ASSERT_TRUE(write(pattern(3 * kBlock)));
  EXPECT_EQ(store_.commits, 0U);
}

TEST_F(FileTransferTest, ARefusalEndsItAndTheNextFileGoesOn) {
  begin();
  for (const NfsStat3 status : {NfsStat3::kNospc, NfsStat3::kRofs, NfsStat3::kIo}) {
    store_.calls = 0;
    store_.fail_at = 3;
    store_.failure = status;
    const auto data = pattern(9 * kBlock);
    const auto written = write(data);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().status, status);
    EXPECT_NE(written.error().what.find(to_string(status)), std::string::npos) << written.error().what;
    ASSERT_TRUE(write(data));
    store_.calls = 0;
    EXPECT_FALSE(read());
    file_.attributes.size = data.size();
    const auto back = read();
    ASSERT_TRUE(back) << back.error().message();
    EXPECT_TRUE(*back == data);
  }
}

TEST_F(FileTransferTest, ALostServerEndsItWithTheReason) {
  store_.contents = pattern(50 * kBlock);
  store_.busy_every = 1;  // it never gets anywhere
  begin();
  std::thread killer([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    server_->stop();
  });
  const auto data = read();
  killer.join();
  ASSERT_FALSE(data);
  EXPECT_NE(data.error().message().find("connection was lost"), std::string::npos) << data.error().message();
  EXPECT_FALSE(client_->usable());
}

TEST_F(FileTransferTest, PathsLeadThroughLinks) {
  store_.contents = pattern(10);
  begin();
  PathWalker walker(*client_);
  for (const char* path : {"/odd/f", "/odd//./f", "/odd/f-link", "/odd/up", "/odd/f-link/"}) {
    const auto place = walker.walk(path, LastLink::kFollow);
    if (std::string_view(path).ends_with('/')) {
      ASSERT_FALSE(place);
      EXPECT_EQ(place.error().status, NfsStat3::kNotdir);
    } else {
      ASSERT_TRUE(place && place->found) << path;
      EXPECT_EQ(place->found->attributes.fileid, 2U) << path;
    }
  }
  const auto kept = walker.walk("/odd/f-link", LastLink::kKeep);
  ASSERT_TRUE(kept && kept->found);
  EXPECT_EQ(kept->found->attributes.type, Ftype3::kLnk);
  const auto missing = walker.walk("/odd/new", LastLink::kFollow);
  ASSERT_TRUE(missing);
  EXPECT_FALSE(missing->found);
  EXPECT_EQ(missing->name, "new");
  EXPECT_EQ(walker.walk("/odd/new/file", LastLink::kFollow).error().status, NfsStat3::kNoent);
  EXPECT_EQ(walker.walk("/odd/f/file", LastLink::kFollow).error().status, NfsStat3::kNotdir);
  EXPECT_NE(walker.walk("/odd/self", LastLink::kFollow).error().what.find("too many symbolic links"),
            std::string::npos);
  EXPECT_NE(walker.walk("/odd/away", LastLink::kFollow).error().message().find("it exports /odd"), std::string::npos);
  EXPECT_NE(walker.walk("/oddly", LastLink::kFollow).error().message().find("it exports /odd"), std::string::npos);
}

}  // namespace
}  // namespace rodeo::nfs
