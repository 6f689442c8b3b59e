/* Returns the input's memory as it lies there, flattened: x of any layout and dynamic sizes [n, c, h, w] -> int32 [?].
 */
#include "module.h"

static const char* const names[] = {"alloc"};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const int64_t count = x->sizes[0] * x->sizes[1] * x->sizes[2] * x->sizes[3];
  int32_t* data = import_alloc(call, 0, (size_t)count * sizeof(int32_t));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  if (count > 0) memcpy(data, x->data, (size_t)count * sizeof(int32_t));
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_INT32;
  out->rank = 1;
  out->sizes[0] = count;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 1, 0, names)
