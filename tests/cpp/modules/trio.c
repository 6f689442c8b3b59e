/* Two inputs of any kind and the int64 n of rank 0 -> int64 [n], filled with the first size of the first input. */
#include "module.h"

static const char* const names[] = {"alloc"};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const int64_t count = *(const int64_t*)call->inputs[2].data;
  int64_t* data = import_alloc(call, 0, (size_t)count * sizeof(int64_t));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int64_t i = 0; i < count; ++i) data[i] = x->rank > 0 ? x->sizes[0] : 0;
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_INT64;
  out->rank = 1;
  out->sizes[0] = count;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 3, 1, 0, names)
