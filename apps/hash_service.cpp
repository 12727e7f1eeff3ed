// SPDX-License-Identifier: Apache-2.0
#include "apps/hash_service.h"

#include <openssl/rand.h>

#include <algorithm>
#include <utility>

#include "pools/clock.h"

namespace rodeo::apps {
namespace {

HashService& service_of(void* context) noexcept { return *static_cast<HashService*>(context); }

void reply_status(Call& call, HashStatus status) noexcept {
  call.results(4).enumeration(status);
  call.reply();
}

}  // namespace

void HashService::append_procedures(std::vector<Procedure>& procedures) {
  const auto number = [](TestProc proc) { return static_cast<std::uint32_t>(proc); };
  procedures.push_back({number(TestProc::kHashBegin), "HASH_BEGIN", &begin, this, Placement::kWorkerCore, 0});
  procedures.push_back({number(TestProc::kHashUpdate), "HASH_UPDATE", &update, this, Placement::kWorkerCore, 1});
  procedures.push_back({number(TestProc::kHashEnd), "HASH_END", &end, this, Placement::kWorkerCore, 0});
}

HashService::Session* HashService::lock_session(std::uint64_t id, std::unique_lock<std::mutex>& lock) noexcept {
  Session& session = sessions_[id % kMaxSessions];
  lock = std::unique_lock(session.mutex);
  if (id == 0 || session.id != id) {
    lock.unlock();
    return nullptr;
  }
  session.used_ticks = pools::tsc_now();
  return &session;
}

HashService::Session* HashService::lock_free_session(std::unique_lock<std::mutex>& lock) noexcept {
  const std::uint64_t now = pools::tsc_now();
  const std::uint64_t evictable = pools::ns_to_ticks(kEvictableSeconds * 1e9);
  for (const bool evict : {false, true}) {
    for (Session& session : sessions_) {
      lock = std::unique_lock(session.mutex);
      const bool idle = !session.hashing && session.waiting_count == 0 && now - session.used_ticks > evictable;
      if (session.id == 0 || (evict && idle)) return &session;
      lock.unlock();
    }
  }
  return nullptr;
}

/// Under the lock. Names are random, so that nobody hits another's session by counting; the index is their low end.
bool HashService::start(Session& session, std::size_t index) noexcept {
  std::uint64_t random = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&random), sizeof random) != 1) return false;
  if (session.digest == nullptr) session.digest.reset(EVP_MD_CTX_new());
  if (session.digest == nullptr || EVP_DigestInit_ex(session.digest.get(), EVP_sha256(), nullptr) != 1) return false;
  static_assert(kMaxSessions == 256);
  session.id = ((random | 0x100) & ~std::uint64_t{0xff}) | index;
  session.next_offset = 0;
  session.used_ticks = pools::tsc_now();
  return true;
}

