// The elements of a tensor: copied together, or as Python numbers.
#ifndef AOTPACK_PYTHON_TENSOR_VALUES_H_
#define AOTPACK_PYTHON_TENSOR_VALUES_H_

#include <nanobind/nanobind.h>

#include "tensor.h"

namespace aotpack::python {

// Writes all elements to `out`, row-major.
void copy_elements(const Tensor& tensor, char* out);

// Nested lists of Python numbers. Throws nanobind::python_error.
nanobind::object to_list(const Tensor& tensor);

}  // namespace aotpack::python

#endif  // AOTPACK_PYTHON_TENSOR_VALUES_H_
