#include "tensor_values.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "dtype.h"

namespace nb = nanobind;

namespace aotpack::python {
namespace {

template <typename T>
T read(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

double half_to_double(uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  double value;
  if (exponent == 31) {
    value = mantissa ? NAN : INFINITY;
  } else {
    value = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
  }
  return bits & 0x8000 ? -value : value;
}

// One of float8, of which `exponents` bits are the exponent, with this bias. Those without infinities and without a
// negative zero (`unsigned_zero`) have one NaN, in its place.
double float8_to_double(uint8_t bits, int exponents, int bias, bool unsigned_zero) {
  const int width = 7 - exponents;
  const int exponent = (bits & 0x7f) >> width;
  const int mantissa = bits & ((1 << width) - 1);
  double value;
  if (unsigned_zero ? bits == 0x80 : exponents == 4 && (bits & 0x7f) == 0x7f) {
    value = NAN;
  } else if (!unsigned_zero && exponents == 5 && exponent == 31) {
    value = mantissa ? NAN : INFINITY;
  } else {
    value = exponent ? std::ldexp((1 << width) + mantissa, exponent - bias - width)
                     : std::ldexp(mantissa, 1 - bias - width);
  }
  return bits & 0x80 ? -value : value;
}

PyObject* number(const char* at, DLDataType dtype) {
  switch (dtype.code) {
    case kDLBool:
      return PyBool_FromLong(read<uint8_t>(at) != 0);
    case kDLUInt:
      switch (dtype.bits) {
        case 8:
          return PyLong_FromLong(read<uint8_t>(at));
        case 16:
          return PyLong_FromLong(read<uint16_t>(at));
        case 32:
          return PyLong_FromUnsignedLong(read<uint32_t>(at));
        default:
          return PyLong_FromUnsignedLongLong(read<uint64_t>(at));
      }
    case kDLInt:
      switch (dtype.bits) {
        case 8:
          return PyLong_FromLong(read<int8_t>(at));
        case 16:
          return PyLong_FromLong(read<int16_t>(at));
        case 32:
          return PyLong_FromLong(read<int32_t>(at));
        default:
          return PyLong_FromLongLong(read<int64_t>(at));
      }
    case kDLBfloat:
      return PyFloat_FromDouble(std::bit_cast<float>(uint32_t{read<uint16_t>(at)} << 16));
    case kDLFloat8_e4m3fn:
      return PyFloat_FromDouble(float8_to_double(read<uint8_t>(at), 4, 7, false));
    case kDLFloat8_e4m3fnuz:
      return PyFloat_FromDouble(float8_to_double(read<uint8_t>(at), 4, 8, true));
    case kDLFloat8_e5m2:
      return PyFloat_FromDouble(float8_to_double(read<uint8_t>(at), 5, 15, false));
    case kDLFloat8_e5m2fnuz:
      return PyFloat_FromDouble(float8_to_double(read<uint8_t>(at), 5, 16, true));
    case kDLComplex:
      return dtype.bits == 64 ? PyComplex_FromDoubles(read<float>(at), read<float>(at + 4))
                              : PyComplex_FromDoubles(read<double>(at), read<double>(at + 8));
    default:
      return PyFloat_FromDouble(dtype.bits == 16   ? half_to_double(read<uint16_t>(at))
                                : dtype.bits == 32 ? static_cast<double>(read<float>(at))
                                                   : read<double>(at));
  }
}

PyObject* list_of(const Tensor& tensor, int dim, const char* at) {
  const DLTensor& t = tensor.get();
  if (dim == t.ndim) return number(at, t.dtype);
  PyObject* list = PyList_New(t.shape[dim]);
  const int64_t step = tensor.strides()[static_cast<size_t>(dim)] * itemsize(t.dtype);
  for (int64_t i = 0; list && i < t.shape[dim]; ++i) {
    PyObject* item = list_of(tensor, dim + 1, at + i * step);
    if (!item) {
      Py_CLEAR(list);
      break;
    }
    PyList_SET_ITEM(list, i, item);
  }
  return list;
}

char* copy_dim(const Tensor& tensor, int dim, const char* at, char* out) {
  const DLTensor& t = tensor.get();
  const auto size = static_cast<size_t>(itemsize(t.dtype));
  if (dim == t.ndim) {
    std::memcpy(out, at, size);
    return out + size;
  }
  const int64_t step = tensor.strides()[static_cast<size_t>(dim)] * itemsize(t.dtype);
  for (int64_t i = 0; i < t.shape[dim]; ++i) out = copy_dim(tensor, dim + 1, at + i * step, out);
  return out;
}

}  // namespace

void copy_elements(const Tensor& tensor, char* out) {
  if (tensor.size() > 0) copy_dim(tensor, 0, static_cast<const char*>(tensor.data()), out);
}

nb::object to_list(const Tensor& tensor) {
  PyObject* list = list_of(tensor, 0, static_cast<const char*>(tensor.data()));
  if (!list) throw nb::python_error();
  return nb::steal(list);
}

}  // namespace aotpack::python
