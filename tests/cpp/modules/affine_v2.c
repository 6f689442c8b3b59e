/* The same for another variant or target: y = 3 * x + w, and it says that it is for x86-64-v2. */
#define FACTOR 3.0f
#include "module.h"

#undef DEFINE_MODULE
#define DEFINE_MODULE(module_target, inputs, outputs, constants, names)         \
  static const aotpack_module table = {AOTPACK_MODULE_ABI_VERSION,              \
                                       sizeof(aotpack_module),                  \
                                       "x86-64-v2",                             \
                                       inputs,                                  \
                                       outputs,                                 \
                                       constants,                               \
                                       sizeof(names) / sizeof((names)[0]),      \
                                       names,                                   \
                                       run};                                    \
  EXPORT const aotpack_module* aotpack_module_query(uint32_t max_abi_version);  \
  EXPORT const aotpack_module* aotpack_module_query(uint32_t max_abi_version) { \
    return max_abi_version >= AOTPACK_MODULE_ABI_VERSION ? &table : NULL;       \
  }
#include "affine.c"
