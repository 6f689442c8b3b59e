#include "number.h"

#include <cstring>

#include "numpy_bridge.h"
#include "object.h"

namespace aotpack::python {
namespace {

// What an object is, numpy's scalars among the others.
NumpyScalar kind_of(PyObject* object) {
  if (PyBool_Check(object)) return NumpyScalar::kBool;
  if (PyLong_Check(object)) return NumpyScalar::kInteger;
  if (PyFloat_Check(object)) return NumpyScalar::kFloating;
  return numpy_ready() ? numpy_scalar(object) : NumpyScalar::kNone;
}

NumberRead read_integer(PyObject* object, int64_t* out) {
  Ref integer = Ref::take(PyNumber_Index(object));
  int overflow = 0;
  *out = integer ? PyLong_AsLongLongAndOverflow(integer.get(), &overflow) : 0;
  PyErr_Clear();
  return !integer ? NumberRead::kOther : overflow != 0 ? NumberRead::kTooLarge : NumberRead::kOk;
}

NumberRead read_real(PyObject* object, double* out) {
  *out = PyFloat_AsDouble(object);
  if (*out != -1.0 || !PyErr_Occurred()) return NumberRead::kOk;
  PyErr_Clear();
  return NumberRead::kTooLarge;
}

}  // namespace

NumberRead read_number(PyObject* object, aotpack_number kind, Number* out) {
  const NumpyScalar given = kind_of(object);
  if (given == NumpyScalar::kNone) return NumberRead::kNone;
  if (kind == AOTPACK_NUMBER_BOOL && given == NumpyScalar::kBool) {
    out->boolean = PyObject_IsTrue(object) == 1;
    return NumberRead::kOk;
  }
  if (kind == AOTPACK_NUMBER_INT && given == NumpyScalar::kInteger) return read_integer(object, &out->integer);
  if (kind == AOTPACK_NUMBER_FLOAT && (given == NumpyScalar::kInteger || given == NumpyScalar::kFloating)) {
    return read_real(object, &out->real);
  }
  return NumberRead::kOther;
}

DLDataType number_dtype(aotpack_number kind) {
  switch (kind) {
    case AOTPACK_NUMBER_FLOAT:
      return {kDLFloat, 64, 1};
    case AOTPACK_NUMBER_BOOL:
      return {kDLBool, 8, 1};
    default:
      return {kDLInt, 64, 1};
  }
}

const char* describe_number(aotpack_number kind) {
  switch (kind) {
    case AOTPACK_NUMBER_FLOAT:
      return "a float";
    case AOTPACK_NUMBER_BOOL:
      return "a bool";
    default:
      return "an int";
  }
}

PyObject* number_object(const DLTensor& tensor, aotpack_number kind) {
  const char* data = static_cast<const char*>(tensor.data) + tensor.byte_offset;
  Number number{};
  std::memcpy(&number, data, static_cast<size_t>(number_dtype(kind).bits / 8));
  switch (kind) {
    case AOTPACK_NUMBER_FLOAT:
      return PyFloat_FromDouble(number.real);
    case AOTPACK_NUMBER_BOOL:
      return PyBool_FromLong(number.boolean);
    default:
      return PyLong_FromLongLong(number.integer);
  }
}

}  // namespace aotpack::python
