// The last level of the processor's cache.
#pragma once

#include <cstdint>

namespace aotpack::kernels {

// Bytes of the third-level cache that the calling thread's core shares; 0 where the processor does not tell.
int64_t last_cache_bytes();

}  // namespace aotpack::kernels
