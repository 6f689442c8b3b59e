/* mask (bool, rank 2), flag (bool, rank 0), marks (bool [4], written to) and the constants keep and seen (bool [4]) ->
 * all their bytes, as the module sees them: uint8. Then marks[0] becomes its opposite. */
#include "module.h"

static const char* const names[] = {"alloc"};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* mask = &call->inputs[0];
  const int64_t count = mask->sizes[0] * mask->sizes[1];
  uint8_t* data = import_alloc(call, 0, (size_t)count + 13);
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  memcpy(data, mask->data, (size_t)count);
  memcpy(data + count, call->inputs[1].data, 1);
  memcpy(data + count + 1, call->inputs[2].data, 4);
  memcpy(data + count + 5, call->constants[0].data, 4);
  memcpy(data + count + 9, call->constants[1].data, 4);
  uint8_t* marks = call->inputs[2].data;
  marks[0] = marks[0] ^ 1;
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_UINT8;
  out->rank = 1;
  out->sizes[0] = count + 13;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 3, 1, 2, names)
