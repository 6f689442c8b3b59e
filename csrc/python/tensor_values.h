// The elements of a tensor: copied together, or as Python numbers.
#pragma once

#include <nanobind/nanobind.h>

#include "tensor.h"

namespace aotpack::python {

// Writes all elements to `out`, row-major.
void copy_elements(const Tensor& tensor, char* out);

// Nested lists of Python numbers. Throws nanobind::python_error.
nanobind::object to_list(const Tensor& tensor);

}  // namespace aotpack::python
