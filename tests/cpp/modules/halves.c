/* y[batch, 4] = x[batch, 4] * w[4], and x * x for the backward. */
#include "module.h"

static const char* const names[] = {"alloc"};

static float* make(const aotpack_module_call* call, int index) {
  const int64_t rows = call->inputs[0].sizes[0];
  aotpack_module_tensor* out = &call->outputs[index];
  out->data = out->block = import_alloc(call, 0, (size_t)rows * 4 * sizeof(float));
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 2;
  out->sizes[0] = rows, out->sizes[1] = 4;
  out->strides[0] = 4, out->strides[1] = 1;
  return out->data;
}

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const float* w = call->constants[0].data;
  float* y = make(call, 0);
  float* square = make(call, 1);
  if (y == NULL || square == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int64_t i = 0; i < x->sizes[0]; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      const float value = ((const float*)x->data)[i * x->strides[0] + j * x->strides[1]];
      y[i * 4 + j] = value * w[j];
      square[i * 4 + j] = value * value;
    }
  }
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 2, 1, names)
