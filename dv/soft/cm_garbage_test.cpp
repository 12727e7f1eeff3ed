// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>
#include <random>

#include "dv/soft/listen_socket.h"
#include "dv/soft/party.h"

// Whoever can open the socket can send anything. The connection is closed and counted; nothing leaks; the listener
// goes on.

namespace rodeo::dv::suite {

namespace {

using soft::CmMessage;
using soft::CmReceive;
using soft::CmReceived;
using soft::CmType;
using soft::File;

File memory_file(std::size_t bytes, bool sealed) {
  File file(memfd_create("garbage", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  EXPECT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  if (sealed) {
    EXPECT_EQ(fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  }
  return file;
}

class CmGarbage : public BetweenProcesses {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(BetweenProcesses::SetUp());
    device_ = std::move(*soft::HostDevice::open({}));
    group_ = *device_->make_poll_group();
    ASSERT_TRUE(device_->listen(address_));
    files_before_ = open_files();
  }
  void TearDown() override {
    device_.reset();
    EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "the socket file is gone with its owner";
    BetweenProcesses::TearDown();
  }

  /// A connection of ours, without a device behind it.
  File dial() {
    sockaddr_un name{};
    EXPECT_TRUE(soft::fill_socket_address(address_.socket_path(), name));
    File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
    return socket;
  }
  void pump() {
    for (int i = 0; i < 3; ++i) {
      while (auto event = device_->next_event()) events_.push_back(std::move(*event));
      std::array<Completion, 4> batch;
      poll_into(*group_, batch);
    }
  }
  /// Says hello properly, so that the next message is the one under test.
  File dial_and_greet() {
    File socket = dial();
    CmMessage hello;
    hello.type = CmType::kClientHello;
    hello.process[0] = 17;
    EXPECT_TRUE(soft::send_message(socket.get(), hello, {}));
    pump();
    CmReceived answer;
    EXPECT_EQ(soft::receive_message(socket.get(), answer), CmReceive::kMessage);
    EXPECT_EQ(answer.message.type, CmType::kServerHello);
    return socket;
  }
  static CmMessage request() {
    CmMessage message;
    message.type = CmType::kRequest;
    message.process[0] = 17;
    message.lane = 99;
    message.qp = {.index = 0, .qpn = 64, .receive_wqes = 64};
    return message;
  }
  void expect_refused(File& socket, const char* what) {
    const std::uint64_t before = device_->refused_peers();
    pump();
    EXPECT_EQ(device_->refused_peers(), before + 1) << what;
    CmReceived nothing;
    EXPECT_EQ(soft::receive_message(socket.get(), nothing), CmReceive::kClosed) << what;
    socket.reset();
    pump();
    EXPECT_EQ(open_files(), files_before_) << what;
    EXPECT_TRUE(events_.empty()) << what;
  }

  Address address_{Address::Scheme::kSoft, "garbage", 0};
  std::unique_ptr<soft::HostDevice> device_;
  mlx5::PollGroup* group_ = nullptr;
  std::vector<CmEvent> events_;
  std::size_t files_before_ = 0;
};

}  // namespace

TEST_F(CmGarbage, RandomOctetsOfAnyLengthCloseOnlyTheirConnection) {
  std::minstd_rand random(5);
  for (int round = 0; round < 200; ++round) {
    File socket = dial();
    std::vector<unsigned char> octets(1 + random() % 6000);
    for (auto& octet : octets) octet = static_cast<unsigned char>(random());
    ASSERT_EQ(::send(socket.get(), octets.data(), octets.size(), MSG_NOSIGNAL), static_cast<ssize_t>(octets.size()));
    expect_refused(socket, "random octets");
  }
}

TEST_F(CmGarbage, TruncatedMessagesOfEveryLengthAreRefused) {
  CmMessage hello;
  hello.type = CmType::kClientHello;
  File scratch[2];
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  scratch[0] = File(pair[0]);
  scratch[1] = File(pair[1]);
  ASSERT_TRUE(soft::send_message(pair[0], hello, {}));  // fills in what a good message has
  std::array<char, sizeof(CmMessage)> bytes{};
  const ssize_t whole = recv(pair[1], bytes.data(), bytes.size(), 0);
  ASSERT_GT(whole, 0);
  scratch[0].reset();
  scratch[1].reset();
  for (ssize_t length = 1; length < whole; length += 7) {
    File socket = dial();
    ASSERT_EQ(::send(socket.get(), bytes.data(), static_cast<std::size_t>(length), MSG_NOSIGNAL), length);
    expect_refused(socket, "truncated");
  }
}

TEST_F(CmGarbage, MessagesOutOfOrderAreRefused) {
  for (const CmType type : {CmType::kServerHello, CmType::kRequest, CmType::kReply, CmType::kReject, CmType::kReady,
                            CmType::kLeave, CmType::kLeft, CmType{77}}) {
    File socket = dial();
    CmMessage message;
    message.type = type;
    ASSERT_TRUE(soft::send_message(socket.get(), message, {}));
    expect_refused(socket, "out of order");
  }
  File socket = dial_and_greet();
  CmMessage again;
  again.type = CmType::kClientHello;
  ASSERT_TRUE(soft::send_message(socket.get(), again, {}));
  expect_refused(socket, "hello twice");
}

TEST_F(CmGarbage, RequestsThatMakeNoSenseAreRefused) {
  using Change = void (*)(CmMessage&);
  const std::vector<std::pair<const char*, Change>> changes = {
      {"an index beyond the lane", [](CmMessage& m) { m.qp.index = soft::kLaneQps; }},
      {"QPN 0", [](CmMessage& m) { m.qp.qpn = 0; }},
      {"a QPN of 25 bits", [](CmMessage& m) { m.qp.qpn = 1U << 24; }},
      {"receives that are no power of two", [](CmMessage& m) { m.qp.receive_wqes = 63; }},
      {"more receives than fit", [](CmMessage& m) { m.qp.receive_wqes = 2 * soft::kMaxReceives; }},
      {"too much private data", [](CmMessage& m) { m.private_length = soft::kMaxRequestData + 1; }},
      {"private data beyond the message", [](CmMessage& m) { m.private_length = ~0U; }},
      {"another process", [](CmMessage& m) { m.process[0] = 18; }},
      {"no segment for a new lane", [](CmMessage&) {}},
      {"a segment that is not there", [](CmMessage& m) { m.has_segment = 1; }},
      {"regions without files", [](CmMessage& m) { m.region_count = 2; }},
  };
  for (const auto& [what, change] : changes) {
    File socket = dial_and_greet();
    CmMessage message = request();
    change(message);
    ASSERT_TRUE(soft::send_message(socket.get(), message, {}));
    expect_refused(socket, what);
  }
}

TEST_F(CmGarbage, FilesThatCannotBeTrustedAreRefused) {
  const auto try_segment = [&](const File& file, const char* what) {
    File socket = dial_and_greet();
    CmMessage message = request();
    message.has_segment = 1;
    const std::array files{file.get()};
    ASSERT_TRUE(soft::send_message(socket.get(), message, files));
    expect_refused(socket, what);
  };
  const std::size_t baseline = files_before_;
  {
    const File file = memory_file(soft::kSegmentBytes, false);
    files_before_ = baseline + 1;
    try_segment(file, "a segment that could shrink");
  }
  {
    const File file = memory_file(soft::kSegmentBytes - 4096, true);
    try_segment(file, "a segment that is too short");
  }
  {
    const File file = memory_file(soft::kSegmentBytes, true);
    try_segment(file, "a segment of zeros");
  }
  {
    const File file(::open("/dev/null", O_RDWR | O_CLOEXEC));
    try_segment(file, "no memory at all");
  }
  const auto try_region = [&](const File& file, soft::RegionRecord record, const char* what) {
    File socket = dial_and_greet();
    CmMessage message = request();
    message.region_count = 1;
    message.regions[0] = record;
    const std::array files{file.get()};
    ASSERT_TRUE(soft::send_message(socket.get(), message, files));
    expect_refused(socket, what);
  };
  {
    const File file = memory_file(8192, true);
    const std::uint32_t key = (soft::kFirstRegionIndex << 8) | 1;
    try_region(file, {.address = 4096, .length = 8193, .file_offset = 0, .key = key, .access = 3}, "beyond the file");
    try_region(file, {.address = 4096, .length = 4096, .file_offset = 100, .key = key, .access = 3}, "no page");
    try_region(file, {.address = 4096, .length = 0, .file_offset = 0, .key = key, .access = 3}, "empty");
    try_region(file, {.address = ~0ULL, .length = 4096, .file_offset = 0, .key = key, .access = 3}, "wraps around");
    try_region(file, {.address = 4096, .length = 4096, .file_offset = 0, .key = 5, .access = 3}, "index 0");
    try_region(file, {.address = 4096, .length = 4096, .file_offset = 0, .key = 0xffffff00, .access = 3}, "index");
    try_region(file, {.address = 4096, .length = 4096, .file_offset = 0, .key = key, .access = 9}, "rights");
  }
  {
    const File file = memory_file(8192, false);
    try_region(file, {.address = 4096, .length = 4096, .file_offset = 0, .key = 0x201, .access = 3}, "could shrink");
  }
}

TEST_F(CmGarbage, PeersThatHangUpAtAnyPointLeaveNothingBehind) {
  for (int round = 0; round < 50; ++round) {
    { const File socket = dial(); }
    pump();
    { const File socket = dial_and_greet(); }
    pump();
  }
  EXPECT_EQ(open_files(), files_before_);
  EXPECT_EQ(device_->refused_peers(), 0U);
  EXPECT_TRUE(events_.empty());
}

TEST_F(CmGarbage, AfterAllThatAProperPeerIsServed) {
  for (int round = 0; round < 20; ++round) {
    File socket = dial();
    ASSERT_EQ(::send(socket.get(), "x", 1, MSG_NOSIGNAL), 1);
    pump();
  }
  auto client = std::move(*soft::HostDevice::open({}));
  mlx5::PollGroup* group = *client->make_poll_group();
  const CmId id = *client->connect(address_, *group);
  bool resolved = false;
  bool asked = false;
  for (int turn = 0; turn < 1000 && !asked; ++turn) {
    pump();
    while (auto event = client->next_event()) {
      resolved = event->kind == CmEventKind::kRouteResolved;
      ASSERT_TRUE(client->make_qp(id, {}));
      ASSERT_TRUE(client->finish_connect(id, {}));
    }
    asked = !events_.empty() && events_.back().kind == CmEventKind::kConnectRequest;
  }
  EXPECT_TRUE(resolved);
  EXPECT_TRUE(asked);
}

TEST_F(CmGarbage, AStaleSocketIsReplacedAndALiveOneIsNot) {
  auto second = std::move(*soft::HostDevice::open({}));
  ASSERT_TRUE(second->make_poll_group());
  const auto refused = second->listen(address_);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("another engine listens on"), std::string::npos);

  // A socket file without a listener, as a killed owner leaves it.
  const Address stale{Address::Scheme::kSoft, "stale", 0};
  {
    sockaddr_un name{};
    ASSERT_TRUE(soft::fill_socket_address(stale.socket_path(), name));
    const File socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    ASSERT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  }
  EXPECT_TRUE(std::filesystem::exists(stale.socket_path()));
  const auto replaced = second->listen(stale);
  EXPECT_TRUE(replaced) << replaced.error().message();
}

TEST_F(CmGarbage, PathsThatCannotServeAreExplained) {
  const Address long_name{Address::Scheme::kSoft, std::string(64, 'n'), 0};
  const std::string long_folder = folder_ + "/" + std::string(60, 'f');
  std::filesystem::create_directory(long_folder);
  setenv("RODEO_RUNTIME_DIR", long_folder.c_str(), 1);
  auto refused = device_->listen(long_name);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().what.find("the path has"), std::string::npos) << refused.error().message();
  std::filesystem::remove(long_folder);

  setenv("RODEO_RUNTIME_DIR", (folder_ + "/missing/deeper").c_str(), 1);
  refused = device_->listen({Address::Scheme::kSoft, "x", 0});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().next.find("RODEO_RUNTIME_DIR"), std::string::npos) << refused.error().message();
  setenv("RODEO_RUNTIME_DIR", folder_.c_str(), 1);

  const auto nobody = device_->connect({Address::Scheme::kSoft, "nobody", 0}, *group_);
  ASSERT_FALSE(nobody);
  EXPECT_NE(nobody.error().what.find("nothing listens on"), std::string::npos);
}

}  // namespace rodeo::dv::suite
