// What most generated wrappers include.
//
// The headers of csrc/module/shim take GCC 0.4 seconds to read, most of it the standard library, and code that destroys
// each handle where a call throws takes longer to compile than all of the rest. This header has what wrappers commonly
// use, under the same names, without a header of the standard library. It is compiled with -fno-exceptions: what
// operators throw passes through the generated function, and the Call behind it takes back whatever tensors hold. So
// nothing here owns anything but tensors. The build chooses by the words of a wrapper
// (aotpack/export/backends/cpu/wrapper_words.py); what does not compile with this header gets the others.
#pragma once

#ifdef AOTPACK_WHOLE_WRAPPER
#include "entry.h"
#include "shim.h"
namespace aotpack_std = std;
#else

#include <stddef.h>
#include <stdint.h>

#include "aotpack/module_abi.h"
#include "import_names.h"
#include "shim/constants.h"
#include "table.h"
#include "tensor_data.h"

using AtenTensorHandle = aotpack::module::Tensor*;
using AOTIProxyExecutorHandle = void*;

#define AOTI_TORCH_ERROR_CODE_CHECK(call) static_cast<void>(call)

// In tensor.cpp and copy.cpp.
void aoti_torch_clone(AtenTensorHandle tensor, AtenTensorHandle* out);
void aoti_torch_copy_(AtenTensorHandle destination, AtenTensorHandle source, int32_t non_blocking);
void aoti_torch_cpu_view_dtype(AtenTensorHandle tensor, int32_t dtype, AtenTensorHandle* out);

namespace aotpack::generated {

// In wrapper.cpp: the current call's functions of these names.
void place(int64_t offset, int64_t bytes, int64_t arena_bytes);
void drop(AtenTensorHandle tensor);
AtenTensorHandle retain(AtenTensorHandle tensor);
AtenTensorHandle empty(int32_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype);
AtenTensorHandle view(AtenTensorHandle tensor, int32_t rank, const int64_t* sizes, const int64_t* strides,
                      int64_t offset);

}  // namespace aotpack::generated

#define AOTPACK_PLACE(offset, bytes, arena_bytes) aotpack::generated::place(offset, bytes, arena_bytes);

// Other definitions than those of the shim: the names differ for the linker.
inline namespace aotpack_generated {

inline void aoti_torch_empty_strided(int64_t rank, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t,
                                     int32_t, AtenTensorHandle* out) {
  *out = aotpack::generated::empty(static_cast<int32_t>(rank), sizes, strides, dtype);
}
inline void aoti_torch_new_tensor_handle(AtenTensorHandle tensor, AtenTensorHandle* out) {
  *out = aotpack::generated::retain(tensor);
}

}  // namespace aotpack_generated

namespace aotpack_std {

template <typename T>
struct NoReference {
  using type = T;
};
template <typename T>
struct NoReference<T&> {
  using type = T;
};
template <typename T>
struct NoReference<T&&> {
  using type = T;
};

template <typename T>
constexpr typename NoReference<T>::type&& move(T&& value) noexcept {
  return static_cast<typename NoReference<T>::type&&>(value);
}

// Arguments that are lists of numbers.
template <typename T, size_t size>
struct array {
  T elements[size];
  constexpr const T* cbegin() const { return elements; }
};

}  // namespace aotpack_std

