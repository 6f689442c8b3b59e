// Weights of a model and state of a context, from and to Python.
#pragma once

#include <nanobind/nanobind.h>

#include "runner.h"

namespace aotpack::python {

// The methods of Runner that concern them.
void bind_weights(nanobind::class_<Runner>& runner);

}  // namespace aotpack::python
