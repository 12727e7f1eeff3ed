// SPDX-License-Identifier: Apache-2.0

// What a scripted Responder can and cannot reach of our Requester's memory, while a call is out, when it has ended, and
// when it was given up: by keys of single Calls, with and without remote invalidation, and by the key of the pool.

#include <cstring>
#include <functional>
#include <map>

#include "dv/soft/fabric.h"
#include "engine/connections.h"
#include "engine/engine_core.h"
#include "engine/scripted_session.h"

namespace rodeo {
namespace {

using test::high;
using test::kTarget;
using test::low;
using test::Octets;
using test::Seen;
using test::Session;
using test::Taken;

const test::RuntimeDirectory runtime_directory;

constexpr std::uint32_t kOctets = 64;
constexpr Registration kKeyed[] = {Registration::kKeyPerCall, Registration::kRemoteInvalidation};
constexpr Registration kAll[] = {Registration::kPoolKey, Registration::kKeyPerCall, Registration::kRemoteInvalidation};

[[nodiscard]] Config config_with(Registration registration) {
  Config config = test::small_config();
  config.registration = registration;
  return config;
}
[[nodiscard]] Octets filled(std::size_t length, int octet) { return Octets(length, static_cast<std::byte>(octet)); }

/// A call with a source and a sink of the application's, and the Call that it became.
struct Lent {
  explicit Lent(Session& s, bool with_source = true, const CallOptions& options = {}) : session(s) {
    memory = session.raw.client().application_memory();
    std::memset(memory.data(), 0x11, 4 * kOctets);
    sources[0] = {4, memory.subspan(kOctets, kOctets)};
    sinks[0] = memory.subspan(2 * std::size_t{kOctets}, kOctets);
    store_be32(arguments.data(), kOctets);
    CallRequest request{.target = &kTarget, .sinks = sinks, .max_results = 8};
    if (with_source) {
      request.arguments = arguments;
      request.sources = sources;
    }
    seen = &session.submit(request, options, handle);
    call = session.take();
    sink = call->lists.write_chunk(0)[0];
    if (with_source) source = call->lists.reads()[0].target;
  }
  /// A Reply with the sink full.
  [[nodiscard]] Octets reply() const {
    const std::uint32_t x = call->xid();
    return test::bytes_of(
        {x, 1, 16, 0, 0, 1, 1, sink.handle, kOctets, high(sink), low(sink), 0, 0, x, 1, 0, 0, 0, 0, kOctets});
  }
  [[nodiscard]] bool sink_is(int octet) const {
    return std::ranges::all_of(sinks[0], [&](std::byte b) { return b == static_cast<std::byte>(octet); });
  }
  [[nodiscard]] bool write(int octet) const {
    return session.raw.try_write(filled(kOctets, octet), sink.handle, sink.offset);
  }

