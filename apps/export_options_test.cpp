// SPDX-License-Identifier: Apache-2.0
#include "apps/export_options.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

namespace rodeo::apps {
namespace {

TEST(ExportOptions, AreReadFromOneWord) {
  const auto spec = parse_export(
      "/data=memory,size=64M,ro,client=192.0.2.0/24,client=fd00::/"
      "8,all_squash,anonuid=7,anongid=8,mode=0750,uid=1,gid=2,"
      "files=99");
  ASSERT_TRUE(spec.has_value()) << spec.error().message();
  EXPECT_EQ(spec->path, "/data");
  EXPECT_EQ(spec->memory_bytes, 64U << 20U);
  EXPECT_TRUE(spec->options.read_only);
  EXPECT_EQ(spec->options.squash, nfs::Squash::kAll);
  EXPECT_EQ(spec->options.anonymous_uid, 7U);
  EXPECT_EQ(spec->options.anonymous_gid, 8U);
  EXPECT_EQ(spec->options.clients.size(), 2U);
  EXPECT_EQ(spec->memory.mode, 0750U);
  EXPECT_EQ(spec->memory.uid, 1U);
  EXPECT_EQ(spec->memory.gid, 2U);
  EXPECT_EQ(spec->memory.max_files, 99U);
  const auto plain = parse_export("/x=memory,size=1M");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->options.squash, nfs::Squash::kRoot);
  EXPECT_FALSE(plain->options.read_only);
}

TEST(ExportOptions, SayWhatIsWrong) {
  const struct {
    const char* text;
    const char* said;
  } cases[] = {
      {"", "PATH=memory"},
      {"data=memory,size=1M", "PATH=memory"},
      {"/data", "PATH=memory"},
      {"/data=disk", "\"disk\" is nothing that can be exported"},
      {"/data=memory", "/data has no size"},
      {"/data=memory,size=1K", "size \"1K\""},
      {"/data=memory,size=x", "size \"x\""},
      {"/data=memory,size=1M,sync", "no option \"sync\""},
      {"/data=memory,size=1M,", "no option \"\""},
      {"/data=memory,size=1M,uid=root", "\"root\" is no number"},
      {"/data=memory,size=1M,mode=9", "\"9\" is no octal number"},
      {"/data=memory,size=1M,client=here", "\"here\" is no address"},
  };
  for (const auto& bad : cases) {
    const auto spec = parse_export(bad.text);
    ASSERT_FALSE(spec.has_value()) << bad.text;
    EXPECT_NE(spec.error().message().find(bad.said), std::string::npos) << spec.error().message();
  }
}

TEST(ExportOptions, AreReadFromAFile) {
  const std::string name = testing::TempDir() + "exports-of-rodeod";
  std::ofstream(name) << "# nothing\n\n  /a=memory,size=1M  # here\n/b=memory,size=2M,ro\n";
  const auto specs = read_exports_file(name);
  ASSERT_TRUE(specs.has_value()) << specs.error().message();
  ASSERT_EQ(specs->size(), 2U);
  EXPECT_EQ((*specs)[0].path, "/a");
  EXPECT_TRUE((*specs)[1].options.read_only);
  EXPECT_EQ(export_memory_bytes(*specs), 3U << 20U);
  std::ofstream(name) << "/a=memory,size=1M\n/b\n";
  const auto wrong = read_exports_file(name);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message().find("line 2"), std::string::npos) << wrong.error().message();
  std::remove(name.c_str());
  EXPECT_FALSE(read_exports_file(name).has_value());
}

}  // namespace
}  // namespace rodeo::apps
