// What the glue between tensors and kernels has in common.
#pragma once

#include <string>

#include "kernels/element_types.h"
#include "tensor.h"

namespace aotpack::module {

// fp32, bf16 or fp16 as the kernels name it; throws Error for other dtypes, and for a half that the build found
// nowhere in the model, for which the module therefore has no code.
inline kernels::DType kernel_dtype(const Tensor* tensor, const char* op) {
  if (tensor->dtype == AOTPACK_DTYPE_FLOAT32) return kernels::DType::f32;
  if (kernels::kHasBf16 && tensor->dtype == AOTPACK_DTYPE_BFLOAT16) return kernels::DType::bf16;
  if (kernels::kHasF16 && tensor->dtype == AOTPACK_DTYPE_FLOAT16) return kernels::DType::f16;
  throw_invalid(std::string(op) + " does not support " + dtype_name(tensor->dtype));
}

// Whether the last dim is dense, as most kernels ask for.
inline bool inner_dense(const Tensor* tensor) {
  return tensor->rank == 0 || tensor->sizes[tensor->rank - 1] <= 1 || tensor->strides[tensor->rank - 1] == 1;
}

// `source` retained when its last dim is dense, else a contiguous copy.
inline Tensor* with_inner_dense(const Tensor* source) {
  return inner_dense(source) ? Call::current().retain(source) : contiguous(source);
}

// A residual whose memory the result may have: one that is added to what is computed of others.
inline const Tensor* replaceable(const Tensor* residual, const Tensor* x) {
  return residual != nullptr && residual->storage != x->storage ? residual : nullptr;
}

inline Tensor* optional(Tensor* const* tensor) { return tensor == nullptr ? nullptr : *tensor; }

}  // namespace aotpack::module