  Session& session;
  RegisteredBytes memory;
  std::array<BulkSource, 1> sources;
  std::array<RegisteredBytes, 1> sinks;
  std::array<std::byte, 4> arguments{};
  CallHandle handle;
  Seen* seen = nullptr;
  std::unique_ptr<Taken> call;
  Segment sink{};
  Segment source{};
};

TEST(ConformanceProtection, APlainCallExposesNothing) {
  proves("R8166-4.4-5", "R8166-3.5-1");
  for (const Registration registration : kKeyed) {
    Session session(4, 4, config_with(registration));
    session.expect_served();
    EXPECT_EQ(session.counter("windows_bound"), 0U);
    const Lent lent(session);
    EXPECT_EQ(session.counter("windows_bound"), 2U);
  }
}

TEST(ConformanceProtection, ASegmentsKeyOpensThatSegmentForThatUseAndNothingElse) {
  proves("R8166-8.1-3", "R8166-8.1-5", "R8166-8.1-2");
  struct Access {
    const char* what;
    std::function<bool(const Lent&)> attempt;
    bool allowed;
  };
  const auto write = [](const Lent& lent, const Segment& to, std::size_t length, std::int64_t shift) {
    return lent.session.raw.try_write(filled(length, 0x77), to.handle, to.offset + static_cast<std::uint64_t>(shift));
  };
  const auto read = [](const Lent& lent, const Segment& from, std::size_t length, std::int64_t shift) {
    return lent.session.raw.try_read(length, from.handle, from.offset + static_cast<std::uint64_t>(shift));
  };
  const Access accesses[] = {
      {"reads the source", [&](const Lent& l) { return read(l, l.source, kOctets, 0); }, true},
      {"writes the sink", [&](const Lent& l) { return write(l, l.sink, kOctets, 0); }, true},
      {"writes the source", [&](const Lent& l) { return write(l, l.source, 1, 0); }, false},
      {"reads the sink", [&](const Lent& l) { return read(l, l.sink, 1, 0); }, false},
      {"writes past the sink", [&](const Lent& l) { return write(l, l.sink, 1, kOctets); }, false},
      {"writes before the sink", [&](const Lent& l) { return write(l, l.sink, 1, -1); }, false},
      {"writes too much", [&](const Lent& l) { return write(l, l.sink, kOctets + 1, 0); }, false},
      {"reads past the source", [&](const Lent& l) { return read(l, l.source, 2, kOctets - 1); }, false},
      {"reads the sink's octets by the source's key", [&](const Lent& l) { return read(l, l.source, 1, kOctets); },
       false},
      {"has another tag",
       [&](const Lent& l) { return l.session.raw.try_write(filled(1, 0x77), l.sink.handle ^ 1U, l.sink.offset); },
       false},
  };
  for (const Registration registration : kKeyed) {
    for (const Access& access : accesses) {
      Session session(4, 4, config_with(registration));
      const Lent lent(session);
      EXPECT_NE(lent.source.handle, lent.sink.handle);
      EXPECT_EQ(access.attempt(lent), access.allowed) << access.what;
      if (access.allowed) continue;
      EXPECT_TRUE(session.raw.failed());
      const auto bad = [](std::byte b) { return b == std::byte{0x77}; };
      EXPECT_FALSE(std::ranges::any_of(lent.memory.first(4 * std::size_t{kOctets}), bad)) << access.what;
      for (int i = 0; i < 20000 && lent.seen->times == 0; ++i) session.raw.client().step();
      EXPECT_EQ(lent.seen->error, CallError::kConnectionLost) << access.what;
    }
  }
}

TEST(ConformanceProtection, ThePeerCannotWriteAnyMoreWhenTheApplicationIsTold) {
  proves("R8166-4.4-1", "R8166-4.4-2", "R8166-8.1-5", "R8166-8.1-7");
  for (const Registration registration : kKeyed) {
    Session session(4, 4, config_with(registration));
    // The attempt is made inside the callback, which is when the memory is the application's again.
    struct Told {
      Session* session;
      Segment sink;
      int times = 0;
      bool reached = true;
      CallError error = CallError::kCancelled;
    } told{&session, {}};
    const RegisteredBytes memory = session.raw.client().application_memory();
    std::memset(memory.data(), 0x11, kOctets);
    const RegisteredBytes sinks[] = {memory.first(kOctets)};
    ASSERT_EQ(session.connection->submit({.target = &kTarget,
                                          .sinks = sinks,
                                          .max_results = 8,
                                          .on_reply =
                                              [](void* context, const Reply& reply) noexcept {
                                                auto& self = *static_cast<Told*>(context);
                                                ++self.times;
                                                self.error = reply.error;
                                                self.reached = self.session->raw.try_write(
                                                    filled(kOctets, 0x99), self.sink.handle, self.sink.offset);
                                              },
                                          .context = &told}),
              SubmitOutcome::kPosted);
    const auto call = session.take();
    told.sink = call->lists.write_chunk(0)[0];
    session.raw.write(filled(kOctets, 0x22), told.sink.handle, told.sink.offset);
    const std::uint32_t x = call->xid();
    session.raw.send(test::bytes_of({x, 1, 4, 0, 0, 1, 1, told.sink.handle, kOctets, high(told.sink), low(told.sink), 0,
                                     0, x, 1, 0, 0, 0, 0, kOctets}));
    // Once more after its Reply, before we have seen that: still within its rights, as nobody has been told.
    EXPECT_TRUE(session.raw.try_write(filled(kOctets, 0x33), told.sink.handle, told.sink.offset));
    for (int i = 0; i < 20000 && told.times == 0; ++i) session.raw.client().step();
    EXPECT_EQ(told.times, 1);
    EXPECT_EQ(told.error, CallError::kNone);
    EXPECT_FALSE(told.reached);
    EXPECT_EQ(memory[0], std::byte{0x33});
    EXPECT_EQ(session.counter("windows_invalidated"), 1U);
  }
}

TEST(ConformanceProtection, WhatIsRemotelyInvalidatedNeedsNoInvalidationOfOurs) {
  // The peer's own private data has R clear, as that of some Responders that invalidate all the same.
  proves("ENG-8797-1", "ENG-8797-2", "R8797-3.2-1");
  Session session(4, 4, config_with(Registration::kRemoteInvalidation));
  EXPECT_EQ(session.raw.received_private_data(), test::bytes_of({0xf6ab0e18, 0x01010303}));
  {
    const Lent lent(session, false);
    EXPECT_TRUE(lent.write(0x22));
    session.raw.send_invalidating(lent.reply(), lent.sink.handle);
    session.raw.until([&] { return lent.seen->times == 1; });
    EXPECT_EQ(lent.seen->error, CallError::kNone);
    EXPECT_EQ(lent.seen->written, std::vector<std::uint32_t>{kOctets});
    EXPECT_TRUE(lent.sink_is(0x22));
    EXPECT_EQ(session.counter("windows_invalidated_by_peer"), 1U);
    EXPECT_EQ(session.counter("windows_invalidated"), 0U);
    session.expect_served();
  }
  // Of two keys it takes one; the other is ours to take, before the application is told.
  for (const bool takes_sink : {true, false}) {
    Session another(4, 4, config_with(Registration::kRemoteInvalidation));
    const Lent lent(another);
    another.raw.send_invalidating(lent.reply(), takes_sink ? lent.sink.handle : lent.source.handle);
    another.raw.until([&] { return lent.seen->times == 1; });
    EXPECT_EQ(lent.seen->error, CallError::kNone);
    EXPECT_EQ(another.counter("windows_invalidated_by_peer"), 1U);
    EXPECT_EQ(another.counter("windows_invalidated"), 1U);
    another.expect_served();
    EXPECT_FALSE(takes_sink ? another.raw.try_read(1, lent.source.handle, lent.source.offset) : lent.write(0x99));
  }
}

TEST(ConformanceProtection, AKeyThatIsNotItsCallsEndsTheConnection) {
  proves("ENG-8797-2");
  enum class Message : std::uint8_t { kReplyToAnother, kUnknownXid, kTooShort };
  for (const Message message : {Message::kReplyToAnother, Message::kUnknownXid, Message::kTooShort}) {
    Session session(4, 4, config_with(Registration::kRemoteInvalidation));
    const Lent victim(session, false);
    const Lent other(session, false);
    Octets reply = other.reply();
    if (message == Message::kUnknownXid) store_be32(reply.data(), other.call->xid() ^ 0x10000U);
    if (message == Message::kTooShort) reply.resize(4);
    session.raw.send_invalidating(reply, victim.sink.handle);
    session.raw.until([&] { return victim.seen->times == 1; });
    EXPECT_EQ(victim.seen->error, CallError::kConnectionLost);
    EXPECT_EQ(other.seen->times, 1);
    EXPECT_EQ(other.seen->error, CallError::kConnectionLost);
    EXPECT_FALSE(session.connection->open());
    EXPECT_EQ(session.counter("foreign_invalidations"), 1U);
  }
}

TEST(ConformanceProtection, OnlyWhoAsksForItAnnouncesRemoteInvalidation) {
  proves("R8797-3.2-1", "R8797-3.2-2", "R8797-4-5");
  for (const Registration registration : kAll) {
    Session session(4, 4, config_with(registration));
    const std::uint32_t flags = registration == Registration::kRemoteInvalidation ? 0x01010303 : 0x01000303;
    EXPECT_EQ(session.raw.received_private_data(), test::bytes_of({0xf6ab0e18, flags}));
    EXPECT_EQ(session.connection->registration(), registration);
  }
  // A device that cannot do it is not asked to.
  dv::Capabilities device;
  EXPECT_TRUE(possible(Registration::kPoolKey, device));
  EXPECT_FALSE(possible(Registration::kKeyPerCall, device));
  EXPECT_FALSE(possible(Registration::kRemoteInvalidation, device));
  device.memory_windows = true;
  EXPECT_TRUE(possible(Registration::kKeyPerCall, device));
  EXPECT_FALSE(possible(Registration::kRemoteInvalidation, device));
}

TEST(ConformanceProtection, AConnectionMayDifferFromItsEngineButNotHaveAPoolKeyThatThereIsNot) {
  Session session(4, 4, config_with(Registration::kPoolKey));
  EXPECT_EQ(session.raw.connect_with({.registration = Registration::kKeyPerCall})->registration(),
            Registration::kKeyPerCall);
  Session keyed(4, 4, config_with(Registration::kKeyPerCall));
  const auto refused = keyed.raw.client().begin_connect(keyed.raw.address(), {.registration = Registration::kPoolKey});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("kPoolKey"), std::string::npos);
}

TEST(ConformanceProtection, EachUseOfAWindowHasAKeyOfItsOwn) {
  proves("R8166-8.1-4", "ENG-MR-4", "ENG-MR-3");
  Session session(4, 4, config_with(Registration::kKeyPerCall));
  constexpr std::uint32_t kTag = 0xff;
  std::map<std::uint32_t, std::uint32_t> last;  // by window
  std::uint32_t before = 0;
  std::uint32_t windows_seen_again = 0;
  for (int i = 0; i < 300; ++i) {
    const Lent lent(session, false);
    const std::uint32_t key = lent.sink.handle;
    EXPECT_NE(key, 0U);
    EXPECT_NE(key & ~kTag, before & ~kTag);
    const auto [at, fresh] = last.try_emplace(key & ~kTag, key);
    windows_seen_again += fresh ? 0U : 1U;
    if (!fresh) {
      EXPECT_NE(at->second, key);
    }
    at->second = before = key;
    session.raw.send(lent.reply());
    session.raw.until([&] { return lent.seen->times == 1; });
  }
  EXPECT_GT(windows_seen_again, 100U);
  // A connection's keys are gone with it.
  const Lent lent(session, false);
  const std::uint32_t old_key = lent.sink.handle;
  session.raw.client().disconnect(session.connection);
  session.raw.until([&] { return lent.seen->times == 1; });
  session.raw.until([&] { return session.raw.client().connection_count() == 0; });
  session.connection = session.raw.connect(4);
  const Lent again(session, false);
  EXPECT_NE(again.sink.handle, old_key);
  EXPECT_FALSE(session.raw.try_write(filled(1, 0x99), old_key, lent.sink.offset));
  EXPECT_TRUE(again.sink_is(0x11));
}

TEST(ConformanceProtection, ACallWithoutWindowsIsNotMade) {
  proves("R8166-4.5.4-1");
  Session session(16, 16, config_with(Registration::kKeyPerCall));
  const RegisteredBytes memory = session.raw.client().application_memory();
  std::vector<RegisteredBytes> sinks;
  for (std::size_t i = 0; i < kMaxWriteChunks; ++i) sinks.push_back(memory.subspan(8 * i, 8));
  const CallRequest request{.target = &kTarget, .sinks = sinks, .max_results = 128};
  std::vector<Seen*> posted;
  SubmitOutcome outcome = SubmitOutcome::kPosted;
  Seen unused;
  for (;;) {
    CallRequest probe = request;
    probe.on_reply = Seen::on_reply;
    probe.context = posted.empty() || outcome == SubmitOutcome::kPosted ? &session.seen.emplace_back() : &unused;
    outcome = session.connection->submit(probe);
    session.raw.turns(2);
    if (outcome != SubmitOutcome::kPosted) break;
    posted.push_back(static_cast<Seen*>(probe.context));
  }
  EXPECT_EQ(outcome, SubmitOutcome::kNoBuffer);
  EXPECT_GE(posted.size(), 5U);
  EXPECT_LT(posted.size(), 16U);
  EXPECT_EQ(session.connection->in_flight(), posted.size());
  for (std::size_t i = 0; i < posted.size(); ++i) session.answer(session.take()->xid(), 16);
  session.raw.until([&] { return session.connection->in_flight() == 0; });
  for (const Seen* seen : posted) EXPECT_EQ(seen->error, CallError::kNone);
  session.expect_served();
}

TEST(ConformanceProtection, EmptySegmentsHaveKeysThatOpenNothingOfTheApplications) {
  proves("ENG-SEG-3", "ENG-SEG-5");
  Session session(4, 4, config_with(Registration::kKeyPerCall));
  const RegisteredBytes memory = session.raw.client().application_memory();
  std::memset(memory.data(), 0x11, kOctets);
  const RegisteredBytes sinks[] = {memory.first(0)};
  Seen& seen = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 8});
  const auto call = session.take();
  const Segment segment = call->lists.write_chunk(0)[0];
  EXPECT_EQ(segment.length, 0U);
  EXPECT_NE(segment.handle, 0U);
  session.answer(call->xid(), 4);
  session.raw.until([&] { return seen.times == 1; });
  Seen& second = session.submit({.target = &kTarget, .sinks = sinks, .max_results = 8});
  const auto next = session.take();
  EXPECT_FALSE(session.raw.try_write(filled(1, 0x99), next->lists.write_chunk(0)[0].handle, segment.offset));
  for (int i = 0; i < 20000 && second.times == 0; ++i) session.raw.client().step();
  EXPECT_EQ(memory[0], std::byte{0x11});
}

