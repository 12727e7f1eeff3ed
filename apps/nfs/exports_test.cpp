// SPDX-License-Identifier: Apache-2.0
// Who may mount what: address ranges, paths, and MOUNT itself, called over TCP and UDP by libtirpc's own client.

#include "apps/nfs/exports.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rpc/rpc.h>

#include <array>
#include <cstring>

#include "apps/nfs/example_store.h"
#include "apps/nfs/mount_server.h"
#include "apps/nfs/path_walk.h"
#include "apps/nfs/test_nfs_pair.h"
#include "pools/proves.h"

namespace rodeo::nfs {
namespace {

const rodeo::test::RuntimeDirectory runtime_directory;

struct Address {
  explicit Address(const char* text) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (::inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
    } else if (::inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
      v6->sin6_family = AF_INET6;
    }
  }
  [[nodiscard]] const sockaddr& get() const { return reinterpret_cast<const sockaddr&>(storage); }
  sockaddr_storage storage{};
};

bool contains(const char* range, const char* address) {
  return test::must(AddressRange::parse(range)).contains(Peer::at(Address(address).get()));
}

TEST(AddressRange, TakesAddressesAndPrefixes) {
  EXPECT_TRUE(contains("192.0.2.7", "192.0.2.7"));
  EXPECT_FALSE(contains("192.0.2.7", "192.0.2.6"));
  EXPECT_TRUE(contains("192.0.2.0/24", "192.0.2.255"));
  EXPECT_FALSE(contains("192.0.2.0/24", "192.0.3.0"));
  EXPECT_TRUE(contains("192.0.2.128/25", "192.0.2.129"));
  EXPECT_FALSE(contains("192.0.2.128/25", "192.0.2.127"));
  EXPECT_TRUE(contains("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(contains("0.0.0.0/0", "fd00::1"));
  EXPECT_TRUE(contains("192.0.2.0/24", "::ffff:192.0.2.9"));
  EXPECT_TRUE(contains("fd00:db8::/32", "fd00:db8:1::5"));
  EXPECT_FALSE(contains("fd00:db8::/32", "fd00:db9::"));
  EXPECT_TRUE(contains("::/0", "1.2.3.4"));
  EXPECT_FALSE(test::must(AddressRange::parse("::/0")).contains(Peer::at(sockaddr{})));  // of no family that we know
}

TEST(AddressRange, TellsProcessesOfThisHostFromAddresses) {
  Peer process;
  process.kind = Peer::Kind::kProcess;
  EXPECT_TRUE(test::must(AddressRange::parse("local")).contains(process));
  EXPECT_FALSE(test::must(AddressRange::parse("::/0")).contains(process));
  EXPECT_FALSE(contains("local", "127.0.0.1"));
}

TEST(AddressRange, RefusesWhatIsNone) {
  for (const char* text :
       {"", "host", "192.0.2.0/33", "192.0.2", "fd00::/129", "192.0.2.0/", "192.0.2.0/x", "/24", "locale", "local/8"}) {
    EXPECT_FALSE(AddressRange::parse(text)) << text;
  }
}

struct Mnt {
  char* path = nullptr;
  std::uint32_t status = 99;
  std::array<char, kMaxHandleBytes> handle{};
  u_int handle_bytes = 0;
  std::uint32_t flavors = 0;
  std::uint32_t flavor = 0;
};
bool_t xdr_path(XDR* xdr, char** path) { return xdr_string(xdr, path, 2000); }
bool_t xdr_mnt(XDR* xdr, Mnt* out) {
  if (!xdr_uint32_t(xdr, &out->status)) return FALSE;
  if (out->status != 0) return TRUE;
  char* octets = out->handle.data();  // memory of ours, so that libtirpc takes none
  return xdr_bytes(xdr, &octets, &out->handle_bytes, kMaxHandleBytes) && xdr_uint32_t(xdr, &out->flavors) &&
                 xdr_uint32_t(xdr, &out->flavor)
             ? TRUE
             : FALSE;
}
bool_t xdr_words(XDR* xdr, std::vector<std::uint32_t>* out) {
  for (std::uint32_t word; xdr_uint32_t(xdr, &word);) out->push_back(word);
  return TRUE;
}

class MountServerTest : public testing::TestWithParam<bool> {
 protected:
  MountServerTest()
      : memory_(test::must(make_memory_store(pair_memory_))),
        pair_([this](Engine&, RegisteredBytes) {
          ExportOptions far;
          far.clients.push_back(test::must(AddressRange::parse("198.51.100.0/24")));
          ExportOptions near;
          near.clients.push_back(test::must(AddressRange::parse("127.0.0.0/8")));
          return std::vector<Export>{
              {"/files", &store_, {}}, {"/far", memory_.get(), far}, {"/near", memory_.get(), near}};
        }),
        server_(test::must(MountServer::start(*pair_.nfs, {.port = 0}))) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(server_->port());
    int socket = RPC_ANYSOCK;
    client_ = GetParam() ? clntudp_create(&address, kMountProgram, kMountVersion, {1, 0}, &socket)
                         : clnttcp_create(&address, kMountProgram, kMountVersion, &socket, 0, 0);
    EXPECT_NE(client_, nullptr);
  }
  ~MountServerTest() override { clnt_destroy(client_); }

  clnt_stat call(rpcproc_t procedure, void* in_type, void* in, void* out_type, void* out) {
    return clnt_call(client_, procedure, reinterpret_cast<xdrproc_t>(in_type), static_cast<char*>(in),
                     reinterpret_cast<xdrproc_t>(out_type), static_cast<char*>(out), (timeval{5, 0}));
  }
  Mnt mnt(const std::string& path) {
    Mnt out;
    char* text = const_cast<char*>(path.c_str());
    EXPECT_EQ(call(1, reinterpret_cast<void*>(&xdr_path), &text, reinterpret_cast<void*>(&xdr_mnt), &out), RPC_SUCCESS);
    return out;
  }
  std::vector<std::uint32_t> words(rpcproc_t procedure) {
    std::vector<std::uint32_t> out;
    EXPECT_EQ(call(procedure, reinterpret_cast<void*>(&xdr_void), nullptr, reinterpret_cast<void*>(&xdr_words), &out),
              RPC_SUCCESS);
    return out;
  }

  alignas(4096) static inline std::array<std::byte, 2 * kLeastMemoryStoreBytes> pair_memory_;
  ExampleStore store_{{{"hello", "Hello"}}};
  std::unique_ptr<Store> memory_;
  test::NfsPair pair_;
  std::unique_ptr<MountServer> server_;
  CLIENT* client_ = nullptr;
};

TEST_P(MountServerTest, GivesTheHandlesOfExportsAndOfWhatIsBeneath) {
  proves("R8267-5-1");
  const Mnt root = mnt("/files");
  ASSERT_EQ(root.status, 0U);
  EXPECT_EQ(FileHandle(std::as_bytes(std::span(root.handle).first(root.handle_bytes))), pair_.root());
  EXPECT_EQ(root.flavors, 1U);
  EXPECT_EQ(root.flavor, 1U);  // AUTH_SYS
  const Mnt file = mnt("/files//hello/");
  ASSERT_EQ(file.status, 0U);
  EXPECT_EQ(pair_.attributes(FileHandle(std::as_bytes(std::span(file.handle).first(file.handle_bytes)))).size, 5U);
  EXPECT_EQ(mnt("/near").status, 0U);
}

TEST_P(MountServerTest, RefusesOthersAndOtherPaths) {
  const auto status = [](NfsStat3 of) { return static_cast<std::uint32_t>(of); };
  EXPECT_EQ(mnt("/far").status, status(NfsStat3::kAcces));
  for (const char* path : {"", "/", "files", "/filesystem", "/files/none"}) {
    EXPECT_EQ(mnt(path).status, status(NfsStat3::kNoent)) << path;
  }
  EXPECT_EQ(mnt("/files/..").status, status(NfsStat3::kAcces));
  EXPECT_EQ(mnt("/files/hello/x").status, status(NfsStat3::kNotdir));
  EXPECT_EQ(mnt("/files/" + std::string(256, 'n')).status, status(NfsStat3::kNametoolong));
  char* text = nullptr;
  const std::string path = "/" + std::string(1500, 'p');
  text = const_cast<char*>(path.c_str());
  Mnt out;
  EXPECT_EQ(call(1, reinterpret_cast<void*>(&xdr_path), &text, reinterpret_cast<void*>(&xdr_mnt), &out),
            RPC_CANTDECODEARGS);
  EXPECT_EQ(call(9, reinterpret_cast<void*>(&xdr_void), nullptr, reinterpret_cast<void*>(&xdr_void), nullptr),
            RPC_PROCUNAVAIL);
}

TEST_P(MountServerTest, ListsExportsAndMounts) {
  EXPECT_EQ(words(2), std::vector<std::uint32_t>{0});  // DUMP
  EXPECT_EQ(mnt("/files").status, 0U);
  EXPECT_EQ(mnt("/files").status, 0U);
  EXPECT_EQ(words(2).size(), 1U + 1U + 3U + 1U + 2U + 1U);  // once: "127.0.0.1" and "/files"
  char path[] = "/files";
  char* text = path;
  EXPECT_EQ(call(3, reinterpret_cast<void*>(&xdr_path), &text, reinterpret_cast<void*>(&xdr_void), nullptr),
            RPC_SUCCESS);
  EXPECT_EQ(words(2), std::vector<std::uint32_t>{0});
  EXPECT_EQ(mnt("/files").status, 0U);
  EXPECT_TRUE(words(4).empty());  // UMNTALL
  EXPECT_EQ(words(2), std::vector<std::uint32_t>{0});
  EXPECT_GT(words(5).size(), 15U);  // EXPORT
}

TEST_P(MountServerTest, IsThereOnlyOnce) { EXPECT_FALSE(MountServer::start(*pair_.nfs, {.port = 0})); }

INSTANTIATE_TEST_SUITE_P(Over, MountServerTest, testing::Values(false, true),
                         [](const auto& of) { return std::string(of.param ? "Udp" : "Tcp"); });

}  // namespace
}  // namespace rodeo::nfs
