/* Writes down what it sees of its call besides tensors: int64 [16] from x[2], a constant w[1] and two assets. */
#include "module.h"

#ifndef FEATURES
#define FEATURES AOTPACK_MODULE_FEATURE_ASYNC
#endif

static const char* const names[] = {"alloc", "fail"};
static const char* const assets[] = {"code", "table"};

static int32_t run(const aotpack_module_call* call) {
  int64_t* seen = import_alloc(call, 0, 16 * sizeof(int64_t));
  if (seen == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  seen[0] = (int64_t)call->struct_size;
  seen[1] = call->device.type;
  seen[2] = call->device.index;
  seen[3] = call->input_devices[0].type;
  seen[4] = call->input_devices[0].index;
  seen[5] = call->constant_devices[0].type;
  seen[6] = call->constant_devices[0].index;
  seen[7] = call->stream != NULL;
  seen[8] = (int64_t)call->features;
  for (int i = 0; i < 2; ++i) {
    seen[9 + 3 * i] = (int64_t)call->assets[i].size;
    seen[10 + 3 * i] = call->assets[i].size > 0 ? *(const unsigned char*)call->assets[i].data : -1;
    seen[11 + 3 * i] = call->assets[i].handle != NULL;
  }
  seen[15] = (int64_t)(uintptr_t)call->assets[0].data % AOTPACK_ALIGNMENT;
  aotpack_module_tensor* out = &call->outputs[0];
  out->data = out->block = seen;
  out->dtype = AOTPACK_DTYPE_INT64;
  out->rank = 1;
  out->sizes[0] = 16;
  out->strides[0] = 1;
  call->output_devices[0] = call->device;
  return AOTPACK_MODULE_OK;
}

DEFINE_TABLE("x86-64", 1, 1, 1, names, run, FEATURES, 2, assets)
