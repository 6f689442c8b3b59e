/* The module of bench/checks.py: ten inputs, one empty output, nothing done. */
#include "aotpack/module_abi.h"

static int32_t run(const aotpack_module_call* call) {
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = 0;
  out->block = 0;
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 1;
  out->sizes[0] = 0;
  out->strides[0] = 1;
  call->output_devices[0] = call->device;
  return AOTPACK_MODULE_OK;
}

static const aotpack_module table = {
    AOTPACK_MODULE_ABI_VERSION, sizeof(aotpack_module), "x86-64", 10, 1, 0, 0, 0, run, 0, 0, 0, 0,
};

__attribute__((visibility("default"))) const aotpack_module* aotpack_module_query(uint32_t max_abi_version) {
  return max_abi_version >= AOTPACK_MODULE_ABI_VERSION ? &table : 0;
}
