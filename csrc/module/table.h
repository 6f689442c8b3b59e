// The table of a module, and the one function that it exports. Without the standard library.
#pragma once

#include "aotpack/module_abi.h"

// Defines the exported function. `imports` is an array of names; `assets` one of `num_assets` names, or null.
#define AOTPACK_DEFINE_MODULE_TABLE(target_name, inputs, outputs, constants, imports, run, features, num_assets, \
                                    assets)                                                                      \
  extern "C" __attribute__((visibility("default"))) const aotpack_module* aotpack_module_query(                  \
      uint32_t max_abi_version) {                                                                                \
    static const aotpack_module module = {AOTPACK_MODULE_ABI_VERSION,                                            \
                                          sizeof(aotpack_module),                                                \
                                          target_name,                                                           \
                                          inputs,                                                                \
                                          outputs,                                                               \
                                          constants,                                                             \
                                          sizeof(imports) / sizeof(*(imports)),                                  \
                                          imports,                                                               \
                                          run,                                                                   \
                                          features,                                                              \
                                          num_assets,                                                            \
                                          0,                                                                     \
                                          assets};                                                               \
    return max_abi_version >= AOTPACK_MODULE_ABI_VERSION ? &module : nullptr;                                    \
  }
