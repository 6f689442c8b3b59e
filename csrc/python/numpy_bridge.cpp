#include "numpy_bridge.h"

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include <cstring>

#include "dtype.h"
#include "object.h"

namespace aotpack::python {
namespace {

// What numpy 1.x allows; far above what a model may have.
constexpr int kMaxNumpyRank = 32;

bool g_ready = false;

// numpy's numbers for the element types that we know.
int typenum_of(DLDataType dtype) {
  switch (dtype.code) {
    case kDLFloat:
      return dtype.bits == 32 ? NPY_FLOAT32 : dtype.bits == 64 ? NPY_FLOAT64 : dtype.bits == 16 ? NPY_FLOAT16 : -1;
    case kDLInt:
      return dtype.bits == 64 ? NPY_INT64 : dtype.bits == 32 ? NPY_INT32 : dtype.bits == 16 ? NPY_INT16 : NPY_INT8;
    case kDLUInt:
      return dtype.bits == 8 ? NPY_UINT8 : dtype.bits == 16 ? NPY_UINT16 : dtype.bits == 32 ? NPY_UINT32 : NPY_UINT64;
    case kDLComplex:
      return dtype.bits == 64 ? NPY_COMPLEX64 : NPY_COMPLEX128;
    case kDLBool:
      return NPY_BOOL;
    case kDLBfloat:
      return NPY_UINT16;
    case kDLFloat8_e4m3fn:
    case kDLFloat8_e4m3fnuz:
    case kDLFloat8_e5m2:
    case kDLFloat8_e5m2fnuz:
      return NPY_UINT8;
    default:
      return -1;
  }
}

// Those that numpy lacks and ml_dtypes has, by the same names.
bool is_of_ml_dtypes(DLDataType dtype) { return stands_for({kDLUInt, dtype.bits, 1}, dtype); }

bool dtype_of_array(PyArrayObject* array, DLDataType* out) {
  auto bits = static_cast<uint8_t>(PyArray_ITEMSIZE(array) * 8);
  int type = PyArray_TYPE(array);
  switch (type) {
    case NPY_HALF:
    case NPY_FLOAT:
    case NPY_DOUBLE:
      *out = {kDLFloat, bits, 1};
      return true;
    case NPY_BYTE:
    case NPY_SHORT:
    case NPY_INT:
    case NPY_LONG:
    case NPY_LONGLONG:
      *out = {kDLInt, bits, 1};
      return true;
    case NPY_UBYTE:
    case NPY_USHORT:
    case NPY_UINT:
    case NPY_ULONG:
    case NPY_ULONGLONG:
      *out = {kDLUInt, bits, 1};
      return true;
    case NPY_CFLOAT:
    case NPY_CDOUBLE:
      *out = {kDLComplex, bits, 1};
      return true;
    case NPY_BOOL:
      *out = {kDLBool, 8, 1};
      return true;
    default:
      break;
  }
  // ml_dtypes registers its types as such of their own, under numbers that differ from process to process.
  if (type < NPY_USERDEF) return false;
  const char* name = PyArray_DESCR(array)->typeobj->tp_name;
  const char* dot = std::strrchr(name, '.');
  return dtype_of_name(dot ? dot + 1 : name, out) && out->bits == bits && is_of_ml_dtypes(*out);
}

constexpr const char* kCapsule = "aotpack_tensor";

void release_capsule(PyObject* capsule) {
  auto* tensor = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule, kCapsule));
  if (tensor && tensor->deleter) tensor->deleter(tensor);
}

// A new reference to the descriptor of a type of ml_dtypes; null without an exception when that is not imported.
PyArray_Descr* ml_dtypes_descr(DLDataType dtype) {
  PyObject* module = imported_module("ml_dtypes");
  if (!module) return nullptr;
  Ref type = Ref::take(PyObject_GetAttrString(module, dtype_name(dtype)));
  PyArray_Descr* descr = nullptr;
  if (!type || !PyArray_DescrConverter(type.get(), &descr)) {
    PyErr_Clear();
    return nullptr;
  }
  return descr;
}

}  // namespace

