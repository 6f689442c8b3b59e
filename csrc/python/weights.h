// Weights of a model and state of a context, from and to Python.
#ifndef AOTPACK_PYTHON_WEIGHTS_H_
#define AOTPACK_PYTHON_WEIGHTS_H_

#include <nanobind/nanobind.h>

#include "runner.h"

namespace aotpack::python {

// The methods of Runner that concern them.
void bind_weights(nanobind::class_<Runner>& runner);

}  // namespace aotpack::python

#endif  // AOTPACK_PYTHON_WEIGHTS_H_
