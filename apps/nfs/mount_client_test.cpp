// SPDX-License-Identifier: Apache-2.0
// The MOUNT client against our MOUNT server, over loopback TCP.

#include "apps/nfs/mount_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "apps/nfs/example_store.h"
#include "apps/nfs/mount_server.h"
#include "apps/nfs/test_nfs_pair.h"

namespace rodeo::nfs {
namespace {

const rodeo::test::RuntimeDirectory runtime_directory;

class MountClientTest : public testing::Test {
 protected:
  MountClientTest()
      : pair_([this](Engine&, RegisteredBytes) {
          ExportOptions far;
          far.clients = {test::must(AddressRange::parse("198.51.100.0/24"))};
          return std::vector<Export>{{"/files", &store_, {}}, {"/far", &store_, far}};
        }),
        server_(test::must(MountServer::start(*pair_.nfs, {.port = 0}))) {}

  static NfsResult<std::unique_ptr<MountClient>> connect(const std::string& host, std::uint16_t port) {
    return MountClient::connect(host, port, Caller::of_process(), std::chrono::seconds(5));
  }

  ExampleStore store_{{{"hello", "Hello"}}};
  test::NfsPair pair_;
  std::unique_ptr<MountServer> server_;
};

TEST_F(MountClientTest, ListsExportsAndGetsHandles) {
  for (const char* host : {"127.0.0.1", "localhost"}) {
    const auto client = connect(host, server_->port());
    ASSERT_TRUE(client) << client.error().message();
    const auto exports = (*client)->exports();
    ASSERT_TRUE(exports) << exports.error().message();
    EXPECT_THAT(*exports, testing::ElementsAre("/files", "/far"));
    const auto root = (*client)->mount("/files");
    ASSERT_TRUE(root) << root.error().message();
    EXPECT_EQ(*root, pair_.root());
  }
}

TEST_F(MountClientTest, SaysWhatTheServerRefuses) {
  const auto client = connect("127.0.0.1", server_->port());
  ASSERT_TRUE(client) << client.error().message();
  EXPECT_EQ((*client)->mount("/far").error().status, NfsStat3::kAcces);
  EXPECT_EQ((*client)->mount("/none").error().status, NfsStat3::kNoent);
  EXPECT_EQ((*client)->mount("/" + std::string(1500, 'p')).error().status, NfsStat3::kNametoolong);
  EXPECT_TRUE((*client)->mount("/files"));
}

TEST_F(MountClientTest, SaysWhereNobodyServesIt) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);  // bound, and not listening: the port stays without a server
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const auto nobody = connect("127.0.0.1", ntohs(address.sin_port));
  ::close(socket);
  ASSERT_FALSE(nobody);
  EXPECT_THAT(nobody.error().message(), testing::HasSubstr("Connection refused"));
  EXPECT_THAT(nobody.error().message(), testing::HasSubstr("--mount-port"));
  EXPECT_THAT(connect("no-such-host.invalid", 1).error().message(), testing::HasSubstr("no-such-host.invalid"));
}

}  // namespace
}  // namespace rodeo::nfs
