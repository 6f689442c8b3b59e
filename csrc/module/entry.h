// The one exported symbol of a module. The generated wrapper ends with AOTPACK_DEFINE_MODULE.
#pragma once

#include <iterator>

#include "run.h"
#include "shim.h"
#include "threads.h"

namespace aotpack::module {

#define AOTPACK_IMPORT_NAME(name) #name,
inline constexpr const char* kImportNames[] = {AOTPACK_MODULE_IMPORTS(AOTPACK_IMPORT_NAME)};
#undef AOTPACK_IMPORT_NAME

}  // namespace aotpack::module

#define AOTPACK_DEFINE_MODULE(target_name, inputs, outputs, constants)                                \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                                \
    aotpack::module::ThreadCount threads(call->num_threads);                                          \
    return aotpack::module::run(call, inputs, outputs, constants);                                    \
  }                                                                                                   \
  AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, aotpack::module::kImportNames, \
                              aotpack_module_run, 0, 0, nullptr)
