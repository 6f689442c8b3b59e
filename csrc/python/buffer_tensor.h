// Tensors over the memory of other objects: what arrives as bytes, of any dtype, without an array library.
#pragma once

#include <nanobind/nanobind.h>

#include "aotpack/dlpack.h"

namespace aotpack::python {

// A tensor in row-major order over what `buffer` holds, which it keeps; over a copy where the memory is not aligned for
// the dtype. Null with an exception.
DLManagedTensorVersioned* tensor_from_buffer(PyObject* buffer, const char* dtype, nanobind::handle shape);

}  // namespace aotpack::python
