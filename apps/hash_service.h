// SPDX-License-Identifier: Apache-2.0
#pragma once

// The HASH procedures: SHA-256 of a stream that arrives in blocks, several at a time and in any order.
//
// Runs on: worker cores (poll cores where there are none); expire() on a poll core. A session's lock is held to look at
// its state, never while hashing: whoever finds the next block in order hashes it and every waiting one that follows.
// A block that is early keeps its Call, and with it the buffer it lies in, until its turn; a session whose missing
// block does not come gives them back.

#include <openssl/evp.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "apps/test_protocol.h"
#include "engine/call.h"
#include "engine/program.h"

namespace rodeo::apps {

class HashService {
 public:
  static constexpr std::size_t kMaxSessions = 256;
  static constexpr std::size_t kMaxWaiting = 64;   // blocks of one session that came early
  static constexpr double kStalledSeconds = 10;    // then early blocks are given up
  static constexpr double kIdleSeconds = 3600;     // then the session is
  static constexpr double kEvictableSeconds = 30;  // idle so long, it makes room for a new one

  explicit HashService(std::size_t max_block_bytes) : max_block_bytes_(max_block_bytes) {}
  HashService(const HashService&) = delete;
  HashService& operator=(const HashService&) = delete;

  void append_procedures(std::vector<Procedure>& procedures);

  /// Gives up what has waited too long, or with `everything` all that waits. Cheap to call every turn. Returns how many
  /// Calls it answered.
  std::size_t expire(bool everything) noexcept;

 private:
  struct FreeDigest {
    void operator()(EVP_MD_CTX* digest) const noexcept { EVP_MD_CTX_free(digest); }
  };
  struct Block {
    std::uint64_t offset = 0;
    std::span<const std::byte> octets;
    DeferredCall call;  // its Reply is prepared
  };
  struct Session {
    std::mutex mutex;
    /// 0: free. Written under the lock; expire() looks without it, and takes the lock of those in use only.
    std::atomic<std::uint64_t> id{0};
    std::unique_ptr<EVP_MD_CTX, FreeDigest> digest;
    std::uint64_t next_offset = 0;
    std::uint64_t used_ticks = 0;
    bool hashing = false;  // somebody does, outside the lock; nobody else touches digest or frees the session
    std::size_t waiting_count = 0;
    std::array<Block, kMaxWaiting> waiting;
  };

  /// The session locked, or nothing when there is none of that name.
  [[nodiscard]] Session* lock_session(std::uint64_t id, std::unique_lock<std::mutex>& lock) noexcept;
  [[nodiscard]] Session* lock_free_session(std::unique_lock<std::mutex>& lock) noexcept;
  [[nodiscard]] static bool start(Session& session, std::size_t index) noexcept;
  /// Moves the waiting block at next_offset, if it is there, to `block`. Under the lock.
  [[nodiscard]] static bool take_next(Session& session, Block& block) noexcept;
  static void hash_in_order(Session& session, std::unique_lock<std::mutex>& lock, Block block) noexcept;
  void update_with(Call& call, std::span<const std::byte> octets) noexcept;

  static void begin(Call& call, void* context) noexcept;
  static void update(Call& call, void* context) noexcept;
  static void update_pulled(Call& call, void* context) noexcept;
  static void end(Call& call, void* context) noexcept;

  std::size_t max_block_bytes_;
  std::array<Session, kMaxSessions> sessions_;
  std::uint64_t next_sweep_ticks_ = 0;
  std::uint32_t turns_to_clock_ = 0;
};

}  // namespace rodeo::apps
