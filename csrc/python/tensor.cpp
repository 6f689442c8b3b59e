#include "tensor.h"

#include <nanobind/stl/string.h>

#include "buffer_tensor.h"
#include "dtype.h"
#include "numpy_bridge.h"
#include "status.h"
#include "tensor_values.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace aotpack::python {
namespace {

PyTypeObject* g_tensor_type = nullptr;

// What an exported tensor owns: its share of the memory, and the arrays that its DLTensor points to.
template <typename Managed>
struct Export {
  Managed managed;
  SharedTensor* shared;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;
};

template <typename Managed>
Managed* make_export(SharedTensor* shared, const std::vector<int64_t>& strides) {
  const DLTensor& tensor = shared->get();
  auto* result = new Export<Managed>{{}, shared, {tensor.shape, tensor.shape + tensor.ndim}, strides};
  shared->retain();
  result->managed.dl_tensor = tensor;
  result->managed.dl_tensor.shape = result->shape.data();
  result->managed.dl_tensor.strides = result->strides.data();
  result->managed.manager_ctx = result;
  result->managed.deleter = [](Managed* self) {
    auto* owner = static_cast<Export<Managed>*>(self->manager_ctx);
    owner->shared->release();
    delete owner;
  };
  return &result->managed;
}

std::string device_text(DLDevice device) {
  if (device.device_type == kDLCPU) return "cpu";
  return (device.device_type == kDLCUDA ? "cuda:" : "device:") + std::to_string(device.device_id);
}

nb::object shape_of(const Tensor& self) {
  PyObject* tuple = PyTuple_New(self.get().ndim);
  for (int i = 0; tuple && i < self.get().ndim; ++i) {
    PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(self.get().shape[i]));
  }
  return nb::steal(tuple);
}

nb::object strides_of(const Tensor& self) {
  PyObject* tuple = PyTuple_New(self.get().ndim);
  for (int i = 0; tuple && i < self.get().ndim; ++i) {
    PyTuple_SET_ITEM(tuple, i, PyLong_FromLongLong(self.strides()[static_cast<size_t>(i)]));
  }
  return nb::steal(tuple);
}

// A new tensor with the same elements, contiguous, on the host.
DLManagedTensorVersioned* copy_of(const Tensor& self) {
  struct Copy {
    DLManagedTensorVersioned managed;
    std::vector<int64_t> shape;
    std::vector<char> data;
  };
  const DLTensor& source = self.get();
  auto* copy = new Copy{{}, {source.shape, source.shape + source.ndim}, {}};
  copy->data.resize(static_cast<size_t>(self.size() * itemsize(source.dtype)));
  if (self.is_on_host()) {
    copy_elements(self, copy->data.data());
  } else {
    DLTensor target = source;
    target.data = copy->data.data();
    target.byte_offset = 0;
    target.device = {kDLCPU, 0};
    target.strides = nullptr;
    aotpack_status* status;
    Py_BEGIN_ALLOW_THREADS;
    status = aotpack_tensor_copy(&source, &target);
    Py_END_ALLOW_THREADS;
    if (!check(status)) {
      delete copy;
      throw nb::python_error();
    }
  }
  copy->managed.version = {AOTPACK_DLPACK_MAJOR, AOTPACK_DLPACK_MINOR};
  copy->managed.dl_tensor = source;
  copy->managed.dl_tensor.device = {kDLCPU, 0};
  copy->managed.dl_tensor.data = copy->data.data();
  copy->managed.dl_tensor.byte_offset = 0;
  copy->managed.dl_tensor.shape = copy->shape.data();
  copy->managed.dl_tensor.strides = nullptr;
  copy->managed.flags = DLPACK_FLAG_BITMASK_IS_COPIED;
  copy->managed.manager_ctx = copy;
  copy->managed.deleter = [](DLManagedTensorVersioned* t) { delete static_cast<Copy*>(t->manager_ctx); };
  return &copy->managed;
}

