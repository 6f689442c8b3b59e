/* Adds one to every element of x[4] in place and to the constant total[1]; returns x as a view and a copy of total. */
#include "cuda.h"

static const char* const assets[] = {"increment.cubin"};

static int32_t increment(const aotpack_module_call* call, void* const* data, int32_t count) {
  const float one = 1;
  void* const arguments[] = {(void*)data, &count, (void*)&one};
  return launch(call, 0, "increment", 1, arguments, 3);
}

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const aotpack_module_tensor* total = &call->constants[0];
  int32_t code = increment(call, &x->data, 4);
  if (code != AOTPACK_MODULE_OK) return code;
  code = increment(call, &total->data, 1);
  if (code != AOTPACK_MODULE_OK) return code;
  const int64_t one = 1;
  if (make_output(call, 1, AOTPACK_DTYPE_FLOAT32, sizeof(float), 1, &one) == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  code = ((aotpack_import_copy_fn)call->imports[COPY])(call->runtime, call->outputs[1].data, total->data, 4);
  if (code != AOTPACK_MODULE_OK) {
    free_output(call, 1);
    return code;
  }
  call->outputs[0] = *x;
  call->outputs[0].block = NULL;
  call->output_devices[0] = call->device;
  return AOTPACK_MODULE_OK;
}

DEFINE_TABLE("cuda-sm_90", 1, 2, 1, names, run, AOTPACK_MODULE_FEATURE_ASYNC, 1, assets)
