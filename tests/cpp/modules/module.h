/* Shared by the hand-written modules. */
#pragma once

#include <string.h>

#include "aotpack/module_abi.h"

#define EXPORT __attribute__((visibility("default")))

/* The table of a module of this version of the ABI, and the function that returns it. */
#define DEFINE_TABLE(module_target, inputs, outputs, constants, names, run_function, features, asset_count, assets) \
  static const aotpack_module table = {AOTPACK_MODULE_ABI_VERSION,                                                  \
                                       sizeof(aotpack_module),                                                      \
                                       module_target,                                                               \
                                       inputs,                                                                      \
                                       outputs,                                                                     \
                                       constants,                                                                   \
                                       sizeof(names) / sizeof((names)[0]),                                          \
                                       names,                                                                       \
                                       run_function,                                                                \
                                       features,                                                                    \
                                       asset_count,                                                                 \
                                       0,                                                                           \
                                       assets};                                                                     \
  EXPORT const aotpack_module* aotpack_module_query(uint32_t max_abi_version);                                      \
  EXPORT const aotpack_module* aotpack_module_query(uint32_t max_abi_version) {                                     \
    return max_abi_version >= AOTPACK_MODULE_ABI_VERSION ? &table : NULL;                                           \
  }

/* The same for a `run` that leaves it to this macro to say that its outputs are where it runs. */
#define DEFINE_MODULE(module_target, inputs, outputs, constants, names)         \
  static int32_t run_with_devices(const aotpack_module_call* call) {            \
    const int32_t code = run(call);                                             \
    for (int i = 0; i < (outputs); ++i) call->output_devices[i] = call->device; \
    return code;                                                                \
  }                                                                             \
  DEFINE_TABLE(module_target, inputs, outputs, constants, names, run_with_devices, 0, 0, NULL)

static inline void* import_alloc(const aotpack_module_call* call, size_t which, size_t bytes) {
  return ((aotpack_import_alloc_fn)call->imports[which])(call->runtime, bytes);
}
static inline void import_fail(const aotpack_module_call* call, size_t which, int32_t code, const char* message) {
  ((aotpack_import_fail_fn)call->imports[which])(call->runtime, code, message, strlen(message));
}