// A capsule whose tensor was not taken frees it.
template <typename Managed>
void release_unused(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* tensor = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  tensor->deleter(tensor);
}

nb::object to_dlpack(const Tensor& self, nb::object stream, nb::object max_version, nb::object dl_device,
                     nb::object copy) {
  const DLDevice device = self.get().device;
  // A result is complete when it is handed out, so that no stream has to wait for it.
  if (!stream.is_none() && self.is_on_host()) {
    set_error("InputError", "a stream is not supported for a tensor in CPU memory");
    throw nb::python_error();
  }
  bool to_host = false;
  if (!dl_device.is_none()) {
    const int type = nb::cast<int>(dl_device[0]);
    to_host = type == kDLCPU && !self.is_on_host();
    if (!to_host && (type != device.device_type || nb::cast<int>(dl_device[1]) != device.device_id)) {
      const std::string where = self.is_on_host() ? "in CPU memory" : "on " + device_text(device);
      PyErr_SetString(PyExc_BufferError, ("this tensor is " + where + " and cannot be copied to that device").c_str());
      throw nb::python_error();
    }
  }
  if (!copy.is_none()) {
    const bool asked = nb::cast<bool>(copy);
    if (to_host && !asked) {
      PyErr_SetString(PyExc_BufferError, "this tensor is on a device and reaches the CPU as a copy only");
      throw nb::python_error();
    }
    if (asked && !to_host && !self.is_on_host()) {
      PyErr_SetString(PyExc_BufferError,
                      "this tensor cannot be copied on its device; copy=True needs dl_device=(1, 0)");
      throw nb::python_error();
    }
  }
  const bool want_copy = to_host || (!copy.is_none() && nb::cast<bool>(copy));
  if (!max_version.is_none() && nb::cast<int>(max_version[0]) >= AOTPACK_DLPACK_MAJOR) {
    DLManagedTensorVersioned* tensor = want_copy ? copy_of(self) : self.export_tensor();
    return nb::steal(PyCapsule_New(tensor, "dltensor_versioned", [](PyObject* capsule) {
      release_unused<DLManagedTensorVersioned>(capsule, "dltensor_versioned");
    }));
  }
  if (self.is_read_only() && !want_copy) {
    PyErr_SetString(PyExc_BufferError, "the tensor is read-only, which DLPack says from version 1.0 on; use copy=True");
    throw nb::python_error();
  }
  Tensor copied(want_copy ? copy_of(self) : self.export_tensor());
  return nb::steal(PyCapsule_New(copied.export_legacy(), "dltensor",
                                 [](PyObject* capsule) { release_unused<DLManagedTensor>(capsule, "dltensor"); }));
}

nb::object to_numpy(const Tensor& self) {
  if (!numpy_ready(true)) throw nb::python_error();
  PyObject* array = numpy_from_tensor(self.is_on_host() ? self.export_tensor() : copy_of(self));
  if (!array) throw nb::python_error();
  return nb::steal(array);
}

nb::object to_list_of(const Tensor& self) {
  if (self.is_on_host()) return to_list(self);
  const Tensor copied(copy_of(self));
  return to_list(copied);
}

nb::object to_array(const Tensor& self, nb::object dtype, nb::object copy) {
  if (!self.is_on_host() && !copy.is_none() && !nb::cast<bool>(copy)) {
    throw nb::value_error("the tensor is on a device: an array of its elements is a copy");
  }
  nb::object array = to_numpy(self);
  // numpy's own rules for dtype and copy.
  if (!dtype.is_none())
    return array.attr("astype")(dtype, nb::arg("copy") = copy.is_none() ? nb::object(nb::bool_(false)) : copy);
  return !copy.is_none() && nb::cast<bool>(copy) ? nb::object(array.attr("copy")()) : array;
}

