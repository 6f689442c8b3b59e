/* Says where its output is as its input tells: y[2] = x[2], on the device of type x[0] and number x[1]. Says nothing
 * where x[0] is negative. */
#include "module.h"

static const char* const names[] = {"alloc"};

static int32_t run(const aotpack_module_call* call) {
  const int64_t* x = call->inputs[0].data;
  int64_t* y = import_alloc(call, 0, 2 * sizeof(int64_t));
  if (y == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  memcpy(y, x, 2 * sizeof(int64_t));
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = y;
  out->dtype = AOTPACK_DTYPE_INT64;
  out->rank = 1;
  out->sizes[0] = 2;
  out->strides[0] = 1;
  if (x[0] >= 0) call->output_devices[0] = (aotpack_module_device){(int32_t)x[0], (int32_t)x[1]};
  return AOTPACK_MODULE_OK;
}

DEFINE_TABLE("x86-64", 1, 1, 0, names, run, 0, 0, NULL)
