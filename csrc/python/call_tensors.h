// The tensors of one call: what goes in and what comes out.
#pragma once

#include <Python.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "argument.h"
#include "number.h"
#include "result.h"
#include "runner.h"

namespace aotpack::python {

// Room for `count` elements, on the stack as long as there are few.
template <typename T>
class Small {
 public:
  explicit Small(size_t count) : heap_(count > kFew ? new T[count]() : nullptr) {}
  T* data() { return heap_ ? heap_.get() : inline_; }
  T& operator[](size_t i) { return data()[i]; }

 private:
  static constexpr size_t kFew = 4;
  T inline_[kFew]{};
  std::unique_ptr<T[]> heap_;
};

// The tensors that go into a call, borrowed for its time.
class Inputs {
 public:
  // `device` and `stream`: of the model.
  Inputs(size_t count, DLDevice device, void* stream)
      : arguments_(count), tensors_(count), device_(device), stream_(stream) {}

  bool import(size_t i, PyObject* object, const aotpack_value_info& info) {
    Argument& argument = arguments_[i];
    const Site site{"argument", info.name, "InputError", info.device, stream_};
    if (info.number != AOTPACK_NUMBER_NONE) {
      if (!argument.import_number(object, site, info.number)) return false;
    } else {
      if (!argument.import(object, site, info.dtype, info.mutated)) return false;
    }
    tensors_[i] = &argument.tensor();
    note_kind(argument);
    return true;
  }

  // The same for a buffer to write an output to. None stands for a number, which `number` then gives.
  bool import_out(size_t i, PyObject* object, const aotpack_value_info& info) {
    tensors_[i] = &arguments_[i].tensor();
    if (info.number != AOTPACK_NUMBER_NONE && object == Py_None) {
      arguments_[i].hold_number(info.number);
      return true;
    }
    const Site site{"out", info.name, "InputError", device_, stream_};
    if (!arguments_[i].import(object, site, info.dtype, /*writable=*/true)) return false;
    note_kind(arguments_[i]);
    return true;
  }

  // Arrays of a library that says which stream it works on are used, and results made, in the order of that stream.
  // False with an exception on failure.
  bool follow(Lease* lease) const {
    if (!kind_.is_on_device || !kind_.exchange || !kind_.exchange->current_stream) return true;
    void* stream = nullptr;
    if (kind_.exchange->current_stream(device_.device_type, device_.device_id, &stream) != 0) return false;
    lease->follow(stream ? stream : legacy_stream());
    return true;
  }

  const DLTensor& tensor(size_t i) { return arguments_[i].tensor(); }

  const DLTensor* const* tensors() { return tensors_.data(); }
  const ArrayKind& kind() const { return kind_; }

 private:
  // The first array whose library we know decides what comes out; where the model runs on a device, the first that is
  // there.
  void note_kind(const Argument& argument) {
    const bool is_first = kind_.framework == Framework::kNone && !kind_.exchange;
    if (!is_first && (kind_.is_on_device || !argument.is_on_device())) return;
    kind_ = argument.kind();
    kind_.is_on_device = argument.is_on_device();
  }

  Small<Argument> arguments_;
  Small<const DLTensor*> tensors_;
  DLDevice device_;
  void* stream_;
  ArrayKind kind_;
};

// The tensors that come out of a call, owned until wrapped.
class Outputs {
 public:
  Outputs(aotpack_model* model, size_t entry, size_t count)
      : model_(model), entry_(entry), tensors_(count), count_(count) {}
  ~Outputs() {
    for (size_t i = 0; i < count_; ++i) {
      if (tensors_[i]) tensors_[i]->deleter(tensors_[i]);
    }
  }

  DLManagedTensorVersioned** data() { return tensors_.data(); }
  size_t count() const { return count_; }

  // The result as an array of that kind, or as a number where the signature has one.
  PyObject* wrap(size_t i, const ArrayKind& kind) {
    const aotpack_number number = aotpack_model_output(model_, entry_, i)->number;
    if (number != AOTPACK_NUMBER_NONE) return number_object(tensors_[i]->dl_tensor, number);
    return wrap_result(std::exchange(tensors_[i], nullptr), kind);
  }

 private:
  aotpack_model* model_;
  size_t entry_;
  Small<DLManagedTensorVersioned*> tensors_;
  size_t count_;
};

}  // namespace aotpack::python