/// A device that remembers how memory was registered with it.
class Watched final : public dv::mlx5::Device {
 public:
  Watched(std::unique_ptr<dv::mlx5::Device> inner, std::vector<dv::Access>& registered)
      : inner_(std::move(inner)), registered_(registered) {}
  const dv::Capabilities& capabilities() const noexcept override { return inner_->capabilities(); }
  dv::Usage usage() const noexcept override { return inner_->usage(); }
  Result<dv::MemoryRegion> register_memory(std::span<std::byte> range, int fd, std::size_t fd_offset,
                                           dv::Access access) override {
    registered_.push_back(access);
    return inner_->register_memory(range, fd, fd_offset, access);
  }
  Result<dv::mlx5::PollGroup*> make_poll_group() override { return inner_->make_poll_group(); }
  Result<dv::CmId> listen(const dv::Address& address) override { return inner_->listen(address); }
  Result<dv::CmId> connect(const dv::Address& address, dv::mlx5::PollGroup& group) override {
    return inner_->connect(address, group);
  }
  Result<dv::mlx5::Qp*> make_qp(dv::CmId id, const dv::QpSizes& sizes) override { return inner_->make_qp(id, sizes); }
  Result<void> finish_connect(dv::CmId id, std::span<const std::byte> data) override {
    return inner_->finish_connect(id, data);
  }
  Result<void> accept(dv::CmId id, std::span<const std::byte> data) override { return inner_->accept(id, data); }
  void reject(dv::CmId id, std::span<const std::byte> data, const std::string& reason) override {
    inner_->reject(id, data, reason);
  }
  Result<std::uint32_t> allocate_window(dv::CmId id) override { return inner_->allocate_window(id); }
  void free_window(std::uint32_t key) override { inner_->free_window(key); }
  void disconnect(dv::CmId id) override { inner_->disconnect(id); }
  void move_to_error(dv::mlx5::Qp& qp) noexcept override { inner_->move_to_error(qp); }
  void destroy(dv::CmId id) override { inner_->destroy(id); }
  std::optional<dv::CmEvent> next_event() override { return inner_->next_event(); }
  int event_fd() const noexcept override { return inner_->event_fd(); }

