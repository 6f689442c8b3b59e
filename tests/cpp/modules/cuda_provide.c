/* The half spectrum of each row of x[rows, 8], by a library; where there is none, zeros. Asks for an operation that no
 * runtime knows where the number k is 1. */
#include "cuda.h"

enum { PROVIDE = FILL + 2 };

#define NAME(import) #import,
static const char* const all_names[] = {AOTPACK_MODULE_IMPORTS(NAME) AOTPACK_DEVICE_IMPORTS(NAME)
                                            AOTPACK_TENSOR_MAP_IMPORTS(NAME) AOTPACK_PROVIDER_IMPORTS(NAME)};
#undef NAME
static const char* const assets[] = {"affine.cubin"};

static int32_t run(const aotpack_module_call* call) {
  const int64_t sizes[] = {call->inputs[0].sizes[0], 5};
  if (make_output(call, 0, AOTPACK_DTYPE_COMPLEX64, 8, 2, sizes) == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  const int64_t k = *(const int64_t*)call->inputs[1].data;
  const int64_t numbers[] = {1, 0, 1};
  const aotpack_module_tensor tensors[] = {call->inputs[0], call->outputs[0]};
  const aotpack_module_library_call work = {
      sizeof work, k == 1 ? "fft_of_the_future" : "fft_r2c", tensors, numbers, 2, 3};
  uint32_t is_done = 2;
  int32_t code = ((aotpack_import_provide_fn)call->imports[PROVIDE])(call->runtime, &work, &is_done);
  if (code == AOTPACK_MODULE_OK && is_done == 0) {
    code = ((aotpack_import_fill_fn)call->imports[FILL])(call->runtime, call->outputs[0].data, 0, 4,
                                                         (size_t)(sizes[0] * 10));
  }
  if (code != AOTPACK_MODULE_OK) free_output(call, 0);
  return code;
}

DEFINE_TABLE("cuda-sm_90", 2, 1, 0, all_names, run, AOTPACK_MODULE_FEATURE_ASYNC, 1, assets)
