/* Two seeds of the runtime, as int64 [2]; no inputs. */
#include "module.h"

static const char* const names[] = {"seed", "alloc"};

static int32_t run(const aotpack_module_call* call) {
  int64_t* data = import_alloc(call, 1, 2 * sizeof(int64_t));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  for (int i = 0; i < 2; ++i) data[i] = (int64_t)((aotpack_import_seed_fn)call->imports[0])(call->runtime);
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = data;
  out->dtype = AOTPACK_DTYPE_INT64;
  out->rank = 1;
  out->sizes[0] = 2;
  out->strides[0] = 1;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 0, 1, 0, names)