 private:
  std::unique_ptr<dv::mlx5::Device> inner_;
  std::vector<dv::Access>& registered_;
};

TEST(ConformanceProtection, AnEngineThatServesGivesNobodyAKeyOfItsMemory) {
  proves("ENG-MR-5", "R8166-8.1-4");
  for (const Registration registration :
       {Registration::kNone, Registration::kKeyPerCall, Registration::kRemoteInvalidation, Registration::kPoolKey}) {
    dv::soft::Fabric fabric;
    std::vector<dv::Access> registered;
    const auto engine = EngineCore<dv::mlx5::Provider>::open_on(
        std::make_unique<Watched>(test::must(fabric.open_device()), registered), config_with(registration));
    ASSERT_TRUE(engine);
    const auto expected = registration == Registration::kPoolKey ? dv::Access::kRemoteReadWrite : dv::Access::kLocal;
    EXPECT_EQ(registered, std::vector<dv::Access>{expected}) << to_string(registration);
  }
}

TEST(ConformanceProtection, WithoutRegistrationThereAreNoChunks) {
  Session session(4, 4, config_with(Registration::kNone));
  session.expect_served();
  const RegisteredBytes sinks[] = {session.raw.client().application_memory().first(8)};
  EXPECT_EQ(session.connection->submit({.target = &kTarget, .sinks = sinks}), SubmitOutcome::kTooLarge);
  EXPECT_EQ(session.connection->submit({.target = &kTarget, .max_results = 9000}), SubmitOutcome::kTooLarge);
  session.raw.turns(50);
  EXPECT_EQ(session.raw.waiting(), 0U);
  session.expect_served();
}

