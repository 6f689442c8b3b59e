// Handles of tensors that generated wrappers hold, and the model whose member run_impl they define.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "shim/tensors.h"

namespace torch::aot_inductor {

using DeviceStreamType = void*;

// What generated code asks of a tensor, owned or not.
class TensorHandle {
 public:
  operator AtenTensorHandle() const { return handle_; }
  AtenTensorHandle get() const { return handle_; }
  int64_t size(int64_t d) const { return handle_->sizes[d]; }
  int64_t stride(int64_t d) const { return handle_->strides[d]; }
  int64_t storage_offset() const { return aotpack_storage_offset(handle_); }
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
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
    handle_ = nullptr;
  }
};
using MaybeOwningAtenTensorHandle = RAIIAtenTensorHandle;

// A constant: not owned by its handle.
class ConstantHandle : public TensorHandle {
 public:
  ConstantHandle() = default;
  explicit ConstantHandle(AtenTensorHandle handle) : TensorHandle(handle) {}
  void reset() {}
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

// What is left of AOTInductor's model: the generated run_impl is a member of it.
class AOTInductorModel {
 public:
  explicit AOTInductorModel(const std::vector<ConstantHandle>& constants) : constants_(&constants) {}
  void run_impl(AtenTensorHandle* input_handles, AtenTensorHandle* output_handles, DeviceStreamType stream,
                AOTIProxyExecutorHandle proxy_executor);

 private:
  const std::vector<ConstantHandle>* constants_;
  int32_t device_idx_ = -1;
  std::optional<std::string> cubin_dir_;
};

}  // namespace torch::aot_inductor
