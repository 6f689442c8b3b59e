// What TorchInductor's generated wrapper expects of torch's C shim and aoti_runtime headers, answered over
// module::Tensor.
//
// The headers under shadow/ have the names that generated code includes and all lead here. Functions keep torch's names
// because generated code calls them, but they are hidden symbols of the module: nothing is resolved against libtorch,
// and both can live in one process. Instead of returning error codes they throw module::Error, which the entry of the
// module turns into the error of the call.
#pragma once

#include <omp.h>

#include <algorithm>
#include <array>
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

#include "tensor.h"
#include "vecmath/erf.h"

using AtenTensorHandle = aotpack::module::Tensor*;
using AtenTensorOpaque = aotpack::module::Tensor;
using AtenGeneratorHandle = void*;
using AOTITorchError = int32_t;
using AOTIProxyExecutorHandle = void*;

#define AOTI_TORCH_EXPORT
#define AOTI_TORCH_SUCCESS 0
#define AOTI_NOINLINE __attribute__((noinline))
#define AOTI_TORCH_ERROR_CODE_CHECK(call) static_cast<void>(call)

// ---- kernels: failures inside parallel regions

// Thrown where generated kernel code finds an index out of range. The build wraps the innermost loop body around such a
// check in AOTPACK_GUARD_BEGIN/END (aotpack/export/backends/cpu/kernel_source.py), so it never leaves the parallel
// region.
struct AotpackKernelFault {
  const char* message;
};

