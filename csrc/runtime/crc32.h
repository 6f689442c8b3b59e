// CRC-32 as ZIP uses it (polynomial 0xEDB88320, reflected).
#ifndef AOTPACK_RUNTIME_CRC32_H_
#define AOTPACK_RUNTIME_CRC32_H_

#include "bytes.h"

namespace aotpack::runtime {

// Of `before`, whose CRC is `crc`, followed by `data`.
uint32_t crc32(Bytes data, uint32_t crc = 0) noexcept;

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_CRC32_H_
