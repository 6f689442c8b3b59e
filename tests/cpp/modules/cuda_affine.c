/* y[batch, 4] = FACTOR * x[batch, 4] + w[4], by the kernel "affine" */
#include "cuda.h"

#ifndef FACTOR
#define FACTOR 2.0f
#endif
#ifndef TARGET
#define TARGET "cuda-sm_90"
#endif

#ifndef ASSETS
#define ASSETS "affine.cubin", "affine.ptx"
#define NUM_ASSETS 2
#endif

static const char* const assets[] = {ASSETS};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  if (make_output(call, 0, AOTPACK_DTYPE_FLOAT32, sizeof(float), 2, x->sizes) == NULL) {
    return AOTPACK_MODULE_OUT_OF_MEMORY;
  }
  const int32_t width = 4;
  const int32_t count = (int32_t)(x->sizes[0] * x->sizes[1]);
  const float factor = FACTOR;
  void* const arguments[] = {(void*)&call->outputs[0].data, (void*)&x->data, (void*)&call->constants[0].data,
                             (void*)&width,                 (void*)&count,   (void*)&factor};
  const int32_t code = launch(call, 0, "affine", ((uint32_t)count + 127) / 128, arguments, 6);
  if (code != AOTPACK_MODULE_OK) free_output(call, 0);
  return code;
}

DEFINE_TABLE(TARGET, 1, 1, 1, names, run, AOTPACK_MODULE_FEATURE_ASYNC, NUM_ASSETS, assets)
