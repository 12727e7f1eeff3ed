// SPDX-License-Identifier: Apache-2.0
#pragma once

// A small blocking wrapper over the Requester, for tools: one connection, one thread, one call at a time.

#include <chrono>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "engine/rodeo.h"

namespace rodeo {

/// What a blocking call returns. `results` is a copy.
struct BlockingReply {
  CallError error = CallError::kNone;
  AcceptStat accept_stat = AcceptStat::kSuccess;
  std::vector<std::byte> results;
  std::vector<std::uint32_t> written;
};

class Client {
 public:
  /// Opens an engine without threads and one connection to `address`.
  [[nodiscard]] static Result<Client> open(std::string_view address, Config config = {},
                                           std::chrono::milliseconds timeout = std::chrono::seconds(5));
  Client(Client&&) noexcept = default;
  Client& operator=(Client&&) noexcept = default;
  ~Client();

  /// Sends and waits. on_reply and context of the request are ours. A timeout or a lost connection is an Error, and the
  /// client is then useless.
  [[nodiscard]] Result<BlockingReply> call(CallRequest request,
                                           std::chrono::milliseconds timeout = std::chrono::seconds(10));

  [[nodiscard]] Connection& connection() noexcept { return *connection_; }
  [[nodiscard]] Engine& engine() noexcept { return *engine_; }

 private:
  Client(std::unique_ptr<Engine> engine, Connection* connection)
      : engine_(std::move(engine)), connection_(connection) {}
  std::unique_ptr<Engine> engine_;
  Connection* connection_;
};

}  // namespace rodeo
