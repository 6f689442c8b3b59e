// The functions of torch's C shim that act on elements of tensors, for modules that run on the host.
#pragma once

#include <cstdint>
#include <cstring>

#include "shim/tensors.h"

inline void aoti_torch_get_device_type(AtenTensorHandle, int32_t* out) { *out = 0; }
inline void aoti_torch_get_device_index(AtenTensorHandle, int32_t* out) { *out = -1; }
void aoti_torch_cpu_view_dtype(AtenTensorHandle tensor, int32_t dtype, AtenTensorHandle* out);
void aoti_torch_clone(AtenTensorHandle tensor, AtenTensorHandle* out);
// Copies with broadcasting and conversion of dtype.
void aoti_torch_copy_(AtenTensorHandle destination, AtenTensorHandle source, int32_t non_blocking);
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
