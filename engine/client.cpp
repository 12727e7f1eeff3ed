// SPDX-License-Identifier: Apache-2.0
#include "engine/client.h"

#include <string>

namespace rodeo {

namespace {

struct Waiter {
  BlockingReply reply;
  bool done = false;
};

void on_reply(void* context, const Reply& reply) noexcept {
  auto& waiter = *static_cast<Waiter*>(context);
  waiter.reply.error = reply.error;
  waiter.reply.accept_stat = reply.accept_stat;
  waiter.reply.results.assign(reply.results.begin(), reply.results.end());
  waiter.reply.written.assign(reply.written.begin(), reply.written.end());
  waiter.done = true;
}

}  // namespace

Result<Client> Client::open(std::string_view address, Config config, std::chrono::milliseconds timeout) {
  config.poll_cores.clear();
  config.worker_cores.clear();
  auto engine = Engine::open(address, config);
  if (!engine) return tl::unexpected(engine.error());
  if (auto started = (*engine)->start(); !started) return tl::unexpected(started.error());
  auto connection = (*engine)->connect(address, 0, 0, timeout);
  if (!connection) return tl::unexpected(connection.error());
  return Client(std::move(*engine), *connection);
}

Client::~Client() = default;

Result<BlockingReply> Client::call(CallRequest request, std::chrono::milliseconds timeout) {
  Waiter waiter;
  request.on_reply = on_reply;
  request.context = &waiter;
  using Clock = std::chrono::steady_clock;
  const auto deadline = Clock::now() + timeout;
  SubmitOutcome outcome = connection_->submit(request);
  while (outcome == SubmitOutcome::kNoCredit || outcome == SubmitOutcome::kSendQueueFull ||
         outcome == SubmitOutcome::kNoBuffer) {
    if (Clock::now() >= deadline) return fail("call", "could not be sent: " + std::string(to_string(outcome)));
    engine_->step();
    outcome = connection_->submit(request);
  }
  if (outcome != SubmitOutcome::kPosted) {
    return fail("call", "could not be sent: " + std::string(to_string(outcome)),
                outcome == SubmitOutcome::kClosed ? "connect again" : "raise the bulk buffer size");
  }
  for (std::uint32_t turn = 0; !waiter.done; ++turn) {
    const std::size_t work = engine_->step();
    if (work == 0 && turn % 64 == 0 && Clock::now() >= deadline) {
      // The connection goes, so that no late reply can look for this waiter.
      engine_->stop(std::chrono::milliseconds(0));
      return fail("call", "no reply within " + std::to_string(timeout.count()) + " ms",
                  "the call may or may not have run; connect again");
    }
  }
  if (waiter.reply.error == CallError::kConnectionLost) {
    return fail("call", "the connection was lost: " + engine_->why_closed(connection_),
                "the call may or may not have run; connect again");
  }
  return std::move(waiter.reply);
}

}  // namespace rodeo
