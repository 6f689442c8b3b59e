// The only place that knows numpy's C interface. numpy is never imported unless a caller asks for its arrays.
#pragma once

#include <Python.h>

#include "aotpack/dlpack.h"

namespace aotpack::python {

// Whether numpy's interface is at hand. Looks for it when numpy has been imported since the last call; with `import`
// imports it: then false means that a Python exception is set.
bool numpy_ready(bool import = false);

// Whether `object` is a numpy array; needs numpy_ready().
bool is_numpy_array(PyObject* object);

// Which of numpy's scalars `object` is; needs numpy_ready().
enum class NumpyScalar { kNone, kBool, kInteger, kFloating, kOther };
NumpyScalar numpy_scalar(PyObject* object);

enum class NumpyView { kOk, kDtype, kByteOrder, kStrides, kReadOnly };

// Borrows the array's memory. `strides` has room for AOTPACK_PYTHON_MAX_RANK. Needs is_numpy_array(object) and a rank
// of at most that.
NumpyView view_numpy(PyObject* object, bool writable, DLTensor* out_tensor, int64_t* strides);
int numpy_rank(PyObject* object);

// A new array over `tensor`'s memory, which takes `tensor` over, also when it fails (null and an exception). bfloat16
// and float8 become those of ml_dtypes when that is imported, else uint16 and uint8. Needs numpy_ready().
PyObject* numpy_from_tensor(DLManagedTensorVersioned* tensor);

}  // namespace aotpack::python
