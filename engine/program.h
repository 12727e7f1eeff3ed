// SPDX-License-Identifier: Apache-2.0
#pragma once

// What an embedder registers: a program, a version and their procedures.

#include <cstdint>
#include <string>
#include <vector>

namespace rodeo {

class Call;

/// Serves one Call, or one stage of it (see Call::pull). Must end with exactly one of: reply, reject, defer, or pull
/// with a next stage. Never blocks when it runs on a poll core.
using Handler = void (*)(Call& call, void* context) noexcept;

/// Which core runs a handler. A worker core where there is none means the poll core.
enum class Placement : std::uint8_t { kPollCore, kWorkerCore };

struct Procedure {
  std::uint32_t number = 0;
  std::string name;
  Handler handler = nullptr;
  void* context = nullptr;
  Placement placement = Placement::kPollCore;
  /// DDP-eligible arguments: a Call with more data Read chunks is answered ERR_CHUNK unseen (RFC 8166 §6.1).
  std::uint32_t max_read_chunks = 0;
  /// DDP-eligible results: whatever else is pushed goes inline, also where there is a Write chunk for it.
  std::uint32_t max_write_chunks = UINT32_MAX;
  /// A Call that is sent again gets the Reply of its first run, and does not run: for what must not happen twice. See
  /// Config::remembered_replies.
  bool remember_replies = false;
};

struct Program {
  std::uint32_t number = 0;
  std::uint32_t version = 0;
  std::string name;
  std::vector<Procedure> procedures;
};

}  // namespace rodeo
