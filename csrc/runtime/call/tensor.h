// Result tensors: DLPack objects that own their memory.
#pragma once

#include "aotpack/dlpack.h"
#include "base/dtype.h"
#include "hal/pool.h"

namespace aotpack::runtime {

// A new tensor over `block`, one reference of which it takes over; both it and the object itself come from `pool` and
// go back there when the tensor is released, on any thread, also after everyone else has let go of the pool. NULL when
// there is no memory; then the block still belongs to the caller.
DLManagedTensorVersioned* make_tensor(Pool* pool, void* block, void* data, const DType& dtype, int32_t rank,
                                      const int64_t* sizes, const int64_t* strides) noexcept;

}  // namespace aotpack::runtime
