/* y = x + 6 * w for x[batch, 4] and w[4], by six kernels of which all but the fourth wait themselves, with a copy after
 * the second one. */
#include "cuda.h"

static const char* const assets[] = {"affine.cubin"};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const int32_t count = (int32_t)(x->sizes[0] * x->sizes[1]), width = 4;
  const float scale = 1;
  void* y = make_output(call, 0, AOTPACK_DTYPE_FLOAT32, sizeof(float), 2, x->sizes);
  if (y == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  void* copied = import_alloc(call, ALLOC, (size_t)count * sizeof(float));
  int32_t code = copied == NULL ? AOTPACK_MODULE_OUT_OF_MEMORY : AOTPACK_MODULE_OK;
  void* from = x->data;
  for (int kernel = 0; kernel < 6 && code == AOTPACK_MODULE_OK; ++kernel) {
    void* const arguments[] = {(void*)&y,     (void*)&from,  (void*)&call->constants[0].data,
                               (void*)&width, (void*)&count, (void*)&scale};
    const uint32_t flags = kernel == 3 ? 0 : AOTPACK_LAUNCH_WAITS;
    code = launch_with(call, 0, "affine", ((uint32_t)count + 127) / 128, arguments, 6, flags);
    from = y;
    if (kernel == 1 && code == AOTPACK_MODULE_OK) {
      code = ((aotpack_import_copy_fn)call->imports[COPY])(call->runtime, copied, y, (size_t)count * sizeof(float));
      from = copied;
    }
  }
  if (copied != NULL) ((aotpack_import_free_fn)call->imports[FREE])(call->runtime, copied);
  if (code != AOTPACK_MODULE_OK) free_output(call, 0);
  return code;
}

DEFINE_TABLE("cuda-sm_90", 1, 1, 1, names, run, AOTPACK_MODULE_FEATURE_ASYNC, 1, assets)
