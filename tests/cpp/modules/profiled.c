/* y = x of rank 0 (float32). Two kernels: the second runs x times; a negative x fails inside of the first. */
#include "module.h"

static const char* const names[] = {"alloc", "fail", "mark"};

static void mark(const aotpack_module_call* call, uint32_t kernel, uint32_t end) {
  ((aotpack_import_mark_fn)call->imports[2])(call->runtime, kernel, end);
}

static int32_t run(const aotpack_module_call* call) {
  const float x = *(const float*)call->inputs[0].data;
  mark(call, 0, 0);
  if (x < 0) {
    import_fail(call, 1, AOTPACK_MODULE_INVALID_ARGUMENT, "x is negative");
    return AOTPACK_MODULE_INVALID_ARGUMENT;
  }
  float* data = import_alloc(call, 0, sizeof(float));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  mark(call, 0, 1);
  for (int i = 0; i < x; ++i) {
    mark(call, 1, 0);
    *data = (float)i;
    mark(call, 1, 1);
  }
  *data = x;
  aotpack_module_tensor* y = &call->outputs[0];
  y->data = y->block = data;
  y->dtype = AOTPACK_DTYPE_FLOAT32;
  y->rank = 0;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 1, 0, names)
