// From statuses of the C interface to the exceptions of aotpack.errors.
#pragma once

#include <Python.h>

#include <string>

#include "aotpack/aotpack.h"

namespace aotpack::python {

// Sets a Python exception of the class `name` of aotpack.errors. `hint` may be null. Needs the GIL.
void set_error(const char* name, const std::string& message, const char* hint = nullptr);

// Consumes `status`. False, with a Python exception set, when it is an error. Needs the GIL.
bool check(aotpack_status* status);

// The same, but what the caller gave wrongly is a WeightsError with this hint.
bool check_weights(aotpack_status* status, const char* hint);

}  // namespace aotpack::python
