// aotpack.Tensor: a result of a call or what arrived as bytes, for programs without an array library. It hands its
// memory out through the buffer protocol, DLPack and numpy, without a copy; what is on a device reaches the host as a
// copy.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <vector>

#include "aotpack/dlpack.h"

namespace aotpack::python {

// A tensor that several Python objects and DLPack consumers share. Consumers release on any thread, without the GIL.
class SharedTensor {
 public:
  // Takes `tensor` over.
  explicit SharedTensor(DLManagedTensorVersioned* tensor) : tensor_(tensor) {}
  const DLTensor& get() const { return tensor_->dl_tensor; }
  bool is_read_only() const { return (tensor_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0; }
  void retain() { references_.fetch_add(1, std::memory_order_relaxed); }
  void release();

 private:
  ~SharedTensor() = default;
  DLManagedTensorVersioned* tensor_;
  std::atomic<size_t> references_{1};
};

class Tensor {
 public:
  // Takes `tensor` over.
  explicit Tensor(DLManagedTensorVersioned* tensor);
  ~Tensor() { shared_->release(); }
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  const DLTensor& get() const { return shared_->get(); }
  void* data() const { return static_cast<char*>(get().data) + get().byte_offset; }
  const std::vector<int64_t>& strides() const { return strides_; }  // elements
  bool is_on_host() const { return get().device.device_type == kDLCPU; }
  bool is_read_only() const { return shared_->is_read_only(); }
  int64_t size() const;  // elements

  int get_buffer(PyObject* self, Py_buffer* view, int flags) const;
  // A DLManagedTensorVersioned of its own over the same memory.
  DLManagedTensorVersioned* export_tensor() const;
  DLManagedTensor* export_legacy() const;  // before DLPack 1.0

 private:
  SharedTensor* shared_;
  std::vector<int64_t> strides_;
  std::vector<int64_t> byte_strides_;
  bool dense_ = true;  // C-contiguous
};

// The Python object of a new Tensor that takes `tensor` over; null with an exception.
PyObject* new_tensor_object(DLManagedTensorVersioned* tensor);

// The Tensor inside of `object`, or null when it is none.
Tensor* tensor_of(PyObject* object);

void bind_tensor(nanobind::module_& module);

}  // namespace aotpack::python
