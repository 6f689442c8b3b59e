// Results of a call as arrays of the library that the inputs came from.
#pragma once

#include <Python.h>

#include "argument.h"

namespace aotpack::python {

// A new array over `tensor`'s memory, which takes `tensor` over, also when it fails (null and an exception).
PyObject* wrap_result(DLManagedTensorVersioned* tensor, const ArrayKind& kind);

}  // namespace aotpack::python
