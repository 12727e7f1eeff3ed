// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/nfs3.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <vector>

namespace rodeo::nfs {
namespace {

class Wire {
 public:
  XdrWriter writer{bytes_};
  [[nodiscard]] XdrReader reader() const { return XdrReader(writer.written()); }

 private:
  std::array<std::byte, 1024> bytes_{};
};

Fattr3 some_attributes() {
  Fattr3 attributes;
  attributes.type = Ftype3::kDir;
  attributes.mode = 01755;
  attributes.nlink = 3;
  attributes.uid = 1000;
  attributes.gid = 100;
  attributes.size = 0x1'2345'6789;
  attributes.used = 0x1'2345'7000;
  attributes.rdev = {8, 1};
  attributes.fsid = 0xfeed'0000'0001;
  attributes.fileid = 0x7777'0000'0002;
  attributes.atime = {1, 2};
  attributes.mtime = {3, 4};
  attributes.ctime = {5, 999'999'999};
  return attributes;
}

/// What comes back from the wire, which was read to its end.
template <class T>
T there_and_back(const T& value) {
  Wire wire;
  encode(wire.writer, value);
  EXPECT_TRUE(wire.writer.ok());
  XdrReader reader = wire.reader();
  T back{};
  decode(reader, back);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(reader.remaining(), 0U);
  return back;
}

TEST(Nfs3, FattrTakes84OctetsInTheOrderOfRfc1813) {
  Wire wire;
  encode(wire.writer, some_attributes());
  ASSERT_EQ(wire.writer.size(), kFattr3Bytes);
  XdrReader reader = wire.reader();
  const std::uint32_t expected[] = {2,      01755, 3,      1000, 100, 1, 0x2345'6789, 1, 0x2345'7000, 8,          1,
                                    0xfeed, 1,     0x7777, 2,    1,   2, 3,           4, 5,           999'999'999};
  for (const std::uint32_t word : expected) EXPECT_EQ(reader.u32(), word);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(there_and_back(some_attributes()), some_attributes());
}

TEST(Nfs3, AnUnknownFileTypeDoesNotParse) {
  for (const std::uint32_t type : {0U, 8U}) {
    Wire wire;
    encode(wire.writer, some_attributes());
    wire.writer.patch_u32(0, type);
    XdrReader reader = wire.reader();
    Fattr3 attributes;
    decode(reader, attributes);
    EXPECT_FALSE(reader.ok()) << type;
  }
}

TEST(Nfs3, SattrSaysWhichOfItsPartsAreSet) {
  EXPECT_EQ(there_and_back(Sattr3{}), Sattr3{});
  Wire nothing;
  encode(nothing.writer, Sattr3{});
  EXPECT_EQ(nothing.writer.size(), 24U);

  Sattr3 all;
  all.mode = 0644;
  all.uid = 7;
  all.gid = 8;
  all.size = std::uint64_t{1} << 40U;
  all.atime.how = TimeHow::kSetToServerTime;
  all.mtime = {TimeHow::kSetToClientTime, {12, 34}};
  EXPECT_EQ(there_and_back(all), all);
}

TEST(Nfs3, ATimeHowOrBooleanThatDoesNotExistDoesNotParse) {
  for (const std::size_t at : {0U, 12U, 16U, 20U}) {
    Wire bad;
    encode(bad.writer, Sattr3{});
    bad.writer.patch_u32(at, 3);
    XdrReader reader = bad.reader();
    Sattr3 attributes;
    decode(reader, attributes);
    EXPECT_FALSE(reader.ok()) << at;
  }
}

TEST(Nfs3, WccDataTakes8To120Octets) {
  EXPECT_EQ(there_and_back(WccData{}), WccData{});
  Wire least;
  encode(least.writer, WccData{});
  EXPECT_EQ(least.writer.size(), 8U);
  const WccData all{wcc_attr_of(some_attributes()), some_attributes()};
  EXPECT_EQ(there_and_back(all), all);
  Wire most;
  encode(most.writer, all);
  EXPECT_EQ(most.writer.size(), 4U + 24U + 88U);
}

TEST(Nfs3, AHandleOfMoreThan64OctetsDoesNotParse) {
  const std::vector<std::byte> octets(kMaxHandleBytes, std::byte{0x5a});
  EXPECT_EQ(there_and_back(FileHandle(octets)), FileHandle(octets));
  EXPECT_EQ(there_and_back(FileHandle(std::span<const std::byte>{})).size, 0U);
  Wire wire;
  const std::vector<std::byte> more(kMaxHandleBytes + 1);
  wire.writer.opaque(more);
  XdrReader reader = wire.reader();
  FileHandle handle;
  decode(reader, handle);
  EXPECT_FALSE(reader.ok());
  reader = wire.reader();
  EXPECT_TRUE(decode_handle(reader).empty());
  EXPECT_FALSE(reader.ok());
}

TEST(Nfs3, ListsOfEntriesEndWithFalse) {
  for (const bool plus : {false, true}) {
    Wire wire;
    Entry3 first{1, "a", 3, some_attributes(), FileHandle(std::as_bytes(std::span("handle", 6)))};
    Entry3 second{0xffff'ffff'ffff'ffff, "name.of.another", 0x1'0000'0000, std::nullopt, std::nullopt};
    encode_entry(wire.writer, first, plus);
    encode_entry(wire.writer, second, plus);
    wire.writer.boolean(false);
    XdrReader reader = wire.reader();
    Entry3 entry;
    ASSERT_TRUE(decode_entry(reader, entry, plus));
    EXPECT_EQ(entry.fileid, 1U);
    EXPECT_EQ(entry.name, "a");
    EXPECT_EQ(entry.cookie, 3U);
    EXPECT_EQ(entry.name_attributes.has_value(), plus);
    if (plus) {
      EXPECT_EQ(*entry.name_handle, *first.name_handle);
    }
    entry = {};
    ASSERT_TRUE(decode_entry(reader, entry, plus));
    EXPECT_EQ(entry.fileid, second.fileid);
    EXPECT_EQ(entry.name, second.name);
    EXPECT_EQ(entry.cookie, second.cookie);
    EXPECT_FALSE(entry.name_attributes.has_value());
    EXPECT_FALSE(decode_entry(reader, entry, plus));
    EXPECT_TRUE(reader.ok());
    EXPECT_EQ(reader.remaining(), 0U);
  }
}

TEST(Nfs3, WhateverIsCutOffDoesNotParse) {
  Wire wire;
  encode(wire.writer, WccData{wcc_attr_of(some_attributes()), some_attributes()});
  for (std::size_t length = 0; length < wire.writer.size(); ++length) {
    XdrReader reader(wire.writer.written().first(length));
    WccData wcc;
    decode(reader, wcc);
    EXPECT_FALSE(reader.ok()) << length;
  }
}

TEST(Nfs3, ErrnosBecomeStatuses) {
  EXPECT_EQ(status_of_errno(0), NfsStat3::kOk);
  EXPECT_EQ(status_of_errno(ENOENT), NfsStat3::kNoent);
  EXPECT_EQ(status_of_errno(ENOTEMPTY), NfsStat3::kNotempty);
  EXPECT_EQ(status_of_errno(ENOMEM), NfsStat3::kJukebox);
  EXPECT_EQ(status_of_errno(12'345), NfsStat3::kIo);
  EXPECT_EQ(to_string(NfsStat3::kJukebox), "NFS3ERR_JUKEBOX");
  EXPECT_EQ(to_string(static_cast<NfsStat3>(3)), "NFS3ERR_?");
}

}  // namespace
}  // namespace rodeo::nfs
