// Where each import is in the array of a call.
#pragma once

#include <cstddef>

#include "aotpack/module_abi.h"

namespace aotpack::module {

#define AOTPACK_IMPORT_INDEX(name) import_##name,
enum Import : size_t {
  AOTPACK_MODULE_IMPORTS(AOTPACK_IMPORT_INDEX) AOTPACK_DEVICE_IMPORTS(AOTPACK_IMPORT_INDEX)
      AOTPACK_TENSOR_MAP_IMPORTS(AOTPACK_IMPORT_INDEX) AOTPACK_PROVIDER_IMPORTS(AOTPACK_IMPORT_INDEX)
};
#undef AOTPACK_IMPORT_INDEX

}  // namespace aotpack::module
