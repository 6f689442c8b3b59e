// Python numbers that are part of a signature: to the runtime they are tensors of rank 0, int64, float64 or bool.
#pragma once

#include <Python.h>

#include "aotpack/aotpack.h"

namespace aotpack::python {

// The one element of such a tensor.
union Number {
  int64_t integer;
  double real;
  bool boolean;
};

enum class NumberRead : uint8_t {
  kOk,
  kNone,      // no number at all
  kOther,     // a number of another type
  kTooLarge,  // has no 64 bits
};

// Reads a Python number or numpy scalar as `kind`. An int passes for a float; a bool is neither, and only a bool is a
// bool. Sets no exception. Needs the GIL.
NumberRead read_number(PyObject* object, aotpack_number kind, Number* out);

// The dtype of the tensors of this kind.
DLDataType number_dtype(aotpack_number kind);

// "an int", "a float", "a bool".
const char* describe_number(aotpack_number kind);

// The Python number that a tensor of rank 0 and of this kind's dtype holds; null with an exception on failure.
PyObject* number_object(const DLTensor& tensor, aotpack_number kind);

}  // namespace aotpack::python
