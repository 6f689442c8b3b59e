// The one exported symbol of a module for a device. The generated wrapper ends with AOTPACK_DEFINE_DEVICE_MODULE.
#pragma once

#include <iterator>

#include "run.h"

namespace aotpack::module {

#define AOTPACK_IMPORT_NAME(name) #name,
// Only modules that describe matrices, or use libraries, need what not every runtime has.
inline constexpr const char* kImportNames[] = {AOTPACK_MODULE_IMPORTS(AOTPACK_IMPORT_NAME)
                                                   AOTPACK_DEVICE_IMPORTS(AOTPACK_IMPORT_NAME)
#ifdef AOTPACK_MODULE_HAS_TENSOR_MAPS
                                                       AOTPACK_TENSOR_MAP_IMPORTS(AOTPACK_IMPORT_NAME)
#endif
#ifdef AOTPACK_MODULE_HAS_PROVIDERS
                                                           AOTPACK_PROVIDER_IMPORTS(AOTPACK_IMPORT_NAME)
#endif
};
#undef AOTPACK_IMPORT_NAME

}  // namespace aotpack::module

// `features`: AOTPACK_MODULE_FEATURE_*; `assets`: an array of the names of the module's assets, which ends with a null
// pointer.
#define AOTPACK_DEFINE_DEVICE_MODULE(target_name, inputs, outputs, constants, features, assets)       \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                                \
    return aotpack::module::run(call, inputs, outputs, constants);                                    \
  }                                                                                                   \
  AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, aotpack::module::kImportNames, \
                              aotpack_module_run, features, std::size(assets) - 1, assets)
