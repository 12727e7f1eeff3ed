// SPDX-License-Identifier: Apache-2.0
// Locations as people write them, and attributes as they are shown.

#include "apps/file_words.h"

#include <gtest/gtest.h>

#include "apps/location.h"

namespace rodeo::apps {
namespace {

TEST(LocationTest, AServerEndsWhereThePathBegins) {
  for (const auto& [text, address, path] : {std::tuple{"rdma://server/export/dir", "rdma://server", "/export/dir"},
                                            {"rdma://[fd00::1]:20049/e/", "rdma://[fd00::1]:20049", "/e/"},
                                            {"rdma://server?device=rxe0/e", "rdma://server?device=rxe0", "/e"},
                                            {"rdma://server", "rdma://server", "/"},
                                            {"soft:demo/data/a b", "soft:demo", "/data/a b"},
                                            {"soft:demo", "soft:demo", "/"},
                                            {"./soft:demo", "", "./soft:demo"},
                                            {"/etc/passwd", "", "/etc/passwd"},
                                            {"", "", ""}}) {
    const Location location = parse_location(text);
    EXPECT_EQ(location.address, address) << text;
    EXPECT_EQ(location.path, path) << text;
    EXPECT_EQ(parse_remote_location(text).has_value(), location.remote()) << text;
  }
}

TEST(LocationTest, PathsHaveALastName) {
  for (const auto& [path, name] : {std::pair{"a", "a"},
                                   {"a/b", "b"},
                                   {"/a/b//", "b"},
                                   {"a/.", ""},
                                   {"..", ""},
                                   {"/", ""},
                                   {"", ""},
                                   {"a/..b", "..b"}}) {
    EXPECT_EQ(last_name(path), name) << path;
  }
  EXPECT_EQ(path_below("a", "b"), "a/b");
  EXPECT_EQ(path_below("a/", "b"), "a/b");
  EXPECT_EQ(path_below("", "b"), "b");
}

TEST(FileWordsTest, ModesLookAsInLs) {
  EXPECT_EQ(mode_words(nfs::Ftype3::kReg, 0644), "-rw-r--r--");
  EXPECT_EQ(mode_words(nfs::Ftype3::kDir, 01777), "drwxrwxrwt");
  EXPECT_EQ(mode_words(nfs::Ftype3::kDir, 01776), "drwxrwxrwT");
  EXPECT_EQ(mode_words(nfs::Ftype3::kReg, 06755), "-rwsr-sr-x");
  EXPECT_EQ(mode_words(nfs::Ftype3::kReg, 06644), "-rwSr-Sr--");
  EXPECT_EQ(mode_words(nfs::Ftype3::kBlk, 0), "b---------");
  EXPECT_EQ(mode_words(nfs::Ftype3::kChr, 0111), "c--x--x--x");
  EXPECT_EQ(mode_words(nfs::Ftype3::kLnk, 0777), "lrwxrwxrwx");
  EXPECT_EQ(mode_words(nfs::Ftype3::kSock, 0700), "srwx------");
  EXPECT_EQ(mode_words(nfs::Ftype3::kFifo, 0070), "p---rwx---");
}

TEST(FileWordsTest, TimesAreLocalAndExact) {
  ::setenv("TZ", "UTC-2", 1);
  ::tzset();
  EXPECT_EQ(minute_words({981173106, 5}), "2001-02-03 06:05");
  EXPECT_EQ(time_words({981173106, 5}), "2001-02-03 06:05:06.000000005 +0200");
  EXPECT_EQ(time_words({UINT32_MAX, 999'999'999}), "2106-02-07 08:28:15.999999999 +0200");
}

TEST(FileWordsTest, NamesDoATerminalNoHarm) {
  EXPECT_EQ(printable("a\033[2Jb\n\x7f"), "a?[2Jb??");
  EXPECT_EQ(printable("\u00e9 x"), "\u00e9 x");
}

}  // namespace
}  // namespace rodeo::apps