std::string repr(const Tensor& self) {
  std::string text = "aotpack.Tensor(shape=(";
  for (int i = 0; i < self.get().ndim; ++i) {
    text += std::to_string(self.get().shape[i]) + (self.get().ndim == 1 ? "," : i + 1 < self.get().ndim ? ", " : "");
  }
  const char* name = dtype_name(self.get().dtype);
  text += std::string("), dtype=") + (name ? name : "?");
  if (!self.is_on_host()) text += ", device=" + device_text(self.get().device);
  return text + ")";
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  return nb::inst_ptr<Tensor>(self)->get_buffer(self, view, flags);
}

PyType_Slot kSlots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

}  // namespace

void SharedTensor::release() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (tensor_->deleter) tensor_->deleter(tensor_);
  delete this;
}

Tensor::Tensor(DLManagedTensorVersioned* tensor) : shared_(new SharedTensor(tensor)) {
  const DLTensor& t = get();
  strides_.resize(static_cast<size_t>(t.ndim));
  byte_strides_.resize(strides_.size());
  int64_t expected = 1;
  dense_ = true;
  for (int i = t.ndim; i-- > 0;) {
    int64_t stride = t.strides ? t.strides[i] : expected;
    dense_ = dense_ && (t.shape[i] == 1 || stride == expected);
    strides_[static_cast<size_t>(i)] = stride;
    byte_strides_[static_cast<size_t>(i)] = stride * itemsize(t.dtype);
    expected *= t.shape[i];
  }
  dense_ = dense_ || expected == 0;
}

int64_t Tensor::size() const {
  int64_t size = 1;
  for (int i = 0; i < get().ndim; ++i) size *= get().shape[i];
  return size;
}

