// The functions of torch's C shim that act on tensors, but not on their elements.
#pragma once

#include <cstdint>

#include "shim/constants.h"
#include "tensor.h"

using AtenTensorHandle = aotpack::module::Tensor*;
using AtenTensorOpaque = aotpack::module::Tensor;
using AtenGeneratorHandle = void*;
using AOTITorchError = int32_t;
using AOTIProxyExecutorHandle = void*;

#define AOTI_TORCH_EXPORT
#define AOTI_TORCH_SUCCESS 0
#define AOTI_NOINLINE __attribute__((noinline))
#define AOTI_TORCH_ERROR_CODE_CHECK(call) static_cast<void>(call)

inline void aoti_torch_delete_tensor_object(AtenTensorHandle tensor) { aotpack::module::Call::current().drop(tensor); }
inline void aoti_torch_get_data_ptr(AtenTensorHandle tensor, void** out) { *out = tensor->data; }
inline void aoti_torch_get_dim(AtenTensorHandle tensor, int64_t* out) { *out = tensor->rank; }
inline void aoti_torch_get_numel(AtenTensorHandle tensor, int64_t* out) { *out = tensor->numel(); }
inline void aoti_torch_get_sizes(AtenTensorHandle tensor, int64_t** out) { *out = tensor->sizes; }
inline void aoti_torch_get_size(AtenTensorHandle tensor, int64_t dim, int64_t* out) { *out = tensor->sizes[dim]; }
inline void aoti_torch_get_strides(AtenTensorHandle tensor, int64_t** out) { *out = tensor->strides; }
inline void aoti_torch_get_stride(AtenTensorHandle tensor, int64_t dim, int64_t* out) { *out = tensor->strides[dim]; }
inline void aoti_torch_get_dtype(AtenTensorHandle tensor, int32_t* out) { *out = tensor->dtype; }
inline int64_t aotpack_storage_offset(AtenTensorHandle tensor) {
  return (tensor->data - tensor->storage->base) / aotpack::module::element_size(tensor->dtype);
}
inline void aoti_torch_get_storage_offset(AtenTensorHandle tensor, int64_t* out) {
  *out = aotpack_storage_offset(tensor);
}
inline void aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* out) {
  *out = aotpack::module::Call::current().retain(tensor);
}
inline void aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t,
                                     int32_t, AtenTensorHandle* out) {
  *out = aotpack::module::Call::current().empty(static_cast<int32_t>(rank), sizes, strides, dtype);
}
inline void aoti_torch_empty_strided_pinned(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                            int32_t, int32_t, AtenTensorHandle* out) {
  *out = aotpack::module::Call::current().empty(static_cast<int32_t>(rank), sizes, strides, dtype);
}
// `offset` counts from the view that is given, as torch's _reinterpret_tensor does.
inline void aoti_torch__reinterpret_tensor(AtenTensorHandle tensor, int64_t rank, const int64_t* sizes,
                                           const int64_t* strides, int64_t offset, AtenTensorHandle* out) {
  *out = aotpack::module::Call::current().view(tensor, static_cast<int32_t>(rank), sizes, strides,
                                               aotpack_storage_offset(tensor) + offset);
}
inline void aoti_torch_as_strided(AtenTensorHandle tensor, const int64_t* sizes, const int64_t* strides,
                                  AtenTensorHandle* out) {
  *out = aotpack::module::Call::current().view(tensor, tensor->rank, sizes, strides, aotpack_storage_offset(tensor));
}
inline void aoti_torch_create_tensor_from_blob(void* data, int64_t rank, const int64_t* sizes, const int64_t* strides,
                                               int64_t offset, int32_t dtype, int32_t, int32_t, AtenTensorHandle* out) {
  *out =
      aotpack::module::Call::current().borrow(static_cast<char*>(data) + offset * aotpack::module::element_size(dtype),
                                              static_cast<int32_t>(rank), sizes, strides, dtype);
}
void aoti_torch_clone_preserve_strides(AtenTensorHandle tensor, AtenTensorHandle* out);
void aoti_torch_assign_tensors_out(AtenTensorHandle source, AtenTensorHandle* out);

// In generated code, where a tensor is declared that is made next: the place that builds have planned for it.
#define AOTPACK_PLACE(offset, bytes, arena_bytes) aotpack::module::Call::current().place(offset, bytes, arena_bytes);
