// SHA-256 (FIPS 180-4), with the processor's SHA instructions where there are any.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace aotpack::runtime {

using Digest = std::array<uint8_t, 32>;

Digest sha256(Bytes data) noexcept;

// Piece by piece.
class Sha256 {
 public:
  void add(Bytes data) noexcept;
  // Once, at the end.
  Digest finish() noexcept;

 private:
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint64_t size_ = 0;
  uint8_t rest_[64];  // the size_ % 64 bytes that make no block yet
};

// The portable implementation, whatever the host has; for tests.
Digest sha256_portable(Bytes data) noexcept;

// 64 lowercase hex digits.
std::string to_hex(const Digest& digest);
// False unless `text` is exactly 64 lowercase hex digits.
bool from_hex(std::string_view text, Digest* out) noexcept;

}  // namespace aotpack::runtime