int Tensor::get_buffer(PyObject* self, Py_buffer* view, int flags) const {
  const DLTensor& t = get();
  const char* format = buffer_format(t.dtype);
  view->obj = nullptr;
  if (!is_on_host()) {
    PyErr_SetString(PyExc_BufferError, "the tensor is on a device; .numpy() returns a copy in CPU memory");
    return -1;
  }
  if (!format) {
    PyErr_Format(PyExc_BufferError, "%s has no buffer format; use .numpy() or DLPack", dtype_name(t.dtype));
    return -1;
  }
  if (!dense_ && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
    PyErr_SetString(PyExc_BufferError, "the tensor is not contiguous");
    return -1;
  }
  if (((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS || (flags & PyBUF_ANY_CONTIGUOUS) == PyBUF_ANY_CONTIGUOUS ||
       (flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS) &&
      !(dense_ && ((flags & PyBUF_F_CONTIGUOUS) != PyBUF_F_CONTIGUOUS || t.ndim <= 1))) {
    PyErr_SetString(PyExc_BufferError, "the tensor does not have the requested memory order");
    return -1;
  }
  if (is_read_only() && (flags & PyBUF_WRITABLE)) {
    PyErr_SetString(PyExc_BufferError, "the tensor is read-only");
    return -1;
  }
  view->buf = data();
  view->obj = Py_NewRef(self);
  view->len = size() * itemsize(t.dtype);
  view->readonly = is_read_only();
  view->itemsize = itemsize(t.dtype);
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
  view->ndim = t.ndim;
  view->shape = (flags & PyBUF_ND) ? reinterpret_cast<Py_ssize_t*>(t.shape) : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES
                      ? reinterpret_cast<Py_ssize_t*>(const_cast<int64_t*>(byte_strides_.data()))
                      : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  return 0;
}

DLManagedTensorVersioned* Tensor::export_tensor() const {
  auto* result = make_export<DLManagedTensorVersioned>(shared_, strides_);
  result->version = {AOTPACK_DLPACK_MAJOR, AOTPACK_DLPACK_MINOR};
  result->flags = is_read_only() ? DLPACK_FLAG_BITMASK_READ_ONLY : 0;
  return result;
}

DLManagedTensor* Tensor::export_legacy() const { return make_export<DLManagedTensor>(shared_, strides_); }

PyObject* new_tensor_object(DLManagedTensorVersioned* tensor) {
  nb::object object = nb::inst_alloc(nb::handle(reinterpret_cast<PyObject*>(g_tensor_type)));
  new (nb::inst_ptr<Tensor>(object)) Tensor(tensor);
  nb::inst_mark_ready(object);
  return object.release().ptr();
}

Tensor* tensor_of(PyObject* object) {
  return Py_TYPE(object) == g_tensor_type ? nb::inst_ptr<Tensor>(object) : nullptr;
}

void bind_tensor(nb::module_& module) {
  auto cls =
      nb::class_<Tensor>(module, "Tensor", nb::type_slots(kSlots), nb::is_final(),
                         "A result, or what `from_buffer` makes. Shares its memory without a copy through DLPack\n"
                         "(torch.from_dlpack) and, in CPU memory, through the buffer protocol (memoryview) and numpy.");
  g_tensor_type = reinterpret_cast<PyTypeObject*>(cls.ptr());
  cls.def_static(
         "from_buffer",
         [](nb::object buffer, const char* dtype, nb::handle shape) {
           DLManagedTensorVersioned* tensor = tensor_from_buffer(buffer.ptr(), dtype, shape);
           if (!tensor) throw nb::python_error();
           return nb::steal(new_tensor_object(tensor));
         },
         "buffer"_a, "dtype"_a, "shape"_a,
         "A tensor over bytes in CPU memory, in row-major order: an argument of any dtype without numpy.\n\n"
         "Args:\n"
         "    buffer: contiguous memory (bytes, bytearray, memoryview, mmap, ...), kept as long as the tensor is "
         "used.\n"
         "        It is shared if its address is a multiple of the element size, otherwise copied.\n"
         "    dtype: the name of the element type, such as \"float16\" or \"bfloat16\".\n"
         "    shape: the sizes.\n\n"
         "Raises:\n"
         "    ValueError: the dtype is unknown, or the buffer has another number of bytes.\n"
         "    TypeError, BufferError: the object has no contiguous buffer.",
         nb::sig("def from_buffer(buffer: collections.abc.Buffer, dtype: str, shape: collections.abc.Iterable[int]) -> "
                 "Tensor"))
      .def_prop_ro("shape", shape_of, "The sizes.", nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("strides", strides_of, "The strides, in elements.", nb::sig("def strides(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "dtype", [](const Tensor& self) { return dtype_name(self.get().dtype); },
          "The name of the element type, such as \"float32\".")
      .def_prop_ro(
          "device", [](const Tensor& self) { return device_text(self.get().device); },
          "Where the elements are: \"cpu\" or \"cuda:0\".")
      .def_prop_ro(
          "ndim", [](const Tensor& self) { return self.get().ndim; }, "The rank.")
      .def_prop_ro("size", &Tensor::size, "The number of elements.")
      .def_prop_ro(
          "nbytes", [](const Tensor& self) { return self.size() * itemsize(self.get().dtype); },
          "The size of all elements in bytes.")
      .def("numpy", to_numpy,
           "A numpy array over the same memory; of a tensor on a device, over a copy. bfloat16 and float8 become the "
           "types of ml_dtypes when\n"
           "that is imported, else uint16 and uint8 with the same bits.",
           nb::sig("def numpy(self) -> typing.Any"))
      .def("tolist", to_list_of,
           "The elements as nested lists of Python numbers; a tensor of rank 0 returns the number.",
           nb::sig("def tolist(self) -> typing.Any"))
      .def("__array__", to_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack__", to_dlpack, nb::kw_only(), nb::arg("stream") = nb::none(), nb::arg("max_version") = nb::none(),
           nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none())
      .def("__dlpack_device__",
           [](const Tensor& self) {
             const DLDevice device = self.get().device;
             return nb::make_tuple(static_cast<int>(device.device_type), static_cast<int>(device.device_id));
           })
      .def("__len__",
           [](const Tensor& self) {
             if (self.get().ndim == 0) throw nb::type_error("a tensor of rank 0 has no length");
             return self.get().shape[0];
           })
      .def("__repr__", repr);
}

}  // namespace aotpack::python
