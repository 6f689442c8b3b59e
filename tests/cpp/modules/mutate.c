/* Adds one to every element of x[4] in place and to the constant `count`; returns `count` and the number of threads. */
#include "module.h"

static const char* const names[] = {"alloc"};

static int32_t run(const aotpack_module_call* call) {
  float* x = call->inputs[0].data;
  int64_t* count = call->constants[0].data;
  int64_t* result = import_alloc(call, 0, 2 * sizeof(int64_t));
  if (result == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int i = 0; i < 4; ++i) x[i] += 1;
  result[0] = ++*count;
  result[1] = call->num_threads;
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = result;
  out->dtype = AOTPACK_DTYPE_INT64;
  out->rank = 1;
  out->sizes[0] = 2;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 1, 1, names)
