// Between generated code and kernels of the user (aotpack/operator.h).
//
// The build writes, for each custom operator with a kernel, a function that generated code calls and that hands the
// arguments on by `run_custom` (aotpack/export/backends/cpu/custom_glue.py).
#pragma once

#include <array>
#include <exception>
#include <initializer_list>
#include <new>
#include <vector>

#include "aotpack/operator.h"
#include "shim.h"

namespace aotpack::module {

// The Call that a kernel sees. Owns what the kernel makes.
class CustomCall final : public op::Call {
 public:
  explicit CustomCall(const char* name) : name_(name) {}
  ~CustomCall();

  op::Tensor contiguous(const op::Tensor& source) override;
  int num_threads() const override;
  uint64_t seed() override;

  // Hands the results over, `count` of them; throws Error unless they are new and as many.
  void finish(const std::vector<op::Tensor>& results, Tensor** const* out, size_t count);

 private:
  op::Tensor make(const int64_t* sizes, const int64_t* strides, size_t rank, op::DType dtype) override;
  void* allocate(int64_t bytes) override;
  void run_parts(int64_t parts, void (*body)(void* context, int64_t part) noexcept, void* context) override;

  void outside_of_parallel(const char* what) const;
  op::Tensor keep(Tensor* tensor);

  const char* name_;
  bool parallel_ = false;
  std::vector<Tensor*> made_;
  std::vector<void*> scratch_;
};

[[noreturn]] void throw_custom(const char* name, int32_t code, const char* what);

// A tensor argument as kernels see it.
inline op::Tensor custom_view(const Tensor* tensor, bool writable) {
  return {tensor->data,
          static_cast<op::DType>(tensor->dtype),
          tensor->rank,
          tensor->sizes,
          tensor->strides,
          writable,
          const_cast<Tensor*>(tensor)};
}

// Every byte of a bool tensor other than 0 becomes 1: code that is generated for bools relies on it, and a kernel may
// write what it likes. Other tensors stay as they are.
void make_bools(const Tensor* tensor) noexcept;

// An argument that the kernel writes to: its bools are mended when the kernel has ended, however it ended.
class CustomWritten {
 public:
  explicit CustomWritten(Tensor* tensor) : one_(tensor), tensors_(&one_), count_(1) {}
  explicit CustomWritten(Tensor* const* optional) : tensors_(optional), count_(optional != nullptr) {}
  CustomWritten(Tensor* const* tensors, int64_t count) : tensors_(tensors), count_(count) {}
  ~CustomWritten() {
    for (int64_t i = 0; i < count_; ++i) {
      if (tensors_[i] != nullptr) make_bools(tensors_[i]);
    }
  }
  CustomWritten(const CustomWritten&) = delete;
  CustomWritten& operator=(const CustomWritten&) = delete;

 private:
  Tensor* one_ = nullptr;
  Tensor* const* tensors_;
  int64_t count_;
};

// Calls kernel(op::Call&), which returns its results, and translates what it throws into errors that name the
// operator.
template <typename Kernel, typename... Results>
void run_custom(const char* name, Kernel&& kernel, Results... out) {
  try {
    CustomCall call(name);
    if constexpr (std::is_void_v<decltype(kernel(static_cast<op::Call&>(call)))>) {
      kernel(static_cast<op::Call&>(call));
    } else {
      const std::vector<op::Tensor> results = kernel(static_cast<op::Call&>(call));
      const std::array<Tensor**, sizeof...(Results)> places{out...};
      call.finish(results, places.data(), places.size());
    }
  } catch (const Error&) {
    throw;
  } catch (const op::Error& error) {
    throw_custom(name, AOTPACK_MODULE_INVALID_ARGUMENT, error.what());
  } catch (const std::bad_alloc&) {
    throw_custom(name, AOTPACK_MODULE_OUT_OF_MEMORY, "out of memory");
  } catch (const std::exception& error) {
    throw_custom(name, AOTPACK_MODULE_FAILED, error.what());
  } catch (...) {
    throw_custom(name, AOTPACK_MODULE_FAILED, "the kernel threw an object that is not a std::exception");
  }
}

// ---- arguments, as TorchInductor passes them

// `Tensor?`: null pointer for none.
inline std::optional<op::Tensor> custom_optional(Tensor* const* tensor, bool writable) {
  if (tensor == nullptr || *tensor == nullptr) return std::nullopt;
  return custom_view(*tensor, writable);
}

template <typename To, typename From>
std::optional<To> custom_optional(const From* value) {
  if (value == nullptr) return std::nullopt;
  return static_cast<To>(*value);
}

template <typename To>
std::optional<To> custom_optional(std::nullptr_t) {
  return std::nullopt;
}

// `int[]?` and the like. Generated code passes a null pointer for none, a pointer to a pointer for a list, and a
// pointer to a null pointer for an empty one.
template <typename T>
struct CustomList {
  CustomList(std::nullptr_t) {}
  CustomList(const std::nullptr_t*) : given(true) {}
  CustomList(const T* const* list) : data(list == nullptr ? nullptr : *list), given(list != nullptr) {}
  std::optional<std::span<const T>> list(int64_t count) const {
    if (!given) return std::nullopt;
    return std::span<const T>(data, static_cast<size_t>(count));
  }
  const T* data = nullptr;
  bool given = false;
};

// `Scalar`. Generated code writes ints as long, bools as int.
struct CustomScalar {
  CustomScalar(int value) : scalar(value != 0) {}
  CustomScalar(long value) : scalar(static_cast<int64_t>(value)) {}
  CustomScalar(double value) : scalar(value) {}
  op::Scalar scalar;
};

template <typename T>
std::span<const T> custom_span(const T* data, int64_t count) {
  return {data, static_cast<size_t>(count)};
}

inline std::vector<op::Tensor> custom_tensors(Tensor* const* tensors, int64_t count, bool writable) {
  std::vector<op::Tensor> list;
  list.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) list.push_back(custom_view(tensors[i], writable));
  return list;
}

// `Tensor?[]`.
inline std::vector<std::optional<op::Tensor>> custom_optionals(Tensor* const* const* tensors, int64_t count) {
  std::vector<std::optional<op::Tensor>> list;
  list.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) list.push_back(custom_optional(tensors[i], false));
  return list;
}

// `bool[]`, of which generated code makes int32.
class CustomBools {
 public:
  CustomBools(const int32_t* data, int64_t count)
      : flags_(new bool[static_cast<size_t>(count)]), count_(static_cast<size_t>(count)) {
    for (size_t i = 0; i < count_; ++i) flags_[i] = data[i] != 0;
  }
  std::span<const bool> list() const { return {flags_.get(), count_}; }

 private:
  std::unique_ptr<bool[]> flags_;
  size_t count_;
};

inline std::vector<std::string_view> custom_strings(const char* const* strings, int64_t count) {
  return {strings, strings + count};
}

// ---- results

// Called by generated code on every result of a custom operator that it reads: the code that follows relies on what
// the fake implementation said. Throws Error where dtype or sizes differ; other strides are mended by a copy.
void custom_conform(torch::aot_inductor::RAIIAtenTensorHandle& result, int32_t dtype,
                    std::initializer_list<int64_t> sizes, std::initializer_list<int64_t> strides, const char* name);

}  // namespace aotpack::module
