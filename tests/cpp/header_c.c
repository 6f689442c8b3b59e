/* The public headers are C. */
#include "aotpack/aotpack.h"
#include "aotpack/module_abi.h"

aotpack_code aotpack_header_probe(void);
aotpack_code aotpack_header_probe(void) {
  aotpack_load_options options = {.struct_size = sizeof options, .verify = AOTPACK_VERIFY_FULL};
  return options.struct_size > 0 ? AOTPACK_OK : AOTPACK_INTERNAL;
}
