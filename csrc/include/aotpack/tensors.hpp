// Part of aotpack.hpp: errors, and tensors of the caller and of the library.
#pragma once

#include <algorithm>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "aotpack/aotpack.h"

namespace aotpack {

// An error with a code() and a message, what().
class Error : public std::runtime_error {
 public:
  Error(aotpack_code code, const std::string& message)
      : std::runtime_error(std::string(aotpack_code_name(code)) + ": " + message), code_(code) {}
  aotpack_code code() const noexcept { return code_; }

 private:
  aotpack_code code_;
};

namespace detail {

// Throws the status that a C function returned.
inline void check(aotpack_status* status) {
  if (status == nullptr) return;
  const std::unique_ptr<aotpack_status, void (*)(aotpack_status*)> owner(status, aotpack_status_release);
  throw Error(aotpack_status_code(status), aotpack_status_message(status));
}

// A copy of a struct that the library filled, which may know fewer members than this header or more.
template <typename Info>
Info copy_info(const Info* info) noexcept {
  Info copy{};
  std::memcpy(&copy, info, std::min(info->struct_size, sizeof copy));
  copy.struct_size = std::min(info->struct_size, sizeof copy);
  return copy;
}

}  // namespace detail

inline bool same_device(DLDevice a, DLDevice b) noexcept {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

// The DLPack type of a C++ type; undefined for other types. float16, bfloat16 and float8 have no C++17 type; use
// kFloat16 and the other constants.
template <typename T>
constexpr DLDataType dtype_of() {
  constexpr uint8_t bits = static_cast<uint8_t>(8 * sizeof(T));
  if constexpr (std::is_same_v<T, bool>) {
    return DLDataType{kDLBool, bits, 1};
  } else if constexpr (std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>) {
    return DLDataType{kDLComplex, bits, 1};
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    return DLDataType{kDLFloat, bits, 1};
  } else {
    static_assert(std::is_integral_v<T>, "not an element type");
    return DLDataType{std::is_signed_v<T> ? kDLInt : kDLUInt, bits, 1};
  }
}
inline constexpr DLDataType kFloat16{kDLFloat, 16, 1};
inline constexpr DLDataType kBFloat16{kDLBfloat, 16, 1};
// By number: if the program uses a dlpack.h older than DLPack 1.1, it has no names for these.
inline constexpr DLDataType kFloat8E4M3FN{10, 8, 1};
inline constexpr DLDataType kFloat8E4M3FNUZ{11, 8, 1};
inline constexpr DLDataType kFloat8E5M2{12, 8, 1};
inline constexpr DLDataType kFloat8E5M2FNUZ{13, 8, 1};

inline bool same_dtype(DLDataType a, DLDataType b) noexcept {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

using Shape = std::vector<int64_t>;

// A non-owning view of memory that is only read, as a tensor: an input. Cheap to copy; the data must outlive it.
class TensorView {
 public:
  // `data` points to element (0, ..., 0); `strides` count elements, empty for contiguous; `device` is where the data
  // are.
  template <typename T>
  TensorView(const T* data, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : TensorView(data, dtype_of<T>(), std::move(shape), std::move(strides), device) {}
  TensorView(const void* data, DLDataType dtype, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : data_(data), dtype_(dtype), shape_(std::move(shape)), strides_(std::move(strides)), device_(device) {
    if (!strides_.empty() && strides_.size() != shape_.size()) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "shape and strides differ in length");
    }
  }

  // Whether this was made as a MutableTensorView.
  bool is_mutable() const noexcept { return is_mutable_; }

  // Valid as long as this view is neither changed nor destroyed. DLPack has no type for memory that is only read:
  // where is_mutable() is false, `data` must not be written to.
  DLTensor dl() const noexcept {
    DLTensor tensor{};
    tensor.data = const_cast<void*>(data_);
    tensor.device = device_;
    tensor.ndim = static_cast<int32_t>(shape_.size());
    tensor.dtype = dtype_;
    tensor.shape = const_cast<int64_t*>(shape_.data());
    tensor.strides = strides_.empty() ? nullptr : const_cast<int64_t*>(strides_.data());
    return tensor;
  }

 private:
  friend class MutableTensorView;
  const void* data_;
  DLDataType dtype_;
  Shape shape_;
  Shape strides_;
  DLDevice device_;
  bool is_mutable_ = false;
};

// The same for memory that is written to: a buffer for an output, or an input that the model writes to.
class MutableTensorView : public TensorView {
 public:
  template <typename T, typename = std::enable_if_t<!std::is_const_v<T>>>
  MutableTensorView(T* data, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : MutableTensorView(data, dtype_of<T>(), std::move(shape), std::move(strides), device) {}
  MutableTensorView(void* data, DLDataType dtype, Shape shape, Shape strides = {}, DLDevice device = {kDLCPU, 0})
      : TensorView(data, dtype, std::move(shape), std::move(strides), device) {
    is_mutable_ = true;
  }
};

// A result. Owns its memory; movable.
class Tensor {
 public:
  Tensor() noexcept = default;
  // Takes ownership.
  explicit Tensor(DLManagedTensorVersioned* managed) noexcept : managed_(managed) {}

  const DLTensor& dl() const noexcept { return managed_->dl_tensor; }
  DLDataType dtype() const noexcept { return dl().dtype; }
  DLDevice device() const noexcept { return dl().device; }
  size_t rank() const noexcept { return static_cast<size_t>(dl().ndim); }
  int64_t size(size_t dim) const noexcept { return dl().shape[dim]; }
  int64_t stride(size_t dim) const noexcept { return dl().strides[dim]; }
  Shape shape() const { return Shape(dl().shape, dl().shape + dl().ndim); }
  Shape strides() const { return Shape(dl().strides, dl().strides + dl().ndim); }
  int64_t numel() const noexcept {
    int64_t count = 1;
    for (size_t i = 0; i < rank(); ++i) count *= size(i);
    return count;
  }

  // Element (0, ..., 0). Throws unless T is the tensor's element type.
  template <typename T>
  T* data() const {
    if (!same_dtype(dtype(), dtype_of<std::remove_const_t<T>>())) {
      throw Error(AOTPACK_INVALID_ARGUMENT, "data<T>(): T is not the tensor's element type");
    }
    return static_cast<T*>(raw_data());
  }
  // The only element, e.g. of a scalar. Throws unless there is exactly one element of type T, in memory of the host.
  template <typename T>
  T item() const {
    if (numel() != 1) throw Error(AOTPACK_INVALID_ARGUMENT, "item<T>(): the tensor has not exactly one element");
    if (device().device_type != kDLCPU) throw Error(AOTPACK_INVALID_ARGUMENT, "item<T>(): the tensor is on a device");
    return *data<const T>();
  }
  void* raw_data() const noexcept { return static_cast<char*>(dl().data) + dl().byte_offset; }

  MutableTensorView view() const { return MutableTensorView(raw_data(), dtype(), shape(), strides(), device()); }

  // Transfers ownership of the DLPack object, e.g. to another library.
  DLManagedTensorVersioned* release() noexcept { return managed_.release(); }
  explicit operator bool() const noexcept { return managed_ != nullptr; }

 private:
  struct Deleter {
    void operator()(DLManagedTensorVersioned* managed) const noexcept { managed->deleter(managed); }
  };
  std::unique_ptr<DLManagedTensorVersioned, Deleter> managed_;
};

// Tensors by name: weights, or a state.
using NamedViews = std::vector<std::pair<std::string, TensorView>>;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

namespace detail {

// The arrays that the C functions accept for names and tensors.
class NamedPointers {
 public:
  explicit NamedPointers(const NamedViews& given) {
    tensors_.reserve(given.size());
    for (const auto& [name, view] : given) {
      names_.push_back(name.c_str());
      pointers_.push_back(&tensors_.emplace_back(view.dl()));
    }
  }
  const char* const* names() const noexcept { return names_.data(); }
  const DLTensor* const* tensors() const noexcept { return pointers_.data(); }
  size_t size() const noexcept { return names_.size(); }

 private:
  std::vector<const char*> names_;
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
};

// The array of pointers that the C functions accept.
class Pointers {
 public:
  template <typename View>
  explicit Pointers(const std::vector<View>& views) {
    tensors_.reserve(views.size());
    pointers_.reserve(views.size());
    for (const View& view : views) pointers_.push_back(&tensors_.emplace_back(view.dl()));
  }
  const DLTensor* const* data() const noexcept { return pointers_.data(); }
  size_t size() const noexcept { return pointers_.size(); }

 private:
  std::vector<DLTensor> tensors_;
  std::vector<const DLTensor*> pointers_;
};

// A C string ends at the first null character.
inline void check_path(const std::string& path) {
  if (path.find('\0') != std::string::npos) {
    throw Error(AOTPACK_INVALID_ARGUMENT, "the path holds a zero character");
  }
}

}  // namespace detail

}  // namespace aotpack