bool numpy_ready(bool import) {
  if (g_ready) return true;
  // A numpy that is half imported, on another thread or further up the stack, has no interface yet.
  if (!import && !imported_module("numpy._core._multiarray_umath") &&
      !imported_module("numpy.core._multiarray_umath")) {
    return false;
  }
  if (PyArray_ImportNumPyAPI() < 0) {
    if (!import) PyErr_Clear();
    return false;
  }
  g_ready = true;
  return true;
}

bool is_numpy_array(PyObject* object) { return PyArray_Check(object); }

NumpyScalar numpy_scalar(PyObject* object) {
  if (!PyArray_IsScalar(object, Generic)) return NumpyScalar::kNone;
  if (PyArray_IsScalar(object, Bool)) return NumpyScalar::kBool;
  if (PyArray_IsScalar(object, Integer)) return NumpyScalar::kInteger;
  return PyArray_IsScalar(object, Floating) ? NumpyScalar::kFloating : NumpyScalar::kOther;
}

int numpy_rank(PyObject* object) { return PyArray_NDIM(reinterpret_cast<PyArrayObject*>(object)); }

NumpyView view_numpy(PyObject* object, bool writable, DLTensor* out_tensor, int64_t* strides) {
  auto* array = reinterpret_cast<PyArrayObject*>(object);
  if (!dtype_of_array(array, &out_tensor->dtype)) return NumpyView::kDtype;
  if (!PyArray_ISNOTSWAPPED(array)) return NumpyView::kByteOrder;
  if (writable && !PyArray_ISWRITEABLE(array)) return NumpyView::kReadOnly;
  static_assert(sizeof(npy_intp) == sizeof(int64_t));
  out_tensor->data = PyArray_DATA(array);
  out_tensor->device = {kDLCPU, 0};
  out_tensor->ndim = PyArray_NDIM(array);
  out_tensor->shape = reinterpret_cast<int64_t*>(PyArray_DIMS(array));
  out_tensor->strides = nullptr;
  out_tensor->byte_offset = 0;
  if (PyArray_IS_C_CONTIGUOUS(array)) return NumpyView::kOk;
  const npy_intp size = PyArray_ITEMSIZE(array);
  const npy_intp* bytes = PyArray_STRIDES(array);
  for (int i = 0; i < out_tensor->ndim; ++i) {
    if (bytes[i] % size != 0) return NumpyView::kStrides;
    strides[i] = bytes[i] / size;
  }
  out_tensor->strides = strides;
  return NumpyView::kOk;
}

PyObject* numpy_from_tensor(DLManagedTensorVersioned* tensor) {
  const DLTensor& t = tensor->dl_tensor;
  PyObject* capsule = PyCapsule_New(tensor, kCapsule, release_capsule);
  if (!capsule) {
    tensor->deleter(tensor);
    return nullptr;
  }
  PyArray_Descr* descr = is_of_ml_dtypes(t.dtype) ? ml_dtypes_descr(t.dtype) : nullptr;
  if (!descr) descr = PyArray_DescrFromType(typenum_of(t.dtype));
  npy_intp strides[kMaxNumpyRank];
  npy_intp* out_strides = nullptr;
  if (t.strides && t.ndim <= kMaxNumpyRank) {
    for (int i = 0; i < t.ndim; ++i) strides[i] = t.strides[i] * itemsize(t.dtype);
    out_strides = strides;
  }
  const bool read_only = (tensor->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
  PyObject* array = nullptr;
  if (descr) {
    array = PyArray_NewFromDescr(&PyArray_Type, descr, t.ndim, reinterpret_cast<npy_intp*>(t.shape), out_strides,
                                 static_cast<char*>(t.data) + t.byte_offset,
                                 read_only ? NPY_ARRAY_ALIGNED : NPY_ARRAY_BEHAVED, nullptr);
  }
  if (!array) {
    Py_DECREF(capsule);
    return nullptr;
  }
  // Takes the capsule over, also when it fails.
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array), capsule) < 0) {
    Py_DECREF(array);
    return nullptr;
  }
  return array;
}

}  // namespace aotpack::python