namespace torch::aot_inductor {

inline namespace aotpack_generated {

using DeviceStreamType = void*;

// What generated code asks of a tensor, owned or not.
class TensorHandle {
 public:
  operator AtenTensorHandle() const { return handle_; }
  AtenTensorHandle get() const { return handle_; }
  void* data_ptr() const { return handle_->data; }
  int64_t* sizes() const { return handle_->sizes; }
  int64_t* strides() const { return handle_->strides; }

 protected:
  TensorHandle() = default;
  explicit TensorHandle(AtenTensorHandle handle) : handle_(handle) {}

  AtenTensorHandle handle_ = nullptr;
};

class RAIIAtenTensorHandle : public TensorHandle {
 public:
  RAIIAtenTensorHandle() = default;
  RAIIAtenTensorHandle(AtenTensorHandle handle) : TensorHandle(handle) {}
  RAIIAtenTensorHandle(RAIIAtenTensorHandle&& other) noexcept : TensorHandle(other.release()) {}
  RAIIAtenTensorHandle& operator=(RAIIAtenTensorHandle&& other) noexcept {
    if (this != &other) {
      reset();
      handle_ = other.release();
    }
    return *this;
  }
  ~RAIIAtenTensorHandle() { reset(); }
  AtenTensorHandle release() {
    AtenTensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }
  void reset() {
    if (handle_ != nullptr) aotpack::generated::drop(handle_);
    handle_ = nullptr;
  }
};

// A constant: not owned by its handle.
class ConstantHandle : public TensorHandle {
 public:
  explicit ConstantHandle(AtenTensorHandle handle) : TensorHandle(handle) {}
};

inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(AtenTensorHandle handle) {
  return RAIIAtenTensorHandle(handle);
}
inline RAIIAtenTensorHandle wrap_with_raii_handle_if_needed(RAIIAtenTensorHandle&& handle) {
  return aotpack_std::move(handle);
}
inline const ConstantHandle& wrap_with_raii_handle_if_needed(const ConstantHandle& handle) { return handle; }
template <typename T>
T& temporary_reference(T&& value) {
  return value;
}
inline AtenTensorHandle reinterpret_tensor_wrapper(AtenTensorHandle tensor, int64_t rank, const int64_t* sizes,
                                                   const int64_t* strides, int64_t offset) {
  return aotpack::generated::view(tensor, static_cast<int32_t>(rank), sizes, strides, offset);
}

// The inputs: each is read once, which takes it out of the array.
struct Inputs {
  AtenTensorHandle* handles;

  RAIIAtenTensorHandle operator[](size_t index) const {
    AtenTensorHandle handle = handles[index];
    handles[index] = nullptr;
    return RAIIAtenTensorHandle(handle);
  }
  void clear() {}
};
inline Inputs steal_from_raw_handles_to_raii_handles(AtenTensorHandle* handles, size_t) { return {handles}; }

// The constants, an array.
struct Constants {
  const ConstantHandle* first;

  const Constants* operator->() const { return this; }
  const ConstantHandle& at(size_t index) const { return first[index]; }
};

// What is left of AOTInductor's model: the generated run_impl is a member of it.
class AOTInductorModel {
 public:
  explicit AOTInductorModel(const ConstantHandle* constants) : constants_{constants} {}
  void run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles, DeviceStreamType stream,
                AOTIProxyExecutorHandle proxy_executor);

 private:
  Constants constants_;
  int32_t device_idx_ = -1;
};

}  // namespace aotpack_generated

}  // namespace torch::aot_inductor

namespace aotpack::generated {

using Function = void (*)(const torch::aot_inductor::ConstantHandle* constants, AtenTensorHandle* inputs,
                          AtenTensorHandle* outputs, void* stream);

// Calls the generated function; the status of the module. In wrapper.cpp.
int32_t run(const aotpack_module_call* call, uint32_t inputs, uint32_t outputs, uint32_t constants, Function function);

inline void run_model(const torch::aot_inductor::ConstantHandle* constants, AtenTensorHandle* inputs,
                      AtenTensorHandle* outputs, void* stream) {
  torch::aot_inductor::AOTInductorModel(constants).run_impl(inputs, outputs, stream, nullptr);
}

}  // namespace aotpack::generated

#define AOTPACK_DEFINE_MODULE(target_name, inputs, outputs, constants)                                \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                                \
    return aotpack::generated::run(call, inputs, outputs, constants, aotpack::generated::run_model);  \
  }                                                                                                   \
  AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, aotpack::module::kImportNames, \
                              aotpack_module_run, 0, 0, nullptr)

#endif
