/* Fails in the way that the input, an int64 scalar, says. Output: float32 [2]. */
#include "module.h"

static const char* const names[] = {"alloc", "fail"};

static int32_t run(const aotpack_module_call* call) {
  aotpack_module_tensor* out = &call->outputs[0];
  switch (*(const int64_t*)call->inputs[0].data) {
    case 0:
      import_fail(call, 1, AOTPACK_MODULE_INVALID_ARGUMENT, "index 50 is out of range [0, 10)");
      return AOTPACK_MODULE_INVALID_ARGUMENT;
    case 1:
      return import_alloc(call, 0, (size_t)1 << 62) == NULL ? AOTPACK_MODULE_FAILED : AOTPACK_MODULE_OK;
    case 2:
      return AOTPACK_MODULE_FAILED;
    case 3:
      return 77;
    case 4:
      return AOTPACK_MODULE_OUT_OF_MEMORY;
    case 5: /* the first reason counts */
      import_fail(call, 1, AOTPACK_MODULE_FAILED, "first");
      import_fail(call, 1, AOTPACK_MODULE_INVALID_ARGUMENT, "second");
      return AOTPACK_MODULE_FAILED;
    default: /* succeeds; 6: with a shape that is not the manifest's */
      break;
  }
  float* data = import_alloc(call, 0, 3 * sizeof(float));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  data[0] = 1, data[1] = 2, data[2] = 3;
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 1;
  out->sizes[0] = *(const int64_t*)call->inputs[0].data == 6 ? 3 : 2;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 1, 0, names)
