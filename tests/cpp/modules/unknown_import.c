/* Asks for something that no runtime has. */
#include "module.h"

static const char* const names[] = {"alloc", "teleport"};

static int32_t run(const aotpack_module_call* call) {
  (void)call;
  return AOTPACK_MODULE_FAILED;
}

DEFINE_MODULE("x86-64", 1, 1, 1, names)
