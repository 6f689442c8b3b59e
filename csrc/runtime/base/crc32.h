// CRC-32 as ZIP uses it (polynomial 0xEDB88320, reflected).
#pragma once

#include "base/bytes.h"

namespace aotpack::runtime {

// Of `before`, whose CRC is `crc`, followed by `data`.
uint32_t crc32(Bytes data, uint32_t crc = 0) noexcept;

}  // namespace aotpack::runtime
