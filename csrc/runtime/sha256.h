// SHA-256 (FIPS 180-4), with the processor's SHA instructions where there are any.
#ifndef AOTPACK_RUNTIME_SHA256_H_
#define AOTPACK_RUNTIME_SHA256_H_

#include <array>
#include <string>

#include "bytes.h"

namespace aotpack::runtime {

using Digest = std::array<uint8_t, 32>;

Digest sha256(Bytes data) noexcept;

// The portable implementation, whatever the host has; for tests.
Digest sha256_portable(Bytes data) noexcept;

// 64 lowercase hex digits.
std::string to_hex(const Digest& digest);
// False unless `text` is exactly 64 lowercase hex digits.
bool from_hex(std::string_view text, Digest* out) noexcept;

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_SHA256_H_
