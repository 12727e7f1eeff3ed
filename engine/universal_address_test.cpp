// SPDX-License-Identifier: Apache-2.0
#include "engine/universal_address.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "pools/proves.h"

namespace rodeo {
namespace {

UniversalAddress of(std::string_view address) {
  auto found = UniversalAddress::of(address);
  EXPECT_TRUE(found) << address;
  return found ? *found : UniversalAddress{};
}

TEST(UniversalAddress, Ipv4IsRdmaAndIpv6IsRdma6) {
  proves("R8166-9-1");
  EXPECT_EQ(of("rdma://192.0.2.1"), (UniversalAddress{"rdma", "192.0.2.1.78.81"}));
  EXPECT_EQ(of("rdma://192.0.2.1:2049"), (UniversalAddress{"rdma", "192.0.2.1.8.1"}));
  EXPECT_EQ(of("rdma://0.0.0.0:255"), (UniversalAddress{"rdma", "0.0.0.0.0.255"}));
  EXPECT_EQ(of("rdma://[fd00:db8::1]:20049"), (UniversalAddress{"rdma6", "fd00:db8::1.78.81"}));
  EXPECT_EQ(of("rdma://[::]:65535"), (UniversalAddress{"rdma6", "::.255.255"}));
}

TEST(UniversalAddress, OtherSchemesAndFamiliesHaveNone) {
  proves("R8166-9-2");
  EXPECT_FALSE(UniversalAddress::of("soft:demo"));
  EXPECT_FALSE(UniversalAddress::of("192.0.2.1"));
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_FALSE(UniversalAddress::of(other));
}

TEST(UniversalAddress, IsReadBackAsItWasWritten) {
  proves("R5665-5-1");
  for (const char* address : {"rdma://192.0.2.1", "rdma://255.255.255.255:1", "rdma://[fd00:db8::1]:20049",
                              "rdma://[::ffff:192.0.2.9]:256"}) {
    const UniversalAddress written = of(address);
    const auto read = written.parse();
    ASSERT_TRUE(read) << address;
    EXPECT_EQ(UniversalAddress::of(reinterpret_cast<const sockaddr&>(*read)), written);
  }
  const auto v4 = UniversalAddress{"rdma", "192.0.2.1.78.81"}.parse();
  ASSERT_TRUE(v4);
  const auto& in = reinterpret_cast<const sockaddr_in&>(*v4);
  EXPECT_EQ(in.sin_family, AF_INET);
  EXPECT_EQ(ntohs(in.sin_port), 20'049);
  EXPECT_EQ(ntohl(in.sin_addr.s_addr), 0xc0000201U);
}

TEST(UniversalAddress, AnyOtherTextIsRefused) {
  for (const char* text :
       {"", ".", "1.2", "192.0.2.1", "192.0.2.1.78", "192.0.2.1.78.256", "192.0.2.1.78.-1", "192.0.2.1.78.",
        "192.0.2.1.x.81", "192.0.2.1.78.81.0", "host.78.81", "fd00::1.78.81", " 192.0.2.1.78.81"}) {
    EXPECT_FALSE((UniversalAddress{"rdma", text}.parse())) << text;
  }
  EXPECT_FALSE((UniversalAddress{"rdma6", "192.0.2.1.78.81"}.parse()));
  for (const char* netid : {"RDMA", "tcp", "rdma4", ""}) {
    EXPECT_FALSE((UniversalAddress{netid, "192.0.2.1.78.81"}.parse())) << netid;
  }
}

}  // namespace
}  // namespace rodeo
