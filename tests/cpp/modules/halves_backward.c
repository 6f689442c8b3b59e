/* Of what halves.c keeps (y, square, x) and a gradient g[batch, 4]: y + square + x + 10 * g + 100 * w. */
#include "module.h"

static const char* const names[] = {"alloc"};

static float element(const aotpack_module_tensor* tensor, int64_t i, int64_t j) {
  return ((const float*)tensor->data)[i * tensor->strides[0] + j * tensor->strides[1]];
}

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* in = call->inputs;
  const float* w = call->constants[0].data;
  const int64_t rows = in[0].sizes[0];
  aotpack_module_tensor* out = &call->outputs[0];
  float* data = import_alloc(call, 0, (size_t)rows * 4 * sizeof(float));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < 4; ++j) {
      data[i * 4 + j] = element(&in[0], i, j) + element(&in[1], i, j) + element(&in[2], i, j) +
                        10 * element(&in[3], i, j) + 100 * w[j];
    }
  }
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 2;
  out->sizes[0] = rows, out->sizes[1] = 4;
  out->strides[0] = 4, out->strides[1] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 4, 1, 1, names)
