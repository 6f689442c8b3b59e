/* Outputs of every kind of ownership, from x[4], w[4]:
 *   0: the constant itself; 1: the input itself; 2 and 3: the same block, 3 a view of its second half;
 *   4: a transposed view of a [2, 3] block, not dense in the order that the manifest gives. */
#include "module.h"

static const char* const names[] = {"alloc", "free"};

static void vector(aotpack_module_tensor* out, void* data, void* block, int64_t size) {
  out->data = data;
  out->block = block;
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 1;
  out->sizes[0] = size;
  out->strides[0] = 1;
}

static int32_t run(const aotpack_module_call* call) {
  vector(&call->outputs[0], call->constants[0].data, NULL, 4);
  vector(&call->outputs[1], call->inputs[0].data, NULL, 4);
  float* block = import_alloc(call, 0, 64);
  if (block == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int i = 0; i < 8; ++i) block[i] = (float)i;
  vector(&call->outputs[2], block, block, 4);
  vector(&call->outputs[3], block + 4, block, 4);
  float* matrix = import_alloc(call, 0, 6 * sizeof(float));
  if (matrix == NULL) {
    ((aotpack_import_free_fn)call->imports[1])(call->runtime, block);
    return AOTPACK_MODULE_OUT_OF_MEMORY;
  }
  for (int i = 0; i < 6; ++i) matrix[i] = (float)i;
  aotpack_module_tensor* out = &call->outputs[4];
  out->data = out->block = matrix;
  out->dtype = AOTPACK_DTYPE_FLOAT32;
  out->rank = 2;
  out->sizes[0] = 3, out->sizes[1] = 2;
  out->strides[0] = 1, out->strides[1] = 3;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 5, 1, names)
