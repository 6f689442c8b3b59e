// The functions that every module for a CPU asks of the runtime. Without the standard library.
#pragma once

#include "aotpack/module_abi.h"

namespace aotpack::module {

#define AOTPACK_IMPORT_NAME(name) #name,
inline constexpr const char* kImportNames[] = {AOTPACK_MODULE_IMPORTS(AOTPACK_IMPORT_NAME)};
#undef AOTPACK_IMPORT_NAME

}  // namespace aotpack::module