// ------------------------------------------------------------------------------------------------- calls given up

TEST(ConformanceProtection, ACancelledCallThatLentNothingEndsAtOnceAndItsCreditComesBackWithTheReply) {
  proves("ENG-CR-6", "ENG-RX-4", "ENG-RT-5");
  for (const Registration registration : kAll) {
    Session session(4, 4, config_with(registration));
    std::vector<CallHandle> handles(4);
    std::vector<Seen*> seen;
    std::vector<std::uint32_t> xids;
    for (std::size_t i = 0; i < 4; ++i) {
      // A plain call, and one whose Reply chunk is the engine's.
      seen.push_back(&session.submit({.target = &kTarget, .max_results = i % 2 == 0 ? 8U : 9000U}, {}, handles[i]));
      xids.push_back(session.take()->xid());
    }
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(session.connection->cancel(handles[i]), CancelOutcome::kEnded);
      EXPECT_EQ(seen[i]->times, 1);
      EXPECT_EQ(seen[i]->error, CallError::kCancelled);
      EXPECT_EQ(session.connection->cancel(handles[i]), CancelOutcome::kUnknown);
    }
    EXPECT_EQ(session.connection->in_flight(), 4U);
    Seen refused;
    const CallRequest request{.target = &kTarget, .on_reply = Seen::on_reply, .context = &refused};
    EXPECT_EQ(session.connection->submit(request), SubmitOutcome::kNoCredit);
    session.answer(xids[1], 4);
    session.raw.send(test::bytes_of({xids[2], 1, 4, 4, 2}));  // an error is a late Reply, too
    session.raw.until([&] { return session.connection->in_flight() == 2; });
    session.expect_served();
    session.answer(xids[1], 4);  // once more
    session.answer(xids[0], 4);
    session.answer(xids[3], 4);
    session.raw.until([&] { return session.connection->in_flight() == 0; });
    EXPECT_EQ(session.connection->credits_left(), 4U);
    for (const Seen* one : seen) EXPECT_EQ(one->times, 1);
    EXPECT_EQ(session.counter("requests_abandoned"), 4U);
    EXPECT_EQ(session.counter("replies_late"), 4U);
    EXPECT_EQ(session.counter("replies_unknown_xid"), 1U);
    session.expect_served();
  }
}

