/* y[batch, 4] = FACTOR * x[batch, 4] + w[4] */
#include "module.h"

#ifndef FACTOR
#define FACTOR 2.0f
#endif
#ifndef TARGET
#define TARGET "x86-64"
#endif

static const char* const names[] = {"alloc", "free"};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const aotpack_module_tensor* w = &call->constants[0];
  aotpack_module_tensor* y = &call->outputs[0];
  const int64_t rows = x->sizes[0];
  const int64_t columns = x->sizes[1];
  float* data = import_alloc(call, 0, (size_t)(rows * columns) * sizeof(float));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      data[i * columns + j] =
          FACTOR * ((const float*)x->data)[i * x->strides[0] + j * x->strides[1]] + ((const float*)w->data)[j];
    }
  }
  y->data = y->block = data;
  y->dtype = AOTPACK_DTYPE_FLOAT32;
  y->rank = 2;
  y->sizes[0] = rows, y->sizes[1] = columns;
  y->strides[0] = columns, y->strides[1] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE(TARGET, 1, 1, 1, names)
