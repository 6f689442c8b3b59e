// The weights that the next operator reads, to have them near before it begins.
#pragma once

#include "types.h"

namespace aotpack::kernels {

struct Weights {
  const char* data;
  int64_t bytes;
};

// Notes that the calling thread's operator reads these weights, and returns those that its next operator read the last
// time; none where that is not known. They may be gone: good for prefetches alone, which do not fault.
Weights weights_after(const void* data, int64_t bytes);

// What a thread asks for: of weights that are shared evenly, as much as stays in its second-level cache beside the
// operator's own data.
Weights share_ahead(const Weights& weights, int thread, int threads);

}  // namespace aotpack::kernels