TEST(ConformanceProtection, WhatACancelledCallLentComesBackWithItsLateReply) {
  proves("R8166-4.4-3", "ENG-MR-1", "ENG-CR-6", "R8166-3.4.5-7");
  for (const Registration registration : kAll) {
    Session session(4, 4, config_with(registration));
    const Lent lent(session);
    EXPECT_EQ(session.connection->cancel(lent.handle), CancelOutcome::kPending);
    EXPECT_EQ(session.connection->cancel(lent.handle), CancelOutcome::kPending);
    session.raw.turns(500);
    EXPECT_EQ(lent.seen->times, 0);
    // The Responder knows of nothing, and harms nobody.
    EXPECT_TRUE(session.raw.try_read(kOctets, lent.source.handle, lent.source.offset));
    EXPECT_TRUE(lent.write(0x22));
    session.raw.send(lent.reply());
    session.raw.until([&] { return lent.seen->times == 1; });
    EXPECT_EQ(lent.seen->error, CallError::kCancelled);
    EXPECT_TRUE(lent.seen->results.empty());
    EXPECT_TRUE(lent.seen->written.empty());
    EXPECT_EQ(session.connection->credits_left(), 4U);
    EXPECT_EQ(session.counter("replies_late"), 1U);
    session.expect_served();
    if (registration != Registration::kPoolKey) {
      EXPECT_FALSE(lent.write(0x99));
    }
  }
}

TEST(ConformanceProtection, WhatIsNeededAtOnceIsInvalidatedAndALateWriteFails) {
  proves("R8166-4.4-3", "R8166-8.1-7", "R8166-8.1-8", "ENG-MR-1");
  Session session(4, 4, config_with(Registration::kKeyPerCall));
  for (const bool replies : {true, false}) {
    const Lent lent(session);
    EXPECT_EQ(session.connection->cancel(lent.handle, Reclaim::kAtOnce), CancelOutcome::kPending);
    session.raw.until([&] { return lent.seen->times == 1; });
    EXPECT_EQ(lent.seen->error, CallError::kCancelled);
    EXPECT_TRUE(session.connection->open());
    EXPECT_EQ(session.connection->in_flight(), 1U);
    if (replies) {  // one that had not come so far as to write
      session.answer(lent.call->xid(), 4);
      session.raw.until([&] { return session.connection->in_flight() == 0; });
      session.expect_served();
    } else {
      EXPECT_FALSE(lent.write(0x99));
      EXPECT_TRUE(lent.sink_is(0x11));
    }
    EXPECT_EQ(lent.seen->times, 1);
  }
  for (int i = 0; i < 20000 && session.raw.client().connection_count() != 0; ++i) session.raw.client().step();
  EXPECT_FALSE(session.connection->open());
}

TEST(ConformanceProtection, WhatCannotBeTakenFromThePeerCostsTheConnection) {
  proves("R8166-4.4-3", "R8166-8.1-7");
  // By the pool's key the peer could go on; and where it may be about to invalidate a key, we must not do it first.
  for (const Registration registration : {Registration::kPoolKey, Registration::kRemoteInvalidation}) {
    Session session(4, 4, config_with(registration));
    const Lent lent(session);
    EXPECT_EQ(session.connection->cancel(lent.handle, Reclaim::kAtOnce), CancelOutcome::kPending);
    EXPECT_EQ(lent.seen->times, 0);
    session.raw.until([&] { return lent.seen->times == 1; });
    EXPECT_EQ(lent.seen->error, CallError::kCancelled);
    EXPECT_FALSE(session.connection->open());
    EXPECT_FALSE(lent.write(0x99));
    EXPECT_TRUE(lent.sink_is(0x11));
  }
}

