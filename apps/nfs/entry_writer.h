// SPDX-License-Identifier: Apache-2.0
#pragma once

// Takes the entries of READDIR and READDIRPLUS straight into the results, as many as the client's counts and the memory
// allow (RFC 1813 §3.3.16, §3.3.17).
// Hot path. Runs on: any, one at a time.

#include <cstddef>
#include <cstdint>

#include "apps/nfs/store.h"
#include "engine/xdr_writer.h"

namespace rodeo::nfs {

class EntryWriter final : public EntrySink {
 public:
  EntryWriter() noexcept = default;
  /// `out`: the results, with what goes before the list already there or reserved. They may grow to `max_bytes`, the
  /// end of the list included, and the names with what belongs to them to `max_name_bytes`.
  EntryWriter(XdrWriter& out, std::uint32_t export_id, bool plus, std::size_t max_bytes,
              std::size_t max_name_bytes) noexcept
      : out_(&out), export_id_(export_id), plus_(plus), max_bytes_(max_bytes), max_name_bytes_(max_name_bytes) {}

  bool add(const Entry3& entry) noexcept override;
  /// The end of the list. Precondition: nothing was written meanwhile.
  void finish(bool eof) noexcept;
  [[nodiscard]] std::size_t count() const noexcept { return count_; }

 private:
  static constexpr std::size_t kEndBytes = 8;

  XdrWriter* out_ = nullptr;
  std::uint32_t export_id_ = 0;
  bool plus_ = false;
  std::size_t max_bytes_ = 0;
  std::size_t max_name_bytes_ = 0;
  std::size_t name_bytes_ = 0;
  std::size_t count_ = 0;
};

}  // namespace rodeo::nfs