void HashService::begin(Call& call, void* context) noexcept {
  HashService& self = service_of(context);
  if (call.arguments().remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  std::unique_lock<std::mutex> lock;
  Session* session = self.lock_free_session(lock);
  if (session == nullptr) return reply_status(call, HashStatus::kTooManySessions);
  if (!start(*session, static_cast<std::size_t>(session - self.sessions_.data()))) {
    session->id = 0;
    return call.reject(AcceptStat::kSystemErr);
  }
  const std::uint64_t id = session->id;
  lock.unlock();
  XdrWriter& results = call.results(16);
  results.enumeration(HashStatus::kOk);
  results.u64(id);
  results.u32(static_cast<std::uint32_t>(self.max_block_bytes_));
  call.reply();
}

void HashService::update(Call& call, void* context) noexcept {
  HashService& self = service_of(context);
  XdrReader reader = call.arguments();
  const std::uint64_t id = reader.u64();
  const std::uint64_t offset = reader.u64();
  const BulkArgument argument = call.bulk_argument(reader, static_cast<std::uint32_t>(self.max_block_bytes_));
  if (!reader.ok() || !argument.ok || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  {
    std::unique_lock<std::mutex> lock;
    if (self.lock_session(id, lock) == nullptr) return reply_status(call, HashStatus::kUnknownSession);
  }
  call.state() = {id, offset, argument.length, 0};
  if (argument.chunk < 0) return self.update_with(call, argument.inline_data);
  call.pull(argument, &update_pulled);  // into kept(0)
}

void HashService::update_pulled(Call& call, void* context) noexcept {
  service_of(context).update_with(call, call.kept(0).first(call.state()[2]));
}

void HashService::update_with(Call& call, std::span<const std::byte> octets) noexcept {
  const auto [id, offset, length, unused] = call.state();
  std::unique_lock<std::mutex> lock;
  Session* session = lock_session(id, lock);
  const auto refuse = [&](HashStatus status) {
    if (lock.owns_lock()) lock.unlock();
    reply_status(call, status);
  };
  if (session == nullptr) return refuse(HashStatus::kUnknownSession);
  if (offset < session->next_offset || length > ~offset) return refuse(HashStatus::kBadOffset);
  const bool early = session->hashing || offset != session->next_offset;
  if (early && session->waiting_count == kMaxWaiting) return refuse(HashStatus::kTooFarAhead);
  call.results(4).enumeration(HashStatus::kOk);
  const Block block{offset, octets, call.defer()};
  if (early) {
    session->waiting[session->waiting_count++] = block;
    return;
  }
  hash_in_order(*session, lock, block);
}

bool HashService::take_next(Session& session, Block& block) noexcept {
  const auto waiting = std::span{session.waiting}.first(session.waiting_count);
  const auto next = std::find_if(waiting.begin(), waiting.end(),
                                 [&](const Block& candidate) { return candidate.offset <= session.next_offset; });
  if (next == waiting.end()) return false;
  block = *next;
  *next = waiting.back();
  --session.waiting_count;
  return true;
}

/// A Reply leaves only once the session is ready for whatever its receiver does next.
void HashService::hash_in_order(Session& session, std::unique_lock<std::mutex>& lock, Block block) noexcept {
  session.hashing = true;
  for (bool more = true; more;) {
    // A block that waited may turn out to repeat what another one brought.
    bool hashed = block.offset == session.next_offset;
    if (hashed) {
      lock.unlock();
      hashed = EVP_DigestUpdate(session.digest.get(), block.octets.data(), block.octets.size()) == 1;
      lock.lock();
      session.next_offset += block.octets.size();
    }
    Block next;
    more = take_next(session, next);
    session.hashing = more;
    session.used_ticks = pools::tsc_now();
    lock.unlock();
    if (hashed) {
      block.call.reply();
    } else {
      block.call.reject(AcceptStat::kSystemErr);
    }
    block = next;
    if (more) lock.lock();
  }
}

void HashService::end(Call& call, void* context) noexcept {
  HashService& self = service_of(context);
  XdrReader reader = call.arguments();
  const std::uint64_t id = reader.u64();
  if (!reader.ok() || reader.remaining() != 0) return call.reject(AcceptStat::kGarbageArgs);
  std::unique_lock<std::mutex> lock;
  Session* session = self.lock_session(id, lock);
  if (session == nullptr) return reply_status(call, HashStatus::kUnknownSession);
  if (session->hashing || session->waiting_count != 0) {
    lock.unlock();
    return reply_status(call, HashStatus::kIncomplete);
  }
  std::array<unsigned char, kSha256Bytes> hash{};
  const bool finished = EVP_DigestFinal_ex(session->digest.get(), hash.data(), nullptr) == 1;
  session->id = 0;
  lock.unlock();
  if (!finished) return call.reject(AcceptStat::kSystemErr);
  XdrWriter& results = call.results(4 + kSha256Bytes);
  results.enumeration(HashStatus::kOk);
  results.opaque_fixed(std::as_bytes(std::span{hash}));
  call.reply();
}

std::size_t HashService::expire(bool everything) noexcept {
  constexpr std::uint32_t kTurnsPerLook = 4096;
  if (turns_to_clock_-- != 0 && !everything) return 0;
  turns_to_clock_ = kTurnsPerLook;
  const std::uint64_t now = pools::tsc_now();
  if (now < next_sweep_ticks_ && !everything) return 0;
  next_sweep_ticks_ = now + pools::ns_to_ticks(1e9);
  const std::uint64_t stalled = pools::ns_to_ticks(kStalledSeconds * 1e9);
  const std::uint64_t idle = pools::ns_to_ticks(kIdleSeconds * 1e9);
  std::size_t answered = 0;
  for (Session& session : sessions_) {
    if (session.id.load(std::memory_order_relaxed) == 0) continue;  // a poll core takes no lock for nothing
    const std::unique_lock lock(session.mutex);
    const std::uint64_t age = now - std::min(now, session.used_ticks);
    if (session.id == 0 || session.hashing) continue;
    const bool give_up = session.waiting_count != 0 && (everything || age > stalled);
    if (!give_up && age <= idle) continue;
    for (Block& block : std::span{session.waiting}.first(session.waiting_count)) {
      block.call.reject(AcceptStat::kSystemErr);
      ++answered;
    }
    session.waiting_count = 0;
    session.id = 0;
  }
  return answered;
}

}  // namespace rodeo::apps