TEST(ConformanceProtection, ALostConnectionEndsEveryCallOnce) {
  proves("ENG-RT-6", "R8267-4-2");
  for (const Registration registration : kAll) {
    Session session(8, 8, config_with(registration));
    const Lent lost(session);
    const Lent cancelled(session);
    CallHandle handle;
    const Seen& told = session.submit({.target = &kTarget, .max_results = 9000}, {}, handle);
    EXPECT_EQ(session.connection->cancel(handle), CancelOutcome::kEnded);
    EXPECT_EQ(session.connection->cancel(cancelled.handle), CancelOutcome::kPending);
    session.raw.die();
    for (int i = 0; i < 200000 && (lost.seen->times == 0 || cancelled.seen->times == 0); ++i) {
      session.raw.client().step();
    }
    EXPECT_EQ(lost.seen->error, CallError::kConnectionLost);
    EXPECT_EQ(cancelled.seen->error, CallError::kCancelled);
    EXPECT_EQ(lost.seen->times + cancelled.seen->times + told.times, 3);
    Engine& client = session.raw.client();
    client.disconnect(session.connection);
    for (int i = 0; i < 200000 && client.connection_count() != 0; ++i) client.step();
    client.stop(std::chrono::milliseconds(0));
    const auto [adds_up, text] = client.audit();
    EXPECT_TRUE(adds_up) << text;
    EXPECT_EQ(session.counter("calls_submitted"),
              session.counter("replies_received") + session.counter("requests_failed"));
  }
}

// ------------------------------------------------------------------------------------------------------------ time

TEST(ConformanceProtection, CallsTimeOutOnceAndLateRepliesAreDropped) {  // F19
  proves("F19", "ENG-RX-4", "ENG-CR-6", "R8166-4.4-3");
  using Clock = std::chrono::steady_clock;
  for (const Registration registration : kAll) {
    Session session(16, 16, config_with(registration));
    struct Waiting {
      std::unique_ptr<Lent> lent;
      Clock::time_point submitted;
      Clock::time_point due;
    };
    std::vector<Waiting> waiting;
    std::uint32_t made = 0;
    std::uint32_t timed_out = 0;
    std::uint32_t answered = 0;
    constexpr std::uint32_t kCalls = 400;
    while (made < kCalls || !waiting.empty()) {
      if (made < kCalls && session.connection->credits_left() != 0) {
        const auto now = Clock::now();
        waiting.push_back({std::make_unique<Lent>(session, made % 2 == 0, CallOptions{.timeout_ms = 1}), now,
                           now + std::chrono::microseconds(made * 37 % 5000)});
        ++made;
      }
      session.raw.turn();
      std::erase_if(waiting, [&](Waiting& one) {
        if (Clock::now() < one.due) return false;
        EXPECT_TRUE(one.lent->write(0x22));
        session.raw.send(one.lent->reply());
        const Seen& seen = *one.lent->seen;
        session.raw.until([&] { return seen.times == 1; });
        EXPECT_TRUE(seen.error == CallError::kNone || seen.error == CallError::kTimedOut);
        if (seen.error == CallError::kTimedOut) {
          EXPECT_GE(Clock::now() - one.submitted, std::chrono::milliseconds(1));
        }
        ++(seen.error == CallError::kNone ? answered : timed_out);
        return true;
      });
    }
    EXPECT_EQ(answered + timed_out, kCalls);
    EXPECT_GT(timed_out, kCalls / 10);
    EXPECT_EQ(session.counter("replies_late"), timed_out);
    EXPECT_EQ(session.connection->credits_left(), 16U);
    EXPECT_FALSE(session.raw.failed());
    for (const Seen& seen : session.seen) EXPECT_EQ(seen.times, 1);
  }
}

