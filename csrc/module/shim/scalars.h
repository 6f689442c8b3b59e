// Tensors of rank 0 that generated wrappers make of numbers. Included after what defines aotpack_scalar_to_tensor.
#pragma once

#include <cstdint>

#include "shim/handles.h"

namespace torch::aot_inductor {

#define AOTPACK_SCALAR_TO_TENSOR(type, dtype)                                            \
  inline RAIIAtenTensorHandle scalar_to_tensor_handle(type value) {                      \
    return RAIIAtenTensorHandle(aotpack_scalar_to_tensor(value, AOTPACK_DTYPE_##dtype)); \
  }
AOTPACK_SCALAR_TO_TENSOR(float, FLOAT32)
AOTPACK_SCALAR_TO_TENSOR(double, FLOAT64)
AOTPACK_SCALAR_TO_TENSOR(uint8_t, UINT8)
AOTPACK_SCALAR_TO_TENSOR(int8_t, INT8)
AOTPACK_SCALAR_TO_TENSOR(int16_t, INT16)
AOTPACK_SCALAR_TO_TENSOR(int32_t, INT32)
AOTPACK_SCALAR_TO_TENSOR(int64_t, INT64)
AOTPACK_SCALAR_TO_TENSOR(uint16_t, UINT16)
AOTPACK_SCALAR_TO_TENSOR(uint32_t, UINT32)
AOTPACK_SCALAR_TO_TENSOR(uint64_t, UINT64)
AOTPACK_SCALAR_TO_TENSOR(bool, BOOL)
#undef AOTPACK_SCALAR_TO_TENSOR

}  // namespace torch::aot_inductor
