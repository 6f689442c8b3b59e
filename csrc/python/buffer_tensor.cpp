#include "buffer_tensor.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "dtype.h"

namespace nb = nanobind;

namespace aotpack::python {
namespace {

constexpr int kMaxRank = 64;

struct BufferTensor {
  DLManagedTensorVersioned managed{};
  std::vector<int64_t> shape;
  std::vector<char> copy;
  Py_buffer view{};

  BufferTensor() = default;
  BufferTensor(const BufferTensor&) = delete;
  BufferTensor& operator=(const BufferTensor&) = delete;
  ~BufferTensor() {
    // Consumers release on any thread, also while the interpreter ends; then the system takes the memory back.
    if (view.obj == nullptr || !Py_IsInitialized()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&view);
    PyGILState_Release(state);
  }
};

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(shape[i]);
  return text + (shape.size() == 1 ? ",)" : ")");
}

// The bytes of a tensor; false where no memory is that large.
bool bytes_of(const std::vector<int64_t>& shape, int64_t item, int64_t* out) {
  *out = item;
  for (const int64_t size : shape) {
    if (__builtin_mul_overflow(*out, size, out)) return false;
  }
  return true;
}

}  // namespace

DLManagedTensorVersioned* tensor_from_buffer(PyObject* buffer, const char* dtype, nb::handle shape) {
  DLDataType type;
  if (!dtype_of_name(dtype, &type)) {
    PyErr_Format(PyExc_ValueError, "unknown dtype '%s'", dtype);
    return nullptr;
  }
  auto tensor = std::make_unique<BufferTensor>();
  for (const nb::handle size : shape) {
    const long long value = PyLong_AsLongLong(size.ptr());
    if (value == -1 && PyErr_Occurred()) return nullptr;
    if (value < 0) {
      PyErr_Format(PyExc_ValueError, "sizes are not negative, got %lld", value);
      return nullptr;
    }
    tensor->shape.push_back(value);
  }
  if (tensor->shape.size() > kMaxRank) {
    PyErr_Format(PyExc_ValueError, "at most %d sizes are supported, got %zu", kMaxRank, tensor->shape.size());
    return nullptr;
  }
  Py_buffer& view = tensor->view;
  if (PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE) != 0) return nullptr;
  int64_t bytes = 0;
  if (!bytes_of(tensor->shape, itemsize(type), &bytes)) {
    PyErr_Format(PyExc_ValueError, "%s of shape %s has more bytes than any memory", dtype,
                 text_of(tensor->shape).c_str());
    return nullptr;
  }
  if (bytes != view.len) {
    PyErr_Format(PyExc_ValueError, "%s of shape %s has %lld bytes, the buffer has %zd", dtype,
                 text_of(tensor->shape).c_str(), static_cast<long long>(bytes), view.len);
    return nullptr;
  }
  void* data = view.buf;
  bool read_only = view.readonly != 0;
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(itemsize(type)) != 0) {
    const auto* from = static_cast<const char*>(data);
    tensor->copy.assign(from, from + bytes);
    data = tensor->copy.data();
    read_only = false;
    PyBuffer_Release(&view);
  }
  DLManagedTensorVersioned& managed = tensor->managed;
  managed.version = {AOTPACK_DLPACK_MAJOR, AOTPACK_DLPACK_MINOR};
  managed.flags = read_only ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  managed.dl_tensor.data = data;
  managed.dl_tensor.device = {kDLCPU, 0};
  managed.dl_tensor.ndim = static_cast<int32_t>(tensor->shape.size());
  managed.dl_tensor.dtype = type;
  managed.dl_tensor.shape = tensor->shape.data();
  managed.manager_ctx = tensor.get();
  managed.deleter = [](DLManagedTensorVersioned* self) { delete static_cast<BufferTensor*>(self->manager_ctx); };
  return &tensor.release()->managed;
}

}  // namespace aotpack::python
