/* From x[4] and the number k: a fill of int64 [3] with k, one of uint8 [5] with 7, and a table of the host, float [2, 3]
 * that is returned transposed. Refuses an x that begins with a negative number, fails for one that begins with 1000, and
 * launches a kernel that does not end well for one that begins with 2000. */
#include "cuda.h"

static const char* const assets[] = {"device_assert.cubin"};

static int32_t fill(const aotpack_module_call* call, size_t index, uint64_t value, size_t item, size_t count) {
  return ((aotpack_import_fill_fn)call->imports[FILL])(call->runtime, call->outputs[index].data, value, item, count);
}

static int32_t fill_outputs(const aotpack_module_call* call) {
  static const float table[6] = {0, 1, 2, 3, 4, 5};
  float first = 0;
  int32_t code =
      ((aotpack_import_download_fn)call->imports[DOWNLOAD])(call->runtime, &first, call->inputs[0].data, sizeof first);
  if (code != AOTPACK_MODULE_OK) return code;
  if (first < 0) {
    import_fail(call, FAIL, AOTPACK_MODULE_INVALID_ARGUMENT, "x[0] is negative");
    return AOTPACK_MODULE_INVALID_ARGUMENT;
  }
  if (first == 1000) return launch(call, 0, "no_such_kernel", 1, NULL, 0);
  if (first == 2000) return launch(call, 0, "device_assert", 1, NULL, 0);
  code = fill(call, 0, (uint64_t) * (const int64_t*)call->inputs[1].data, 8, 3);
  if (code == AOTPACK_MODULE_OK) code = fill(call, 1, 7, 1, 5);
  if (code != AOTPACK_MODULE_OK) return code;
  return ((aotpack_import_upload_fn)call->imports[UPLOAD])(call->runtime, call->outputs[2].data, table, sizeof table);
}

static int32_t run(const aotpack_module_call* call) {
  const int64_t three = 3, five = 5, matrix[] = {2, 3};
  for (int i = 0; i < 3; ++i) call->outputs[i].block = NULL;
  int32_t code = AOTPACK_MODULE_OUT_OF_MEMORY;
  if (make_output(call, 0, AOTPACK_DTYPE_INT64, 8, 1, &three) != NULL &&
      make_output(call, 1, AOTPACK_DTYPE_UINT8, 1, 1, &five) != NULL &&
      make_output(call, 2, AOTPACK_DTYPE_FLOAT32, 4, 2, matrix) != NULL) {
    code = fill_outputs(call);
  }
  for (int i = 0; code != AOTPACK_MODULE_OK && i < 3; ++i) free_output(call, i);
  if (code != AOTPACK_MODULE_OK) return code;
  aotpack_module_tensor* table = &call->outputs[2];
  table->sizes[0] = 3, table->sizes[1] = 2;
  table->strides[0] = 1, table->strides[1] = 3;
  return AOTPACK_MODULE_OK;
}

DEFINE_TABLE("cuda-sm_90", 2, 3, 0, names, run, AOTPACK_MODULE_FEATURE_ASYNC, 1, assets)
