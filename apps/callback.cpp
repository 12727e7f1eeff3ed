// SPDX-License-Identifier: Apache-2.0
// Hot path, save for construction. Runs on: poll cores.
#include "apps/callback.h"

#include "apps/test_protocol.h"
#include "engine/rodeo.h"

namespace rodeo::apps {
namespace {

/// The next call back. The Call's first word of state counts those that are left; it is deferred meanwhile.
void call_back(Call& call, void* context) noexcept;

void called_back(void* context, const Reply& reply) noexcept {
  auto& call = *static_cast<Call*>(context);
  DeferredCall deferred(&call);
  if (!reply.ok()) return deferred.reject(AcceptStat::kSystemErr);
  --call.state()[0] == 0 ? deferred.reply() : deferred.resume(&call_back);
}

void call_back(Call& call, void* /*context*/) noexcept {
  static const CallTarget target(kCallbackProgram, kCallbackVersion, 0, Credential{});
  const auto connection = call.connection();
  if (connection == nullptr) return call.reject(AcceptStat::kSystemErr);
  DeferredCall deferred = call.defer();
  switch (connection->submit({.target = &target, .on_reply = &called_back, .context = &call})) {
    case SubmitOutcome::kPosted:
      return;
    case SubmitOutcome::kTooLarge:
    case SubmitOutcome::kClosed:
      return deferred.reject(AcceptStat::kSystemErr);
    case SubmitOutcome::kNoCredit:
    case SubmitOutcome::kSendQueueFull:
    case SubmitOutcome::kNoBuffer:
      return deferred.resume(&call_back);  // in the loop's next turn
  }
}

void begin(Call& call, void* context) noexcept {
  XdrReader reader = call.arguments();
  const std::uint32_t calls = reader.u32();
  if (!reader.ok() || reader.remaining() != 0 || calls > kMaxCallsBack) return call.reject(AcceptStat::kGarbageArgs);
  if (calls == 0) return call.reply();
  call.state()[0] = calls;
  call_back(call, context);
}

}  // namespace

Program callback_program() {
  return {.number = kCallbackProgram,
          .version = kCallbackVersion,
          .name = "callback",
          .procedures = {{.number = 0, .name = "NULL", .handler = [](Call& call, void*) noexcept { call.reply(); }}}};
}

Procedure callback_procedure() {
  return {.number = static_cast<std::uint32_t>(TestProc::kCallback), .name = "CALLBACK", .handler = &begin};
}

}  // namespace rodeo::apps
