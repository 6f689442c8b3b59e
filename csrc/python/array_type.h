// What we know about the Python types that callers pass; learnt once per type.
#pragma once

#include <Python.h>

#include "argument.h"

namespace aotpack::python {

struct ArrayType {
  PyTypeObject* type = nullptr;
  ArrayKind kind;
  bool has_dlpack = false;
  bool has_buffer = false;
};

// Needs the GIL.
ArrayType array_type(PyTypeObject* type);

}  // namespace aotpack::python
