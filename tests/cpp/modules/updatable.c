/* See updatable_archive in fixtures.h. With FOLD: packed[4] = weight[4] * gain[4]. */
#include "module.h"

static const char* const names[] = {"alloc", "fail"};

static void* vector(const aotpack_module_call* call, int index, int32_t dtype, size_t item, int64_t size) {
  aotpack_module_tensor* out = &call->outputs[index];
  out->data = out->block = import_alloc(call, 0, (size_t)size * item);
  out->dtype = dtype;
  out->rank = 1;
  out->sizes[0] = size;
  out->strides[0] = 1;
  return out->data;
}

#ifdef FOLD

static int32_t run(const aotpack_module_call* call) {
  const float* weight = call->inputs[0].data;
  const float* gain = call->inputs[1].data;
  if (gain[0] == 0) {
    import_fail(call, 1, AOTPACK_MODULE_INVALID_ARGUMENT, "gain begins with 0");
    return AOTPACK_MODULE_INVALID_ARGUMENT;
  }
  float* packed = vector(call, 0, AOTPACK_DTYPE_FLOAT32, sizeof(float), 4);
  if (packed == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int i = 0; i < 4; ++i) packed[i] = weight[i] * gain[i];
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 2, 1, 0, names)

#else

enum { WEIGHT, BIAS, PACKED, MATRIX, COUNT, BULK };

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const aotpack_module_tensor* matrix = &call->constants[MATRIX];
  const float* bias = call->constants[BIAS].data;
  const float* packed = call->constants[PACKED].data;
  const int64_t rows = x->sizes[0];
  float* y = vector(call, 0, AOTPACK_DTYPE_FLOAT32, sizeof(float), rows * 4);
  call->outputs[0].rank = 2;
  call->outputs[0].sizes[0] = rows, call->outputs[0].sizes[1] = 4;
  call->outputs[0].strides[0] = 4, call->outputs[0].strides[1] = 1;
  for (int64_t i = 0; i < rows * 4; ++i) y[i] = ((const float*)x->data)[i] * packed[i % 4] + bias[i % 4];

  aotpack_module_tensor* weight = &call->outputs[1];
  *weight = call->constants[WEIGHT];
  weight->block = NULL;

  /* Slow enough for an update to fall into it. */
  float* sum = vector(call, 2, AOTPACK_DTYPE_FLOAT32, sizeof(float), 1);
  *sum = 0;
  for (volatile int round = 0; round < 16; ++round) {
    for (int i = 0; i < 4; ++i) *sum += packed[i] + bias[i];
    for (int i = 0; i < 2; ++i) {
      for (int j = 0; j < 3; ++j) {
        *sum += (float)(i * 3 + j) * ((const float*)matrix->data)[i * matrix->strides[0] + j * matrix->strides[1]];
      }
    }
  }
  int64_t* count = vector(call, 3, AOTPACK_DTYPE_INT64, sizeof(int64_t), 1);
  *count = ++*(int64_t*)call->constants[COUNT].data;
  float* bulk = vector(call, 4, AOTPACK_DTYPE_FLOAT32, sizeof(float), 1);
  *bulk = *(float*)call->constants[BULK].data += 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 5, 6, names)

#endif
