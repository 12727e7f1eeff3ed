// SPDX-License-Identifier: Apache-2.0
// Hot path. Runs on: any, one at a time.
#include "apps/nfs/entry_writer.h"

#include "apps/nfs/nfs_service.h"
#include "engine/xdr_pad.h"

namespace rodeo::nfs {

bool EntryWriter::add(const Entry3& entry) noexcept {
  const std::size_t name_bytes = name_bytes_ + 8 + 4 + xdr_padded(entry.name.size()) + 8;
  if (count_ != 0 && name_bytes > max_name_bytes_) return false;
  const std::size_t mark = out_->size();
  if (plus_ && entry.name_handle) {
    Entry3 on_wire = entry;
    on_wire.name_handle = wire_handle(export_id_, *entry.name_handle);
    encode_entry(*out_, on_wire, true);
  } else {
    encode_entry(*out_, entry, plus_);
  }
  if (!out_->ok() || out_->room() < kEndBytes || out_->size() + kEndBytes > max_bytes_) {
    out_->cut(mark);
    return false;
  }
  name_bytes_ = name_bytes;
  ++count_;
  return true;
}

void EntryWriter::finish(bool eof) noexcept {
  out_->boolean(false);
  out_->boolean(eof);
}

}  // namespace rodeo::nfs
