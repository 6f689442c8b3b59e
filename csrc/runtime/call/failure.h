// What a module that fails means for the caller.
#pragma once

#include <cstdint>
#include <string>

#include "hal/imports.h"

namespace aotpack::runtime {

// After a module has returned `code`: gives back what it has allocated, and throws the error of the call. `what` names
// the module.
[[noreturn]] void throw_failure(CallState* state, const std::string& what, int32_t code);

}  // namespace aotpack::runtime
