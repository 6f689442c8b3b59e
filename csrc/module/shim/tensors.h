// The functions of torch's C shim that act on tensors.
#pragma once

#include <cstdint>
#include <cstring>

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
inline void aoti_torch_get_device_type(AtenTensorHandle, int32_t* out) { *out = 0; }
inline void aoti_torch_get_device_index(AtenTensorHandle, int32_t* out) { *out = -1; }
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
void aoti_torch_cpu_view_dtype(AtenTensorHandle tensor, int32_t dtype, AtenTensorHandle* out);
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
void aoti_torch_clone(AtenTensorHandle tensor, AtenTensorHandle* out);
void aoti_torch_clone_preserve_strides(AtenTensorHandle tensor, AtenTensorHandle* out);
// Copies with broadcasting and conversion of dtype.
void aoti_torch_copy_(AtenTensorHandle destination, AtenTensorHandle source, int32_t non_blocking);
void aoti_torch_assign_tensors_out(AtenTensorHandle source, AtenTensorHandle* out);
inline void aoti_torch_zero_(AtenTensorHandle tensor) {
  if (!tensor->is_contiguous()) aotpack::module::throw_invalid("zero_ of a non-contiguous tensor");
  std::memset(tensor->data, 0, static_cast<size_t>(tensor->numel() * aotpack::module::element_size(tensor->dtype)));
}

#define AOTPACK_ITEM(name, type)                                                                         \
  inline void aoti_torch_item_##name(AtenTensorHandle tensor, type* out) { *out = *tensor->as<type>(); } \
  inline AtenTensorHandle aotpack_scalar_to_tensor(type value, int32_t dtype) {                          \
    AtenTensorHandle tensor = aotpack::module::Call::current().empty(0, nullptr, nullptr, dtype);        \
    *tensor->as<type>() = value;                                                                         \
    return tensor;                                                                                       \
  }                                                                                                      \
  inline void aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle* out) {                    \
    *out = aotpack_scalar_to_tensor(value, aotpack_dtype_##name);                                        \
  }
AOTPACK_ITEM(float32, float)
AOTPACK_ITEM(float64, double)
AOTPACK_ITEM(uint8, uint8_t)
AOTPACK_ITEM(int8, int8_t)
AOTPACK_ITEM(int16, int16_t)
AOTPACK_ITEM(int32, int32_t)
AOTPACK_ITEM(int64, int64_t)
AOTPACK_ITEM(uint16, uint16_t)
AOTPACK_ITEM(uint32, uint32_t)
AOTPACK_ITEM(uint64, uint64_t)
AOTPACK_ITEM(bool, bool)
#undef AOTPACK_ITEM

// Halves come out as types of torch's headers, which generated code includes where it needs them.
template <typename Half>
void aoti_torch_item_bfloat16(AtenTensorHandle tensor, Half* out) {
  static_assert(sizeof(Half) == 2);
  std::memcpy(out, tensor->data, sizeof(Half));
}
template <typename Half>
void aoti_torch_item_float16(AtenTensorHandle tensor, Half* out) {
  aoti_torch_item_bfloat16(tensor, out);
}
