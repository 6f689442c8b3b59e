#include "argument.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "array_type.h"
#include "dtype.h"
#include "numpy_bridge.h"
#include "object.h"
#include "status.h"
#include "tensor.h"

namespace aotpack::python {
namespace {

std::string at(const Site& site) { return std::string(site.role) + " '" + site.name + "'"; }

bool fail(const Site& site, const std::string& message, const char* hint = nullptr) {
  set_error(site.error, at(site) + " " + message, hint);
  return false;
}

std::string type_text(PyObject* object) { return object == Py_None ? "None" : Py_TYPE(object)->tp_name; }

bool fail_rank(const Site& site, int rank) {
  return fail(site,
              "has rank " + std::to_string(rank) + "; at most " + std::to_string(kMaxRank) + " dims are supported");
}

bool fail_read_only(const Site& site) {
  return fail(site, "is written to by this call, but the array is read-only", "pass a copy");
}

// The pending exception's text, which is cleared.
std::string take_error() {
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  Ref text = Ref::take(value ? PyObject_Str(value) : nullptr);
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  // Its first line: torch appends a C++ stack trace.
  std::string result = utf8 ? std::string(utf8, std::strcspn(utf8, "\n")) : "unknown error";
  PyErr_Clear();
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return result;
}

bool fail_dlpack(const Site& site) {
  // An interrupt or the like is not about the argument.
  if (!PyErr_ExceptionMatches(PyExc_Exception)) return false;
  return fail(site, "cannot be read: " + take_error());
}

bool is_true(PyObject* object, PyObject* attribute, bool call) {
  Ref value = Ref::take(call ? PyObject_CallMethodNoArgs(object, attribute) : PyObject_GetAttr(object, attribute));
  if (!value) PyErr_Clear();
  return value.get() == Py_True;
}

// What torch's C table of functions does not look at, though it changes what the memory means.
bool check_torch(PyObject* object, const Site& site) {
  static PyObject* const requires_grad = PyUnicode_InternFromString("requires_grad");
  static PyObject* const is_conj = PyUnicode_InternFromString("is_conj");
  static PyObject* const is_neg = PyUnicode_InternFromString("is_neg");
  if (is_true(object, requires_grad, false)) {
    return fail(site, "requires grad, which an archive does not track", "pass tensor.detach()");
  }
  if (is_true(object, is_conj, true) || is_true(object, is_neg, true)) {
    return fail(site, "is a lazily conjugated or negated view", "pass tensor.resolve_conj().resolve_neg()");
  }
  return true;
}

std::string device_name(int type, int id) {
  constexpr int kMetal = 8, kRocm = 10;  // DLPack's numbers, of devices that no archive is for
  const char* name = type == kDLCUDA ? "cuda" : type == kRocm ? "rocm" : type == kMetal ? "metal" : nullptr;
  return name ? std::string(name) + ":" + std::to_string(id) : "DLPack device type " + std::to_string(type);
}

bool check_device(const Site& site, DLDevice device) {
  if (device.device_type == kDLCPU || device.device_type == kDLCUDAHost) return true;
  if (device.device_type == site.device.device_type && device.device_id == site.device.device_id) return true;
  const std::string got = device_name(device.device_type, device.device_id);
  if (site.device.device_type == kDLCPU) {
    return fail(site, "must be in CPU memory, but is on " + got, "copy it to the CPU first, with torch: tensor.cpu()");
  }
  return fail(site, "must be in CPU memory or on " + device_name(site.device.device_type, site.device.device_id) +
                        ", but is on " + got);
}

// What the producer says of itself, before it is asked for memory that may be elsewhere. The CPU where it does not: its
// capsule will say it.
DLDevice device_of(PyObject* object) {
  Ref device = Ref::take(PyObject_CallMethod(object, "__dlpack_device__", nullptr));
  int type = kDLCPU, id = 0;
  if (!device || !PyTuple_Check(device.get()) || !PyArg_ParseTuple(device.get(), "ii", &type, &id)) PyErr_Clear();
  return {static_cast<DLDeviceType>(type), id};
}

}  // namespace

bool Argument::import(PyObject* object, const Site& site, DLDataType expected, bool writable) {
  bool ok;
  if (numpy_ready() && is_numpy_array(object)) {
    ok = import_numpy(object, site, writable);
  } else if (Tensor* tensor = tensor_of(object)) {
    tensor_ = tensor->get();
    if (writable && tensor->is_read_only()) return fail_read_only(site);
    ok = check_device(site, tensor_.device);
  } else {
    const ArrayType type = array_type(Py_TYPE(object));
    kind_ = type.kind;
    if (kind_.framework == Framework::kTorch && !check_torch(object, site)) return false;
    // jax's arrays are immutable, but their DLPack capsules do not say so.
    if (kind_.framework == Framework::kJax && writable) return fail_read_only(site);
    if (kind_.exchange && kind_.exchange->borrow) {
      ok = import_exchange(object, site);
      if (ok && site.is_ordered && is_on_device()) ok = import_dlpack(object, site, writable);
    } else if (type.has_dlpack && kind_.framework != Framework::kNumpy) {
      ok = import_dlpack(object, site, writable);
    } else if (type.has_buffer) {
      ok = import_buffer(object, site, writable);
    } else {
      return fail(site, "must be an array, got " + type_text(object),
                  "pass a numpy, torch or jax array, or an object with __dlpack__ or the buffer protocol; "
                  "numpy.asarray(…, dtype=…) creates one");
    }
  }
  if (!ok) return false;
  if (tensor_.ndim > kMaxRank) return fail_rank(site, tensor_.ndim);
  own_sizes();
  if (stands_for(tensor_.dtype, expected)) tensor_.dtype = expected;
  return true;
}

// Sizes and strides belong to the array, which code that runs before the call, or beside it, may reshape.
void Argument::own_sizes() {
  const auto rank = static_cast<size_t>(tensor_.ndim > 0 ? tensor_.ndim : 0);
  if (tensor_.shape && tensor_.shape != shape_) tensor_.shape = std::copy_n(tensor_.shape, rank, shape_) - rank;
  if (tensor_.strides && tensor_.strides != strides_)
    tensor_.strides = std::copy_n(tensor_.strides, rank, strides_) - rank;
}

bool Argument::is_array(PyObject* object) const {
  if ((numpy_ready() && is_numpy_array(object)) || tensor_of(object)) return true;
  const ArrayType type = array_type(Py_TYPE(object));
  return type.has_dlpack || type.has_buffer || type.kind.exchange;
}

bool Argument::import_number(PyObject* object, const Site& site, aotpack_number kind) {
  hold_number(kind);
  const NumberRead read = read_number(object, kind, &number_);
  if (read == NumberRead::kOk) return true;
  if (read == NumberRead::kNone && is_array(object)) {
    if (!import(object, site, number_dtype(kind), false)) return false;
    if (tensor_.ndim == 0) return true;
    return fail(site, std::string("must be ") + describe_number(kind) + ", got an array of rank " +
                          std::to_string(tensor_.ndim));
  }
  // Numbers are short enough to be shown.
  Ref text = Ref::take(read == NumberRead::kNone ? nullptr : PyObject_Str(object));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  const std::string given = utf8 ? utf8 : type_text(object);
  if (read == NumberRead::kTooLarge) return fail(site, "must fit 64 bits, got " + given);
  return fail(site, std::string("must be ") + describe_number(kind) + ", got " + given);
}

void Argument::hold_number(aotpack_number kind) {
  number_ = {};
  tensor_ = {&number_, {kDLCPU, 0}, 0, number_dtype(kind), nullptr, nullptr, 0};
}

bool Argument::import_numpy(PyObject* object, const Site& site, bool writable) {
  kind_.framework = Framework::kNumpy;
  if (numpy_rank(object) > kMaxRank) return fail_rank(site, numpy_rank(object));
  switch (view_numpy(object, writable, &tensor_, strides_)) {
    case NumpyView::kOk:
      return true;
    case NumpyView::kByteOrder:
      return fail(site, "has non-native byte order", "array.astype(array.dtype.newbyteorder('='))");
    case NumpyView::kStrides:
      return fail(site, "has strides that are not multiples of its element size", "numpy.ascontiguousarray(array)");
    case NumpyView::kReadOnly:
      return fail_read_only(site);
    case NumpyView::kDtype:
      break;
  }
  Ref dtype = Ref::take(PyObject_GetAttrString(object, "dtype"));
  Ref text = Ref::take(dtype ? PyObject_Str(dtype.get()) : nullptr);
  const char* name = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  PyErr_Clear();
  return fail(site, std::string("has the dtype ") + (name ? name : "?") + ", which is not supported",
              dtype_name(tensor_.dtype) ? nullptr : "convert it with array.astype(…)");
}

bool Argument::import_exchange(PyObject* object, const Site& site) {
  if (kind_.exchange->borrow(object, &tensor_) != 0) return fail_dlpack(site);
  return check_device(site, tensor_.device);
}

bool Argument::import_buffer(PyObject* object, const Site& site, bool writable) {
  const int flags = PyBUF_FORMAT | PyBUF_STRIDES | (writable ? PyBUF_WRITABLE : 0);
  if (PyObject_GetBuffer(object, &buffer_, flags) < 0) {
    std::string text = take_error();
    return writable ? fail_read_only(site) : fail(site, "cannot be read: " + text);
  }
  held_ = Held::kBuffer;
  if (!dtype_of_format(buffer_.format, buffer_.itemsize, &tensor_.dtype)) {
    return fail(site, std::string("has the buffer format '") + buffer_.format + "', which is not supported");
  }
  if (buffer_.ndim > kMaxRank) return fail_rank(site, buffer_.ndim);
  for (int i = 0; i < buffer_.ndim; ++i) {
    shape_[i] = buffer_.shape[i];
    if (buffer_.strides[i] % buffer_.itemsize != 0) {
      return fail(site, "has strides that are not multiples of its element size");
    }
    strides_[i] = buffer_.strides[i] / buffer_.itemsize;
  }
  tensor_.data = buffer_.buf;
  tensor_.device = {kDLCPU, 0};
  tensor_.ndim = buffer_.ndim;
  tensor_.shape = shape_;
  tensor_.strides = strides_;
  tensor_.byte_offset = 0;
  return true;
}

bool Argument::import_raw(PyObject* tuple, const Site& site) {
  const char* dtype = nullptr;
  PyObject* sizes = nullptr;
  PyObject* bytes = nullptr;
  if (!PyArg_ParseTuple(tuple, "sO!O", &dtype, &PyTuple_Type, &sizes, &bytes)) return false;
  if (!dtype_of_name(dtype, &tensor_.dtype)) {
    return fail(site, "has the dtype " + std::string(dtype) + ", which is not supported");
  }
  const Py_ssize_t rank = PyTuple_GET_SIZE(sizes);
  if (rank > kMaxRank) return fail_rank(site, static_cast<int>(rank));
  int64_t nbytes = itemsize(tensor_.dtype);
  for (Py_ssize_t i = 0; i < rank; ++i) {
    shape_[i] = PyLong_AsLongLong(PyTuple_GET_ITEM(sizes, i));
    if (shape_[i] == -1 && PyErr_Occurred()) return fail(site, take_error());
    if (shape_[i] < 0 || __builtin_mul_overflow(nbytes, shape_[i], &nbytes)) return fail(site, "has invalid sizes");
  }
  if (PyObject_GetBuffer(bytes, &buffer_, PyBUF_SIMPLE) < 0) return fail(site, "cannot be read: " + take_error());
  held_ = Held::kBuffer;
  if (buffer_.len != nbytes) {
    return fail(site, "has " + std::to_string(buffer_.len) + " bytes instead of " + std::to_string(nbytes));
  }
  tensor_.data = buffer_.buf;
  tensor_.device = {kDLCPU, 0};
  tensor_.ndim = static_cast<int>(rank);
  tensor_.shape = shape_;
  return true;
}

bool Argument::import_dlpack(PyObject* object, const Site& site, bool writable) {
  const DLDevice device = device_of(object);
  if (!check_device(site, device)) return false;
  Ref method = Ref::take(PyObject_GetAttrString(object, "__dlpack__"));
  Ref none = Ref::take(PyTuple_New(0));
  Ref kwargs = Ref::take(Py_BuildValue("{s:(ii)}", "max_version", AOTPACK_DLPACK_MAJOR, AOTPACK_DLPACK_MINOR));
  if (!method || !none || !kwargs) return fail_dlpack(site);
  if (device.device_type == kDLCUDA) {
    // The producer lets this stream wait for its own.
    Ref stream = Ref::take(PyLong_FromVoidPtr(site.stream));
    if (!stream || PyDict_SetItemString(kwargs.get(), "stream", stream.get()) < 0) return fail_dlpack(site);
  }
  Ref capsule = Ref::take(PyObject_Call(method.get(), none.get(), kwargs.get()));
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    // Producers from before DLPack 1.0 do not know the argument.
    PyErr_Clear();
    if (PyDict_DelItemString(kwargs.get(), "max_version") < 0) return fail_dlpack(site);
    capsule = Ref::take(PyObject_Call(method.get(), none.get(), kwargs.get()));
  }
  if (!capsule) return fail_dlpack(site);
  return read_capsule(capsule.release(), site, writable);
}

// Takes the capsule over. It is not consumed: it frees the tensor when it is let go, which is after the call.
bool Argument::read_capsule(PyObject* capsule, const Site& site, bool writable) {
  capsule_ = capsule;
  held_ = Held::kCapsule;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, "dltensor_versioned"));
    if (managed->version.major != AOTPACK_DLPACK_MAJOR) return fail(site, "uses an unsupported version of DLPack");
    if (writable && (managed->flags & DLPACK_FLAG_BITMASK_READ_ONLY)) return fail_read_only(site);
    tensor_ = managed->dl_tensor;
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    tensor_ = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, "dltensor"))->dl_tensor;
  } else {
    return fail(site, "has a __dlpack__ that does not return a DLPack capsule");
  }
  return check_device(site, tensor_.device);
}

void Argument::release() {
  if (held_ == Held::kBuffer) PyBuffer_Release(&buffer_);
  if (held_ == Held::kCapsule) Py_DECREF(capsule_);
  held_ = Held::kNothing;
}

}  // namespace aotpack::python
