/* A module as version 1 of the ABI had it, with that version's structs: y[4] = 2 * x[4] + w[4]. What follows its table
 * in memory is not part of it. */
#include <stddef.h>
#include <stdint.h>

typedef struct {
  void* data;
  void* block;
  int32_t dtype;
  int32_t rank;
  int64_t sizes[16];
  int64_t strides[16];
} tensor_1;

typedef struct {
  size_t struct_size;
  void* runtime;
  void* const* imports;
  const tensor_1* inputs;
  const tensor_1* constants;
  tensor_1* outputs;
  int32_t num_threads;
} call_1;

typedef struct {
  uint32_t abi_version;
  uint32_t struct_size;
  const char* target;
  uint32_t num_inputs;
  uint32_t num_outputs;
  uint32_t num_constants;
  uint32_t num_imports;
  const char* const* import_names;
  int32_t (*run)(const call_1* call);
} module_1;

enum { FLOAT32 = 6, OK = 0, OUT_OF_MEMORY = 2 };

static int32_t run(const call_1* call) {
  if (call->struct_size < sizeof *call) return 3;
  float* y = ((void* (*)(void*, size_t))call->imports[0])(call->runtime, 4 * sizeof(float));
  if (y == NULL) return OUT_OF_MEMORY;
  const tensor_1* x = &call->inputs[0];
  for (int i = 0; i < 4; ++i) {
    y[i] = 2 * ((const float*)x->data)[i * x->strides[0]] + ((const float*)call->constants[0].data)[i];
  }
  tensor_1* out = &call->outputs[0];
  out->data = out->block = y;
  out->dtype = FLOAT32;
  out->rank = 1;
  out->sizes[0] = 4;
  out->strides[0] = 1;
  return OK;
}

static const char* const names[] = {"alloc"};
/* The bytes after the table would be features, assets and their names in a later version. */
static const struct {
  module_1 module;
  uint64_t other[3];
} table = {{1, sizeof(module_1), "x86-64", 1, 1, 1, 1, names, run}, {~0ull, ~0ull, 1}};

__attribute__((visibility("default"))) const module_1* aotpack_module_query(uint32_t max_abi_version) {
  return max_abi_version >= 1 ? &table.module : NULL;
}
