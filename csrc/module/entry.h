// The one exported symbol of a module. The generated wrapper ends with AOTPACK_DEFINE_MODULE.
#pragma once

#include "import_names.h"
#include "run.h"
#include "shim.h"
#include "threads.h"

#define AOTPACK_DEFINE_MODULE(target_name, inputs, outputs, constants)                                \
  static int32_t aotpack_module_run(const aotpack_module_call* call) {                                \
    aotpack::module::ThreadCount threads(call->num_threads);                                          \
    return aotpack::module::run(call, inputs, outputs, constants);                                    \
  }                                                                                                   \
  AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, aotpack::module::kImportNames, \
                              aotpack_module_run, 0, 0, nullptr)
