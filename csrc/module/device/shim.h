// What TorchInductor's generated wrapper for CUDA expects of torch's and CUDA's headers, answered over module::Tensor
// and the imports of the runtime: see module/shim.h.
#pragma once

// Generated code relies on these.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "device/device.h"
#include "shim/arithmetic.h"
#include "shim/constants.h"
#include "shim/failures.h"
#include "shim/handles.h"
#include "shim/tensors.h"

// Half precisions, as generated code reads numbers of them.
namespace at {

struct BFloat16 {
  uint16_t bits;
  operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};
struct Half {
  uint16_t bits;
  operator float() const {
    const uint32_t sign = uint32_t{bits} >> 15 << 31;
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float magnitude = exponent == 31  ? std::bit_cast<float>(0x7f800000u | uint32_t(mantissa) << 13)
                            : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                            : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
  }
};

}  // namespace at

// In the namespace of generated code, which finds them there: kernels of the host, which a module may contain too, have
// others of these names (shim/host_data.h).
namespace torch::aot_inductor {

inline void aoti_torch_get_device_type(AtenTensorHandle tensor, int32_t* out) {
  *out = tensor->storage->on_host ? aotpack_device_cpu : aotpack_device_cuda;
}
inline void aoti_torch_get_device_index(AtenTensorHandle, int32_t* out) {
  *out = aotpack::module::Call::current().arguments().device.index;
}
void aoti_torch_zero_(AtenTensorHandle tensor);
// Memory of the device, or of the host for a single number that stays there.
inline void aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype,
                                     int32_t device_type, int32_t, AtenTensorHandle* out) {
  aotpack::module::Call& call = aotpack::module::Call::current();
  *out = device_type == aotpack_device_cpu ? call.empty_on_host(static_cast<int32_t>(rank), sizes, strides, dtype)
                                           : call.empty(static_cast<int32_t>(rank), sizes, strides, dtype);
}
// Between the host and the device, of tensors that are laid out alike.
void aoti_torch_copy_(AtenTensorHandle destination, AtenTensorHandle source, int32_t non_blocking);
inline void aoti_torch_assign_tensors_out(AtenTensorHandle source, AtenTensorHandle* out) {
  *out = aotpack::module::Call::current().retain(source);
}
void aoti_torch_clone_preserve_strides(AtenTensorHandle tensor, AtenTensorHandle* out);
// Seeds of random operators: values of the host.
void aoti_torch_cuda_randint_low_out(AtenTensorHandle out, int64_t low, int64_t high, const int64_t* sizes,
                                     int64_t rank);

#define AOTPACK_ITEM(name, type)                                                                  \
  inline void aoti_torch_item_##name(AtenTensorHandle tensor, type* out) {                        \
    aotpack::module::read(tensor, out, sizeof(type));                                             \
  }                                                                                               \
  inline AtenTensorHandle aotpack_scalar_to_tensor(type value, int32_t dtype) {                   \
    AtenTensorHandle tensor = aotpack::module::Call::current().empty(0, nullptr, nullptr, dtype); \
    aotpack::module::upload(tensor->data, &value, sizeof(type));                                  \
    return tensor;                                                                                \
  }                                                                                               \
  inline void aoti_torch_scalar_to_tensor_##name(type value, AtenTensorHandle* out) {             \
    *out = aotpack_scalar_to_tensor(value, aotpack_dtype_##name);                                 \
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

template <typename Half>
void aoti_torch_item_bfloat16(AtenTensorHandle tensor, Half* out) {
  static_assert(sizeof(Half) == 2);
  aotpack::module::read(tensor, out, sizeof(Half));
}
template <typename Half>
void aoti_torch_item_float16(AtenTensorHandle tensor, Half* out) {
  aoti_torch_item_bfloat16(tensor, out);
}

}  // namespace torch::aot_inductor

#include "shim/scalars.h"

// Names of CUDA's headers.
using CUdeviceptr = uint64_t;
using cudaStream_t = void*;

namespace torch::aot_inductor {

// The runtime has made the device and the stream of the call current.
struct AOTICudaGuard {
  explicit AOTICudaGuard(int32_t) {}
  void set_index(int32_t) {}
};
struct AOTICudaStreamGuard {
  AOTICudaStreamGuard(cudaStream_t, int32_t) {}
};

// Kernels are constants of the generated source, not members of a table.
struct NoKernelTable {};

template <size_t N>
void launchKernel(const aotpack::module::Kernel& kernel, uint32_t x, uint32_t y, uint32_t z, uint32_t warps,
                  uint32_t shared_bytes, void* (&arguments)[N], cudaStream_t) {
  aotpack::module::launch(kernel, {x, y, z}, 32 * warps, shared_bytes, arguments, N);
}

// The name of TorchInductor for arguments of kernels that read blocks of matrices.
using StableTMADescriptor = aotpack::module::MatrixDescriptor;

// A constant as generated code has inputs.
inline RAIIAtenTensorHandle retain_constant(const std::vector<ConstantHandle>& constants, size_t index) {
  return RAIIAtenTensorHandle(aotpack::module::Call::current().retain(constants[index].get()));
}

}  // namespace torch::aot_inductor
