// SPDX-License-Identifier: Apache-2.0
#include "dv/address.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>
#include <vector>

namespace rodeo::dv {

TEST(Address, ParsesEverySchemeAndPrintsItBack) {
  const std::vector<std::pair<const char*, const char*>> good = {
      {"soft:demo", "soft:demo"},
      {"soft:a.b-c_9", "soft:a.b-c_9"},
      {"sim:one", "sim:one"},
      {"rdma://host", "rdma://host:20049"},
      {"rdma://10.0.0.1:7", "rdma://10.0.0.1:7"},
      {"rdma://[fe80::1]:65535", "rdma://[fe80::1]:65535"},
      {"rdma://[::1]", "rdma://[::1]:20049"},
      {"rdma://host?device=rxe0", "rdma://host:20049?device=rxe0"},
      {"rdma://[::1]:7?device=mlx5_0", "rdma://[::1]:7?device=mlx5_0"},
      {"rdma://host?verbs=plain", "rdma://host:20049?verbs=plain"},
      {"rdma://host?verbs=plain&device=mlx5_0", "rdma://host:20049?device=mlx5_0&verbs=plain"},
  };
  for (const auto& [text, printed] : good) {
    const auto address = Address::parse(text);
    ASSERT_TRUE(address) << text << ": " << address.error().message();
    EXPECT_EQ(address->to_string(), printed);
  }
}

TEST(Address, RefusesWhatItCannotMeanAndSaysWhatIsAllowed) {
  for (const char* text : {"",
                           "demo",
                           "tcp:demo",
                           "soft:",
                           "soft:a/b",
                           "soft:..",
                           "soft:.hidden",
                           "soft:a b",
                           "sim:",
                           "sim:a\n",
                           "rdma:host",
                           "rdma://",
                           "rdma://:5",
                           "rdma://host:",
                           "rdma://host:0",
                           "rdma://host:65536",
                           "rdma://host:12x",
                           "rdma://host/path",
                           "rdma://[fe80::1",
                           "rdma://[]:1",
                           "rdma://[::1]x",
                           "rdma://host?",
                           "rdma://host?port=7",
                           "rdma://host?device=",
                           "rdma://host?device=a/b",
                           "rdma://host?device=a&",
                           "rdma://host?verbs=direct",
                           "rdma://host?device=a?verbs=plain"}) {
    const auto address = Address::parse(text);
    ASSERT_FALSE(address) << text;
    EXPECT_FALSE(address.error().what.empty()) << text;
    EXPECT_FALSE(address.error().next.empty()) << text;
  }
  EXPECT_FALSE(Address::parse("soft:" + std::string(65, 'n')));
  EXPECT_TRUE(Address::parse("soft:" + std::string(64, 'n')));
}

TEST(Address, TheSocketIsInTheFirstFolderThatTheEnvironmentNames) {
  const Address address = *Address::parse("soft:x");
  setenv("RODEO_RUNTIME_DIR", "/one", 1);
  setenv("XDG_RUNTIME_DIR", "/two", 1);
  EXPECT_EQ(address.socket_path(), "/one/x.sock");
  unsetenv("RODEO_RUNTIME_DIR");
  EXPECT_EQ(address.socket_path(), "/two/rodeo/x.sock");
  unsetenv("XDG_RUNTIME_DIR");
  const std::string own = geteuid() == 0 ? "/run/rodeo" : "/tmp/rodeo-" + std::to_string(geteuid());
  EXPECT_EQ(address.socket_path(), own + "/x.sock");
}

}  // namespace rodeo::dv
