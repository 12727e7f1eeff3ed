// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/permissions.h"

#include <gtest/gtest.h>

namespace rodeo::nfs {
namespace {

Fattr3 object(Ftype3 type, std::uint32_t mode, std::uint32_t uid = 1000, std::uint32_t gid = 100) {
  Fattr3 attributes;
  attributes.type = type;
  attributes.mode = mode;
  attributes.uid = uid;
  attributes.gid = gid;
  return attributes;
}

Credentials user(std::uint32_t uid, std::uint32_t gid, std::uint32_t other_group = 0xffff) {
  Credentials who;
  who.uid = uid;
  who.gid = gid;
  who.gid_count = 1;
  who.gids[0] = other_group;
  return who;
}

const Credentials kOwner = user(1000, 100);
const Credentials kMember = user(2000, 200, 100);
const Credentials kOther = user(3000, 300);
const Credentials kRoot = user(0, 0);

TEST(Permissions, OneClassDecidesAlone) {
  const Fattr3 file = object(Ftype3::kReg, 0047);
  EXPECT_EQ(granted(file, kOwner), 0U);
  EXPECT_EQ(granted(file, kMember), 4U);
  EXPECT_EQ(granted(file, kOther), 7U);
}

TEST(Permissions, RootExecutesOnlyWhatSomebodyMayExecute) {
  EXPECT_EQ(granted(object(Ftype3::kReg, 0), kRoot), 6U);
  EXPECT_EQ(granted(object(Ftype3::kReg, 0001), kRoot), 7U);
  EXPECT_EQ(granted(object(Ftype3::kDir, 0), kRoot), 7U);
}

TEST(Permissions, AnOwnerReadsAndWritesWhateverTheModeAndExecutingIsReading) {
  const Fattr3 closed = object(Ftype3::kReg, 0);
  EXPECT_TRUE(may_read(closed, kOwner));
  EXPECT_TRUE(may_write(closed, kOwner));
  EXPECT_FALSE(may_read(closed, kMember));
  EXPECT_FALSE(may_write(closed, kOther));
  EXPECT_TRUE(may_read(object(Ftype3::kReg, 0001), kOther));
}

TEST(Permissions, AccessTellsTheModeAlone) {
  const std::uint32_t all = 0x3f;
  EXPECT_EQ(granted_access(object(Ftype3::kReg, 0640), kOwner, all), kAccessRead | kAccessModify | kAccessExtend);
  EXPECT_EQ(granted_access(object(Ftype3::kReg, 0640), kMember, all), kAccessRead);
  EXPECT_EQ(granted_access(object(Ftype3::kReg, 0640), kOther, all), 0U);
  EXPECT_EQ(granted_access(object(Ftype3::kReg, 0755), kOther, kAccessExecute), kAccessExecute);
  EXPECT_EQ(granted_access(object(Ftype3::kDir, 0751), kOther, all), kAccessLookup);
  EXPECT_EQ(granted_access(object(Ftype3::kDir, 0700), kOwner, all),
            kAccessRead | kAccessLookup | kAccessModify | kAccessExtend | kAccessDelete);
}

TEST(Permissions, AStickyDirectoryGuardsEntriesFromOthers) {
  const Fattr3 entry = object(Ftype3::kReg, 0666);
  EXPECT_TRUE(may_take_away(object(Ftype3::kDir, 0777, 1, 1), entry, kOther));
  const Fattr3 sticky = object(Ftype3::kDir, 01777, 1, 1);
  EXPECT_FALSE(may_take_away(sticky, entry, kOther));
  EXPECT_TRUE(may_take_away(sticky, entry, kOwner));
  EXPECT_TRUE(may_take_away(sticky, entry, user(1, 9)));
  EXPECT_TRUE(may_take_away(sticky, entry, kRoot));
  EXPECT_FALSE(may_take_away(object(Ftype3::kDir, 0755, 1, 1), entry, kOwner));
}

TEST(Permissions, OnlyOwnersChangeModesAndOnlyRootGivesFilesAway) {
  const Fattr3 file = object(Ftype3::kReg, 0666);
  Sattr3 mode;
  mode.mode = 0600;
  EXPECT_EQ(may_set(file, kOwner, mode), NfsStat3::kOk);
  EXPECT_EQ(may_set(file, kMember, mode), NfsStat3::kPerm);
  Sattr3 owner;
  owner.uid = 5;
  EXPECT_EQ(may_set(file, kOwner, owner), NfsStat3::kPerm);
  EXPECT_EQ(may_set(file, kRoot, owner), NfsStat3::kOk);
  Sattr3 group;
  group.gid = 0xffff;
  EXPECT_EQ(may_set(file, kOwner, group), NfsStat3::kOk);  // one of their own
  group.gid = 4;
  EXPECT_EQ(may_set(file, kOwner, group), NfsStat3::kPerm);
  EXPECT_EQ(may_set(file, kRoot, group), NfsStat3::kOk);
}

TEST(Permissions, WhoeverMayWriteMayTruncateAndTouch) {
  const Fattr3 file = object(Ftype3::kReg, 0620);
  Sattr3 size;
  size.size = 0;
  EXPECT_EQ(may_set(file, kMember, size), NfsStat3::kOk);
  EXPECT_EQ(may_set(file, kOther, size), NfsStat3::kAcces);
  Sattr3 touch;
  touch.mtime.how = TimeHow::kSetToServerTime;
  EXPECT_EQ(may_set(file, kMember, touch), NfsStat3::kOk);
  EXPECT_EQ(may_set(file, kOther, touch), NfsStat3::kAcces);
  Sattr3 forge;
  forge.atime.how = TimeHow::kSetToClientTime;
  EXPECT_EQ(may_set(file, kMember, forge), NfsStat3::kPerm);
  EXPECT_EQ(may_set(file, kOwner, forge), NfsStat3::kOk);
}

TEST(Permissions, SetIdBitsDoNotOutliveAChangeByOthers) {
  const Fattr3 file = object(Ftype3::kReg, 06755);
  EXPECT_EQ(mode_after_write(file, kOwner), 0755U);
  EXPECT_EQ(mode_after_write(file, kRoot), 06755U);
  EXPECT_EQ(mode_after_write(object(Ftype3::kReg, 06745), kOwner), 02745U);  // mandatory locking
  Sattr3 owner;
  owner.uid = 5;
  EXPECT_EQ(mode_after(file, kRoot, owner), 0755U);
  EXPECT_EQ(mode_after(object(Ftype3::kDir, 02755), kRoot, owner), 02755U);
  Sattr3 mode;
  mode.mode = 02755;
  EXPECT_EQ(mode_after(object(Ftype3::kReg, 0, 1000, 4), kOwner, mode), 0755U);  // not in group 4
  EXPECT_EQ(mode_after(file, kOwner, mode), 02755U);
}

TEST(Permissions, ASetgidDirectoryHandsItsGroupDown) {
  const Fattr3 directory = object(Ftype3::kDir, 02777, 1, 55);
  Sattr3 wanted;
  wanted.mode = 0755;
  const NewOwnership file = ownership_of_new(directory, Ftype3::kReg, wanted, 0, kOwner);
  EXPECT_EQ(file.uid, 1000U);
  EXPECT_EQ(file.gid, 55U);
  EXPECT_EQ(file.mode, 0755U);
  EXPECT_EQ(ownership_of_new(directory, Ftype3::kDir, wanted, 0, kOwner).mode, 02755U);
  EXPECT_EQ(ownership_of_new(object(Ftype3::kDir, 0777), Ftype3::kReg, wanted, 0, kOther).gid, 300U);
}

TEST(Permissions, NobodyMakesObjectsForOthersButRoot) {
  const Fattr3 directory = object(Ftype3::kDir, 0777);
  Sattr3 wanted;
  wanted.uid = 4;
  wanted.gid = 5;
  EXPECT_EQ(ownership_of_new(directory, Ftype3::kReg, wanted, 0600, kOwner).uid, 1000U);
  EXPECT_EQ(ownership_of_new(directory, Ftype3::kReg, wanted, 0600, kOwner).gid, 100U);
  const NewOwnership by_root = ownership_of_new(directory, Ftype3::kReg, wanted, 0600, kRoot);
  EXPECT_EQ(by_root.uid, 4U);
  EXPECT_EQ(by_root.gid, 5U);
  EXPECT_EQ(by_root.mode, 0600U);
}

}  // namespace
}  // namespace rodeo::nfs
