// SPDX-License-Identifier: Apache-2.0
#include "engine/reply_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>
#include <utility>

#include "engine/call_core.h"
#include "engine/link.h"

namespace rodeo {

class ReplyCache::Entry {
 public:
  enum class State : std::uint8_t { kFree, kRunning, kDone };
  Key key;
  State state = State::kFree;
  ReplyCache* cache = nullptr;
  std::size_t length = 0;
  std::uint64_t used = 0;
  std::array<DeferredCall, kMostWaiting> waiting;
  std::size_t waiting_count = 0;
};

ReplyCache::ReplyCache(std::size_t entries, std::size_t bytes)
    : bytes_(bytes),
      sets_(std::bit_ceil((entries + kWays - 1) / kWays)),
      entries_(std::make_unique<Entry[]>(sets_ * kWays)),
      results_(sets_ * kWays * bytes) {
  std::random_device random;
  for (std::uint64_t& word : secret_) word = (std::uint64_t{random()} << 32U) | random() | 1U;
  for (std::size_t i = 0; i < sets_ * kWays; ++i) entries_[i].cache = this;
}

ReplyCache::~ReplyCache() = default;

Procedure ReplyCache::wrap(const Program& program, Procedure procedure) {
  Procedure wrapper = procedure;
  served_.push_back({this, std::move(procedure), program.number, program.version});
  wrapper.handler = serve;
  wrapper.context = &served_.back();
  return wrapper;
}

std::uint64_t ReplyCache::checksum(std::span<const std::byte> octets) const noexcept {
  std::uint64_t sum = secret_[0] ^ octets.size();
  while (!octets.empty()) {
    std::uint64_t word = 0;
    const std::size_t length = std::min(octets.size(), sizeof word);
    std::memcpy(&word, octets.data(), length);
    octets = octets.subspan(length);
    sum = std::rotl((sum ^ word) * secret_[1], 29) + secret_[0];
  }
  return sum ^ (sum >> 32U);
}

std::uint64_t ReplyCache::name_of(const Peer& peer) const noexcept {
  std::array<std::uint32_t, 7> words{static_cast<std::uint32_t>(peer.kind), peer.uid, peer.pid};
  std::memcpy(words.data() + 3, peer.address.data(), peer.address.size());
  return checksum(std::as_bytes(std::span(words)));
}

/// With the mutex held. A new entry is running from now on.
ReplyCache::Found ReplyCache::find(const Key& key, Entry*& entry) noexcept {
  Entry* const set = &entries_[key.checksum % sets_ * kWays];
  Entry* oldest = nullptr;
  for (Entry* at = set; at != set + kWays; ++at) {
    if (at->state != Entry::State::kFree && at->key == key) {
      entry = at;
      at->used = ++clock_;
      return at->state == Entry::State::kDone ? Found::kDone : Found::kRunning;
    }
    if (at->state == Entry::State::kRunning) continue;
    const bool better = oldest == nullptr || (oldest->state == Entry::State::kDone &&
                                              (at->state == Entry::State::kFree || at->used < oldest->used));
    if (better) oldest = at;
  }
  if (oldest == nullptr) return Found::kNoRoom;
  entry = oldest;
  entry->key = key;
  entry->state = Entry::State::kRunning;
  entry->used = ++clock_;
  return Found::kNew;
}

void ReplyCache::serve(Call& call, void* context) noexcept {
  auto& served = *static_cast<Served*>(context);
  ReplyCache& cache = *served.cache;
  CallCore& core = core_of(call);
  // From here on the Call is the procedure's own, for its later stages, too.
  core.serving = &served.procedure;
  const bool reduced = core.chunks != nullptr && !core.chunks->reads.data().empty();
  const std::uint32_t bytes = reduced ? core.rpc.args_offset : core.payload_bytes;
  const Key key{.xid = call.xid(),
                .program = served.program,
                .version = served.version,
                .procedure = served.procedure.number,
                .reverse = core.link->opened_here,
                .bytes = bytes,
                .checksum = cache.checksum({core.payload, bytes}),
                .peer = cache.name_of(call.peer())};
  {
    const std::scoped_lock lock(cache.mutex_);
    Entry* entry = nullptr;
    switch (cache.find(key, entry)) {
      case Found::kDone:
        cache.replayed_.fetch_add(1, std::memory_order_relaxed);
        return replay(call,
                      {cache.results_.data() + static_cast<std::size_t>(entry - cache.entries_.get()) * cache.bytes_,
                       entry->length});
      case Found::kRunning:
        if (entry->waiting_count == kMostWaiting) return call.reject(AcceptStat::kSystemErr);
        entry->waiting[entry->waiting_count++] = call.defer();
        return;
      case Found::kNew:
        core.remembered = entry;
        core.form = ReplyForm::kRemember;
        break;
      case Found::kNoRoom:
        break;
    }
  }
  served.procedure.handler(call, served.procedure.context);
}

void ReplyCache::replay(Call& call, std::span<const std::byte> results) noexcept {
  if (!results.empty()) call.results(results.size()).opaque_fixed(results);
  call.reply();
}

void ReplyCache::settle(CallCore& call) noexcept {
  Entry& entry = *std::exchange(call.remembered, nullptr);
  call.form = ReplyForm::kMsg;
  ReplyCache& cache = *entry.cache;
  const std::span<const std::byte> results = call.results_open ? call.writer.written() : std::span<const std::byte>{};
  const bool whole = call.ending == Ending::kReply && (!call.results_open || call.writer.ok()) &&
                     (call.chunks == nullptr || call.chunks->push_count == 0);
  const std::scoped_lock lock(cache.mutex_);
  if (whole && results.size() <= cache.bytes_) {
    std::byte* kept = cache.results_.data() + static_cast<std::size_t>(&entry - cache.entries_.get()) * cache.bytes_;
    if (!results.empty()) std::memcpy(kept, results.data(), results.size());
    entry.length = results.size();
    entry.state = Entry::State::kDone;
  } else {
    entry.state = Entry::State::kFree;
  }
  for (; entry.waiting_count != 0; --entry.waiting_count) {
    DeferredCall duplicate = std::exchange(entry.waiting[entry.waiting_count - 1], DeferredCall());
    if (!whole) {
      duplicate.reject(AcceptStat::kSystemErr);
      continue;
    }
    cache.replayed_.fetch_add(1, std::memory_order_relaxed);
    if (!results.empty()) duplicate.get()->results(results.size()).opaque_fixed(results);
    duplicate.reply();
  }
}

}  // namespace rodeo
