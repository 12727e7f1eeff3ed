// SPDX-License-Identifier: Apache-2.0
#pragma once

// SHA-256 of octets that come one block after another.

#include <fmt/format.h>
#include <openssl/evp.h>

#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace rodeo::apps {

class Sha256Stream {
 public:
  Sha256Stream() : digest_(EVP_MD_CTX_new()) { restart(); }

  void restart() { ok_ = digest_ != nullptr && EVP_DigestInit_ex(digest_.get(), EVP_sha256(), nullptr) == 1; }
  void update(std::span<const std::byte> octets) {
    ok_ = ok_ && EVP_DigestUpdate(digest_.get(), octets.data(), octets.size()) == 1;
  }
  /// Lower-case hexadecimal; empty when the library failed. Ends the stream.
  [[nodiscard]] std::string hex() {
    std::array<unsigned char, 32> hash{};
    ok_ = ok_ && EVP_DigestFinal_ex(digest_.get(), hash.data(), nullptr) == 1;
    std::string text;
    for (const unsigned char octet : hash) text += fmt::format("{:02x}", octet);
    return ok_ ? text : std::string();
  }

 private:
  struct Free {
    void operator()(EVP_MD_CTX* digest) const noexcept { EVP_MD_CTX_free(digest); }
  };
  std::unique_ptr<EVP_MD_CTX, Free> digest_;
  bool ok_ = false;
};

}  // namespace rodeo::apps
