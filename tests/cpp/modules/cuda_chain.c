/* y = 2 * (k * (x + w) + w) + w and z = x + w, for x[batch, 4], w[4] and the number k, with memory that is freed on the
 * way. z is filled with a seed where k is 95. Asks for a seed where k is 96, downloads where it is 97 and uploads where
 * it is 98: all without a use. Fails where it is 99. */
#include "cuda.h"

static const char* const assets[] = {"affine.cubin"};

typedef struct {
  const aotpack_module_call* call;
  int32_t count;
  int32_t code; /* the first that is not OK */
} Chain;

static void affine(Chain* chain, void* y, void* x, float scale) {
  const int32_t width = 4;
  void* const arguments[] = {
      (void*)&y, (void*)&x, (void*)&chain->call->constants[0].data, (void*)&width, (void*)&chain->count, (void*)&scale};
  if (chain->code != AOTPACK_MODULE_OK) return;
  chain->code = launch(chain->call, 0, "affine", ((uint32_t)chain->count + 127) / 128, arguments, 6);
}

static void copy(Chain* chain, void* to, const void* from) {
  if (chain->code != AOTPACK_MODULE_OK) return;
  const size_t bytes = (size_t)chain->count * sizeof(float);
  chain->code = ((aotpack_import_copy_fn)chain->call->imports[COPY])(chain->call->runtime, to, from, bytes);
}

static void fill(Chain* chain, void* to, uint64_t value, size_t item) {
  if (chain->code != AOTPACK_MODULE_OK) return;
  const size_t count = (size_t)chain->count * sizeof(float) / item;
  chain->code = ((aotpack_import_fill_fn)chain->call->imports[FILL])(chain->call->runtime, to, value, item, count);
}

static void* allocate(Chain* chain) {
  if (chain->code != AOTPACK_MODULE_OK) return NULL;
  void* memory = import_alloc(chain->call, ALLOC, (size_t)chain->count * sizeof(float));
  if (memory == NULL) chain->code = AOTPACK_MODULE_OUT_OF_MEMORY;
  return memory;
}

static void release(const Chain* chain, void* memory) {
  if (memory != NULL) ((aotpack_import_free_fn)chain->call->imports[FREE])(chain->call->runtime, memory);
}

static void ask(Chain* chain, int64_t k, void* memory) {
  const aotpack_module_call* call = chain->call;
  float value = 0;
  if (chain->code != AOTPACK_MODULE_OK) return;
  if (k == 96) ((aotpack_import_seed_fn)call->imports[SEED])(call->runtime);
  if (k == 97) chain->code = ((aotpack_import_download_fn)call->imports[DOWNLOAD])(call->runtime, &value, memory, 4);
  if (k == 98) chain->code = ((aotpack_import_upload_fn)call->imports[UPLOAD])(call->runtime, memory, &value, 4);
  if (k != 99) return;
  import_fail(call, FAIL, AOTPACK_MODULE_INVALID_ARGUMENT, "k is 99");
  chain->code = AOTPACK_MODULE_INVALID_ARGUMENT;
}

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tensor* x = &call->inputs[0];
  const int64_t k = *(const int64_t*)call->inputs[1].data;
  Chain chain = {call, (int32_t)(x->sizes[0] * x->sizes[1]), AOTPACK_MODULE_OK};
  for (size_t i = 0; i < 2; ++i) {
    if (make_output(call, i, AOTPACK_DTYPE_FLOAT32, sizeof(float), 2, x->sizes) == NULL) {
      if (i != 0) free_output(call, 0);
      return AOTPACK_MODULE_OUT_OF_MEMORY;
    }
  }
  void* a = allocate(&chain);
  ask(&chain, k, a);
  affine(&chain, a, x->data, 1);
  void* b = allocate(&chain);
  fill(&chain, b, 0x1234, 2);
  copy(&chain, b, a);
  release(&chain, a);
  void* c = allocate(&chain);
  fill(&chain, c, 0x0102030401020304, 8);
  affine(&chain, c, b, (float)k);
  affine(&chain, call->outputs[0].data, c, 2);
  if (k == 95) {
    fill(&chain, call->outputs[1].data, ((aotpack_import_seed_fn)call->imports[SEED])(call->runtime) & 0xFFFF, 4);
  } else {
    copy(&chain, call->outputs[1].data, b);
  }
  release(&chain, b);
  release(&chain, c);
  if (chain.code != AOTPACK_MODULE_OK) {
    free_output(call, 0);
    free_output(call, 1);
  }
  return chain.code;
}

DEFINE_TABLE("cuda-sm_90", 2, 2, 1, names, run, AOTPACK_MODULE_FEATURE_ASYNC, 1, assets)
