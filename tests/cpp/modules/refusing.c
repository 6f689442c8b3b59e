/* A module for callers of a later ABI only. */
#include "module.h"

EXPORT const aotpack_module* aotpack_module_query(uint32_t max_abi_version);
EXPORT const aotpack_module* aotpack_module_query(uint32_t max_abi_version) {
  (void)max_abi_version;
  return NULL;
}
