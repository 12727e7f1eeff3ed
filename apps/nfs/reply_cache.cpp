// SPDX-License-Identifier: Apache-2.0
// Hot path, save for construction. Runs on: poll cores.
#include "apps/nfs/reply_cache.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <random>
#include <utility>

#include "pools/byte_order.h"

namespace rodeo::nfs {
namespace {

/// FNV-1a, eight octets at a time.
std::uint64_t mixed(std::uint64_t hash, std::span<const std::byte> octets) noexcept {
  constexpr std::uint64_t kPrime = 0x100'0000'01b3;
  for (; octets.size() >= 8; octets = octets.subspan(8)) hash = (hash ^ load_be64(octets.data())) * kPrime;
  for (const std::byte octet : octets) hash = (hash ^ static_cast<std::uint64_t>(octet)) * kPrime;
  return hash ^ (hash >> 29U);
}

}  // namespace

ReplyCache::ReplyCache() : entries_(std::make_unique<Entry[]>(kSets * kWays)) {
  std::random_device random;
  seed_ = (std::uint64_t{random()} << 32U) | random();
}

std::uint64_t ReplyCache::key_of(const Call& call) const noexcept {
  std::array<std::byte, 8> words;
  store_be32(words.data(), call.xid());
  store_be32(words.data() + 4, call.procedure());
  XdrReader arguments = call.arguments();
  std::uint64_t hash = mixed(seed_, words);
  hash = mixed(hash, call.header().cred.body);
  hash = mixed(hash, arguments.opaque_fixed(arguments.remaining() / 4 * 4));
  return hash == 0 ? 1 : hash;  // 0 is no ticket
}

ReplyCache::Begun ReplyCache::begin(Call& call, Handler again, std::uint64_t& ticket) noexcept {
  const std::uint64_t key = key_of(call);
  ticket = 0;
  DeferredCall earlier;
  Begun begun = Begun::kNew;
  std::array<std::byte, kMaxResults> results;
  std::size_t size = 0;
  {
    const std::scoped_lock lock(lock_);
    Entry* place = nullptr;
    for (Entry& entry : set_of(key)) {
      if (entry.state != State::kFree && entry.key == key) {
        place = &entry;
        break;
      }
      if (entry.state == State::kRunning) continue;
      const bool better = place == nullptr || entry.state == State::kFree || entry.age < place->age;
      if (better && (place == nullptr || place->state != State::kFree)) place = &entry;
    }
    if (place == nullptr) return Begun::kNew;  // all are running: this one is not kept
    if (place->state == State::kDone && place->key == key) {
      begun = Begun::kAnswered;
      size = place->size;
      std::memcpy(results.data(), place->results.data(), size);
    } else if (place->state == State::kRunning) {
      begun = Begun::kWaits;
      // One that waits already is of a connection that is gone, too; it goes on all the same, as every Call must.
      earlier = std::exchange(place->waiting, call.defer());
      place->again = again;
    } else {
      place->key = ticket = key;
      place->age = ++age_;
      place->state = State::kRunning;
    }
  }
  if (earlier) earlier.reject(AcceptStat::kSystemErr);
  if (begun == Begun::kAnswered) {
    XdrWriter& out = call.results(size);
    if (std::byte* at = out.reserve(size)) std::memcpy(at, results.data(), size);
    call.reply();
  }
  return begun;
}

void ReplyCache::end(std::uint64_t ticket, const std::span<const std::byte>* results) noexcept {
  if (ticket == 0) return;
  DeferredCall waiting;
  Handler again = nullptr;
  {
    const std::scoped_lock lock(lock_);
    for (Entry& entry : set_of(ticket)) {
      if (entry.state != State::kRunning || entry.key != ticket) continue;
      waiting = std::exchange(entry.waiting, {});
      again = entry.again;
      entry.state = State::kFree;
      if (results == nullptr || results->size() > kMaxResults) break;
      entry.state = State::kDone;
      entry.size = static_cast<std::uint16_t>(results->size());
      std::memcpy(entry.results.data(), results->data(), results->size());
      break;
    }
  }
  if (waiting) waiting.resume(again);
}

}  // namespace rodeo::nfs