TEST(ConformanceProtection, ASilentPeerIsNoticed) {
  proves("ENG-RT-7");
  Config config = config_with(Registration::kPoolKey);
  config.silence_limit = std::chrono::milliseconds(40);
  Session session(4, 4, config);
  const auto before = std::chrono::steady_clock::now();
  const Lent lent(session);
  CallHandle handle;
  const Seen& plain = session.submit({.target = &kTarget}, {.timeout_ms = 5}, handle);
  while (session.connection->open() && std::chrono::steady_clock::now() - before < std::chrono::seconds(5)) {
    session.raw.turn();
  }
  EXPECT_GE(std::chrono::steady_clock::now() - before, config.silence_limit);
  session.raw.until([&] { return lent.seen->times == 1; });
  EXPECT_EQ(lent.seen->error, CallError::kConnectionLost);
  EXPECT_EQ(plain.error, CallError::kTimedOut);
  EXPECT_EQ(plain.times, 1);
  EXPECT_EQ(session.counter("silent_peers"), 1U);
}

TEST(ConformanceProtection, ATalkativePeerIsNotTakenForSilent) {
  Config config = config_with(Registration::kPoolKey);
  config.silence_limit = std::chrono::milliseconds(40);
  Session session(4, 4, config);
  const auto before = std::chrono::steady_clock::now();
  // Each call takes the same slot, and none waits for long.
  while (std::chrono::steady_clock::now() - before < std::chrono::milliseconds(150)) session.expect_served();
  EXPECT_TRUE(session.connection->open());
}

// ---------------------------------------------------------------------------------------------- failed invalidation

TEST(ConformanceProtection, WhereAnInvalidationFailsTheConnectionClosesBeforeTheCallEnds) {
  proves("R8166-4.5.4-2", "R8166-4.5.4-1");
  // Of the Requester's UMR WQEs the first binds a window and the second invalidates it.
  for (const std::uint32_t nth : {1U, 2U}) {
    dv::soft::Fabric fabric(dv::soft::Fabric::Mode::kScheduled, 7);
    const auto open = [&](Config config) {
      return test::must(EngineCore<dv::mlx5::Provider>::open_on(test::must(fabric.open_device()), config));
    };
    auto server = open(config_with(Registration::kKeyPerCall));
    auto client = open(config_with(Registration::kKeyPerCall));
    Program program{.number = test::kProgram, .version = 1, .name = "test", .procedures = {}};
    program.procedures.push_back({.number = 1, .name = "FILL", .handler = [](Call& call, void*) noexcept {
                                    const RegisteredBytes source = call.keep(call.make_buffer(kOctets));
                                    std::memset(source.data(), 0x22, kOctets);
                                    call.push(source.first(kOctets));
                                    call.reply();
                                  }});
    ASSERT_TRUE(server->add_program(std::move(program)));
    ASSERT_TRUE(server->start());
    ASSERT_TRUE(client->start());
    ASSERT_TRUE(server->listen("sim:server"));
    const auto turn = [&] {
      server->step();
      client->step();
      static_cast<void>(fabric.step());
    };
    const std::uint64_t attempt = test::must(client->begin_connect("sim:server", 0, 4));
    Connection* connection = nullptr;
    for (int i = 0; i < 100000 && connection == nullptr; ++i) {
      turn();
      connection = test::must(client->finish_connect(attempt));
    }
    ASSERT_NE(connection, nullptr);
    fabric.load_faults({{{.device = 1,
                          .opcodes = std::uint64_t{1} << MLX5_OPCODE_UMR,
                          .nth = nth,
                          .action = dv::soft::FaultAction::kSyndrome,
                          .value = MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR}}});
    struct Told {
      Connection* connection;
      int times = 0;
      bool open = true;
      CallError error = CallError::kCancelled;
    } told{connection};
    const RegisteredBytes sinks[] = {client->application_memory().first(kOctets)};
    ASSERT_EQ(connection->submit({.target = &kTarget,
                                  .sinks = sinks,
                                  .max_results = 8,
                                  .on_reply =
                                      [](void* context, const Reply& reply) noexcept {
                                        auto& self = *static_cast<Told*>(context);
                                        ++self.times;
                                        self.open = self.connection->open();
                                        self.error = reply.error;
                                      },
                                  .context = &told}),
              SubmitOutcome::kPosted);
    for (int i = 0; i < 200000 && told.times == 0; ++i) turn();
    EXPECT_EQ(fabric.faults_injected(), 1U);
    EXPECT_EQ(told.times, 1);
    EXPECT_FALSE(told.open);
    // Bound or not, the Call may have come; what its Reply said is known where it came.
    EXPECT_EQ(told.error, nth == 1 ? CallError::kConnectionLost : CallError::kNone);
    client->disconnect(connection);
    for (int i = 0; i < 200000 && client->connection_count() != 0; ++i) turn();
    client->stop(std::chrono::milliseconds(0));
    const auto [adds_up, text] = client->audit();
    EXPECT_TRUE(adds_up) << text;
  }
}

}  // namespace
}  // namespace rodeo
