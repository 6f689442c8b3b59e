/* Shared by the hand-written modules for CUDA devices: they list all imports. */
#pragma once

#include "module.h"

enum { ALLOC, FREE, FAIL, SEED, LAUNCH, COPY, UPLOAD, DOWNLOAD, FILL };

#define NAME(import) #import,
static const char* const names[] = {AOTPACK_MODULE_IMPORTS(NAME) AOTPACK_DEVICE_IMPORTS(NAME)};
#undef NAME

static inline int32_t launch_with(const aotpack_module_call* call, uint32_t asset, const char* kernel, uint32_t blocks,
                                  void* const* arguments, uint32_t num_arguments, uint32_t flags) {
  const aotpack_module_launch launch = {
      sizeof launch, &call->assets[asset], kernel, {blocks, 1, 1}, {128, 1, 1}, 0, flags, arguments, num_arguments, 0};
  return ((aotpack_import_launch_fn)call->imports[LAUNCH])(call->runtime, &launch);
}

static inline int32_t launch(const aotpack_module_call* call, uint32_t asset, const char* kernel, uint32_t blocks,
                             void* const* arguments, uint32_t num_arguments) {
  return launch_with(call, asset, kernel, blocks, arguments, num_arguments, 0);
}

/* A dense output in memory of its own; its data, or NULL. */
static inline void* make_output(const aotpack_module_call* call, size_t index, int32_t dtype, size_t item, int32_t rank,
                                const int64_t* sizes) {
  aotpack_module_tensor* out = &call->outputs[index];
  out->dtype = dtype;
  out->rank = rank;
  int64_t count = 1;
  for (int32_t axis = rank; axis-- > 0;) {
    out->sizes[axis] = sizes[axis];
    out->strides[axis] = count;
    count *= sizes[axis];
  }
  out->data = out->block = import_alloc(call, ALLOC, (size_t)count * item);
  call->output_devices[index] = call->device;
  return out->data;
}

static inline void free_output(const aotpack_module_call* call, size_t index) {
  ((aotpack_import_free_fn)call->imports[FREE])(call->runtime, call->outputs[index].block);
}
