/* Two int64 inputs of any shape; returns float32 [2], zeros. */
#include "module.h"

static const char* const names[] = {"alloc", "fail"};

static int32_t run(const aotpack_module_call* call) {
  float* data = import_alloc(call, 0, 2 * sizeof(float));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  data[0] = data[1] = 0;
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 1;
  out->sizes[0] = 2;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 2, 1, 0, names)
