// SPDX-License-Identifier: Apache-2.0
#include "apps/nfs/nfs_failure.h"

namespace rodeo::nfs {
namespace {

std::string_view next_of(NfsStat3 status) noexcept {
  switch (status) {
    case NfsStat3::kPerm:
    case NfsStat3::kAcces:
      return "the server may squash root; --uid and --gid say as whom to ask";
    case NfsStat3::kNospc:
      return "make room there";
    case NfsStat3::kDquot:
      return "make room there, or have the quota raised";
    case NfsStat3::kRofs:
      return "have it exported for writing";
    case NfsStat3::kStale:
    case NfsStat3::kBadhandle:
      return "somebody removed it meanwhile, or the server forgot it: try again";
    case NfsStat3::kJukebox:
      return "try again later";
    case NfsStat3::kIo:
    case NfsStat3::kNxio:
    case NfsStat3::kServerfault:
      return "look into the server's log";
    case NfsStat3::kNametoolong:
      return "choose a shorter one";
    default:
      return {};
  }
}

}  // namespace

std::string_view words_of(NfsStat3 status) noexcept {
  switch (status) {
    case NfsStat3::kOk:
      return "no error";
    case NfsStat3::kPerm:
      return "not allowed to this user";
    case NfsStat3::kNoent:
      return "no such file or directory";
    case NfsStat3::kIo:
      return "the server could not read or write its storage";
    case NfsStat3::kNxio:
      return "the server's device is not there";
    case NfsStat3::kAcces:
      return "permission denied";
    case NfsStat3::kExist:
      return "there is something of this name already";
    case NfsStat3::kXdev:
      return "the two are in different file systems";
    case NfsStat3::kNodev:
      return "the server has no such device";
    case NfsStat3::kNotdir:
      return "not a directory";
    case NfsStat3::kIsdir:
      return "is a directory";
    case NfsStat3::kInval:
      return "the server does not take these arguments";
    case NfsStat3::kFbig:
      return "the file would be too large for the server";
    case NfsStat3::kNospc:
      return "no space left on the server";
    case NfsStat3::kRofs:
      return "the export is read-only";
    case NfsStat3::kMlink:
      return "too many links";
    case NfsStat3::kNametoolong:
      return "the name is too long for the server";
    case NfsStat3::kNotempty:
      return "the directory is not empty";
    case NfsStat3::kDquot:
      return "the quota is used up";
    case NfsStat3::kStale:
      return "the file is not there any more";
    case NfsStat3::kRemote:
      return "too many levels of remote in the path";
    case NfsStat3::kBadhandle:
      return "the server does not know its own handle";
    case NfsStat3::kNotSync:
      return "the file has changed meanwhile";
    case NfsStat3::kBadCookie:
      return "the directory changed while it was read";
    case NfsStat3::kNotsupp:
      return "the server cannot do that";
    case NfsStat3::kToosmall:
      return "the server needs more room for its answer";
    case NfsStat3::kServerfault:
      return "the server failed";
    case NfsStat3::kBadtype:
      return "the server has no objects of this type";
    case NfsStat3::kJukebox:
      return "the server is busy with it";
  }
  return "an error that NFS version 3 does not have";
}

NfsFailure answered(std::string_view step, NfsStat3 status) {
  std::string what(words_of(status));
  what += " (" + std::string(step) + " was answered ";
  const std::string_view name = to_string(status);
  what += name.ends_with('?') ? std::to_string(static_cast<std::uint32_t>(status)) : std::string(name);
  return {status, what + ")", std::string(next_of(status))};
}

}  // namespace rodeo::nfs
