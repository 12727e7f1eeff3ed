// SPDX-License-Identifier: Apache-2.0
// Any octets as the private data of a connection. RFC 8797: what is not for us reads as the defaults, sizes are
// always usable, and what was read encodes to what reads the same.

#include "engine/fuzz.h"
#include "engine/private_data.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace rodeo;
  const fuzz::Octets octets = fuzz::octets_of(data, size);
  const PrivateData peer = decode_private_data(octets);
  for (const std::uint32_t bytes : {peer.send_size, peer.receive_size}) {
    fuzz::check(bytes >= kMinInlineSize && bytes <= kMaxInlineSize && bytes % kInlineSizeStep == 0, "an unusable size");
  }
  const auto again = encode_private_data(peer);
  fuzz::check(decode_private_data(again) == peer, "it encodes to something else");
  const PrivateData own{.send_size = 4096, .receive_size = 8192};
  const InlineThresholds thresholds = inline_thresholds(own, peer);
  fuzz::check(thresholds.outgoing >= kMinInlineSize && thresholds.outgoing <= own.send_size &&
                  thresholds.outgoing <= peer.receive_size && thresholds.incoming <= own.receive_size &&
                  thresholds.incoming <= peer.send_size,
              "a threshold above what one side takes");
  fuzz::check(!may_invalidate(own, peer), "we never announced remote invalidation");
  return 0;
}
