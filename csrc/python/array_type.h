// What we know about the Python types that callers pass; learnt once per type.
#ifndef AOTPACK_PYTHON_ARRAY_TYPE_H_
#define AOTPACK_PYTHON_ARRAY_TYPE_H_

#include <Python.h>

#include "argument.h"

namespace aotpack::python {

struct ArrayType {
  PyTypeObject* type;
  ArrayKind kind;
  bool has_dlpack;
  bool has_buffer;
};

// Needs the GIL. The reference stays valid until the next call.
const ArrayType& array_type(PyTypeObject* type);

}  // namespace aotpack::python

#endif  // AOTPACK_PYTHON_ARRAY_TYPE_H_