inline void aoti_torch_check(bool condition, const char*, const char*, uint32_t, const char* message) {
  if (!condition) throw AotpackKernelFault{message};
}
inline void aoti_torch_warn(const char*, const char*, uint32_t, const char*) {}
#define AOTI_TORCH_WARN(...) static_cast<void>(0)
#define AOTI_TORCH_CHECK(condition, ...)                                                    \
  if (!(condition)) {                                                                       \
    throw AotpackKernelFault{aotpack_check_message(#condition __VA_OPT__(, ) __VA_ARGS__)}; \
  }
inline const char* aotpack_check_message(const char* condition) { return condition; }
template <typename... Rest>
inline const char* aotpack_check_message(const char*, const char* message, const Rest&...) {
  return message;
}

#define AOTPACK_FAULT_DECLARE std::atomic<const char*> aotpack_fault{nullptr};
#define AOTPACK_GUARD_BEGIN try {
#define AOTPACK_GUARD_END                                          \
  }                                                                \
  catch (const AotpackKernelFault& fault) {                        \
    aotpack_fault.store(fault.message, std::memory_order_relaxed); \
  }
#define AOTPACK_FAULT_RAISE \
  if (const char* message = aotpack_fault.load(std::memory_order_relaxed)) aotpack::module::throw_invalid(message);

// ---- constants

inline int32_t aoti_torch_device_type_cpu() { return 0; }
inline int32_t aoti_torch_device_type_meta() { return 14; }
inline int32_t aoti_torch_layout_strided() { return 0; }
inline int32_t aoti_torch_memory_format_contiguous_format() { return 0; }
inline int32_t aoti_torch_memory_format_preserve_format() { return 1; }
inline int32_t aoti_torch_memory_format_channels_last() { return 2; }
inline int32_t aoti_torch_memory_format_channels_last_3d() { return 3; }
inline int32_t aoti_torch_dtype_uint8() { return AOTPACK_DTYPE_UINT8; }
inline int32_t aoti_torch_dtype_int8() { return AOTPACK_DTYPE_INT8; }
inline int32_t aoti_torch_dtype_int16() { return AOTPACK_DTYPE_INT16; }
inline int32_t aoti_torch_dtype_int32() { return AOTPACK_DTYPE_INT32; }
inline int32_t aoti_torch_dtype_int64() { return AOTPACK_DTYPE_INT64; }
inline int32_t aoti_torch_dtype_float16() { return AOTPACK_DTYPE_FLOAT16; }
inline int32_t aoti_torch_dtype_float32() { return AOTPACK_DTYPE_FLOAT32; }
inline int32_t aoti_torch_dtype_float64() { return AOTPACK_DTYPE_FLOAT64; }
inline int32_t aoti_torch_dtype_complex64() { return AOTPACK_DTYPE_COMPLEX64; }
inline int32_t aoti_torch_dtype_complex128() { return AOTPACK_DTYPE_COMPLEX128; }
inline int32_t aoti_torch_dtype_bool() { return AOTPACK_DTYPE_BOOL; }
inline int32_t aoti_torch_dtype_bfloat16() { return AOTPACK_DTYPE_BFLOAT16; }
inline int32_t aoti_torch_dtype_uint16() { return AOTPACK_DTYPE_UINT16; }
inline int32_t aoti_torch_dtype_uint32() { return AOTPACK_DTYPE_UINT32; }
inline int32_t aoti_torch_dtype_uint64() { return AOTPACK_DTYPE_UINT64; }
inline int32_t aoti_torch_dtype_float8_e4m3fn() { return AOTPACK_DTYPE_FLOAT8_E4M3FN; }
inline int32_t aoti_torch_dtype_float8_e4m3fnuz() { return AOTPACK_DTYPE_FLOAT8_E4M3FNUZ; }
inline int32_t aoti_torch_dtype_float8_e5m2() { return AOTPACK_DTYPE_FLOAT8_E5M2; }
inline int32_t aoti_torch_dtype_float8_e5m2fnuz() { return AOTPACK_DTYPE_FLOAT8_E5M2FNUZ; }

#define CACHE_TORCH_DTYPE(name) \
  [[maybe_unused]] static constexpr int32_t cached_torch_dtype_##name = aotpack_dtype_##name
#define CACHE_TORCH_DEVICE(name) \
  [[maybe_unused]] static constexpr int32_t cached_torch_device_type_##name = aotpack_device_##name
#define CACHE_TORCH_LAYOUT(name) \
  [[maybe_unused]] static constexpr int32_t cached_torch_layout_##name = aotpack_layout_##name
#define CACHE_TORCH_MEMORY_FORMAT(name) \
  [[maybe_unused]] static const int32_t cached_torch_memory_format_##name = aoti_torch_memory_format_##name()
inline constexpr int32_t aotpack_dtype_uint8 = AOTPACK_DTYPE_UINT8, aotpack_dtype_int8 = AOTPACK_DTYPE_INT8,
                         aotpack_dtype_int16 = AOTPACK_DTYPE_INT16, aotpack_dtype_int32 = AOTPACK_DTYPE_INT32,
                         aotpack_dtype_int64 = AOTPACK_DTYPE_INT64, aotpack_dtype_float16 = AOTPACK_DTYPE_FLOAT16,
                         aotpack_dtype_float32 = AOTPACK_DTYPE_FLOAT32, aotpack_dtype_float64 = AOTPACK_DTYPE_FLOAT64,
                         aotpack_dtype_complex64 = AOTPACK_DTYPE_COMPLEX64,
                         aotpack_dtype_complex128 = AOTPACK_DTYPE_COMPLEX128, aotpack_dtype_bool = AOTPACK_DTYPE_BOOL,
                         aotpack_dtype_bfloat16 = AOTPACK_DTYPE_BFLOAT16, aotpack_dtype_uint16 = AOTPACK_DTYPE_UINT16,
                         aotpack_dtype_uint32 = AOTPACK_DTYPE_UINT32, aotpack_dtype_uint64 = AOTPACK_DTYPE_UINT64,
                         aotpack_dtype_float8_e4m3fn = AOTPACK_DTYPE_FLOAT8_E4M3FN,
                         aotpack_dtype_float8_e4m3fnuz = AOTPACK_DTYPE_FLOAT8_E4M3FNUZ,
                         aotpack_dtype_float8_e5m2 = AOTPACK_DTYPE_FLOAT8_E5M2,
                         aotpack_dtype_float8_e5m2fnuz = AOTPACK_DTYPE_FLOAT8_E5M2FNUZ;
inline constexpr int32_t aotpack_device_cpu = 0, aotpack_layout_strided = 0;

// ---- tensors

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

// ---- handles

namespace torch::aot_inductor {

using DeviceStreamType = void*;

class RAIIAtenTensorHandle {
 public:
  RAIIAtenTensorHandle() = default;
  RAIIAtenTensorHandle(AtenTensorHandle handle) : handle_(handle) {}
  RAIIAtenTensorHandle(RAIIAtenTensorHandle&& other) noexcept : handle_(other.release()) {}
  RAIIAtenTensorHandle& operator=(RAIIAtenTensorHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  ~RAIIAtenTensorHandle() { reset(); }
  operator AtenTensorHandle() const { return handle_; }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() {
    AtenTensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }
  void reset() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
    handle_ = nullptr;
  }
  int64_t size(int64_t d) const { return handle_->sizes[d]; }
  int64_t stride(int64_t d) const { return handle_->strides[d]; }
  int64_t storage_offset() const { return aotpack_storage_offset(handle_); }
  void* data_ptr() const { return handle_->data; }
  int64_t* sizes() const { return handle_->sizes; }
  int64_t* strides() const { return handle_->strides; }

 private:
  AtenTensorHandle handle_ = nullptr;
};
using MaybeOwningAtenTensorHandle = RAIIAtenTensorHandle;

// A constant: not owned by whoever uses it.
class ConstantHandle {
 public:
  ConstantHandle() = default;
  explicit ConstantHandle(AtenTensorHandle handle) : handle_(handle) {}
  operator AtenTensorHandle() const { return handle_; }
  AtenTensorHandle get() const { return handle_; }
  int64_t size(int64_t d) const { return handle_->sizes[d]; }
  int64_t stride(int64_t d) const { return handle_->strides[d]; }
  int64_t storage_offset() const { return aotpack_storage_offset(handle_); }
  void* data_ptr() const { return handle_->data; }
  int64_t* sizes() const { return handle_->sizes; }
  int64_t* strides() const { return handle_->strides; }
  void reset() {}

 private:
  AtenTensorHandle handle_ = nullptr;
};

template <typename Handle>
void* get_data_ptr_wrapper(const Handle& handle) {
  return handle.data_ptr();
}
template <typename Handle>
const Handle& unwrap_raii_handle_if_needed(const Handle& handle) {
  return handle;
}
inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(AtenTensorHandle handle) {
  return RAIIAtenTensorHandle(handle);
}
inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(RAIIAtenTensorHandle&& handle) { return std::move(handle); }
inline const ConstantHandle& wrap_with_raii_handle_if_needed(const ConstantHandle& handle) { return handle; }
template <typename Handle>
const Handle& copy_arrayref_tensor_to_tensor(const Handle& handle) {
  return handle;
}
template <typename T>
T& temporary_reference(T&& value) {
  return value;
}
inline AtenTensorHandle reinterpret_tensor_wrapper(AtenTensorHandle tensor, int64_t rank, const int64_t* sizes,
                                                   const int64_t* strides, int64_t offset) {
  AtenTensorHandle out;
  aoti_torch__reinterpret_tensor(tensor, rank, sizes, strides, offset, &out);
  return out;
}

// Generated code asserts what the runtime has already checked or what holds by construction; the build leaves those
// calls switched off.
inline bool _check_aoti_runtime_check_inputs_env() { return false; }
inline void assert_size_stride(AtenTensorHandle, std::initializer_list<int64_t>, std::initializer_list<int64_t>,
                               const char* = nullptr) {}
inline void assert_alignment(AtenTensorHandle, int64_t, const char* = nullptr) {}

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

class AOTInductorModelKernelsBase {};

// What is left of AOTInductor's model: the generated run_impl is a member of it.
class AOTInductorModel {
 public:
  explicit AOTInductorModel(const std::vector<ConstantHandle>& constants) : constants_(&constants) {}
  void run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles, DeviceStreamType stream,
                AOTIProxyExecutorHandle proxy_executor);

 private:
  const std::vector<ConstantHandle>* constants_;
  int32_t device_idx_ = -1;
};

inline std::vector<RAIIAtenTensorHandle> steal_from_raw_handles_to_raii_handles(AtenTensorHandle* handles,
                                                                                size_t count) {
  std::vector<RAIIAtenTensorHandle> result;
  result.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    result.emplace_back(handles[i]);
    handles[i] = nullptr;
  }
  return result;
}

}  // namespace torch::aot_inductor

// Sizes that generated wrappers compute, by Python's rules. Kernels have torch's own functions of these names, which
// answer 0 for a division by zero; where the model's sizes are computed, Python would have raised.
namespace c10 {

inline int64_t div_floor_integer(int64_t a, int64_t b) {
  if (b == 0) aotpack::module::throw_invalid("division by zero while the model computes a size");
  if (b == -1) return static_cast<int64_t>(-static_cast<uint64_t>(a));
  const int64_t quotient = a / b;
  return quotient - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
}
inline int64_t div_mod(int64_t a, int64_t b) {
  if (b == 0) aotpack::module::throw_invalid("division by zero while the model computes a size");
  if (b == -1) return 0;
  const int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}
inline double div_floor_floating(double a, double b) {
  if (b == 0) aotpack::module::throw_invalid("division by zero while the model computes a number");
  return std::floor(a / b);
}

}  // namespace c10

inline int64_t align(int64_t nbytes) { return (nbytes + 63) & -64; }
