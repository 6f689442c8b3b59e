/* y = x (float32 of rank 0) + the choice of the site 7, which it records with the numbers 4 and 5, and positions 3 and
 * 2 for its first two knobs. */
#include "module.h"

static const char* const names[] = {"alloc", "free"};

static int32_t run(const aotpack_module_call* call) {
  const aotpack_module_tuning* tuning = call->tuning;
  uint32_t choice = 0;
  if (tuning != NULL) {
    for (uint64_t i = 0; i < tuning->num_choices; ++i) {
      if (tuning->choices[i].site == 7) choice = tuning->choices[i].choice;
    }
    if (tuning->record != NULL) {
      const int64_t numbers[] = {4, 5};
      const aotpack_module_site site = {sizeof(site), 7, "adder", numbers, 2, choice, {3, 2}, 42};
      tuning->record(tuning->recorder, &site);
    }
  }
  float* data = import_alloc(call, 0, sizeof(float));
  if (data == NULL) return AOTPACK_MODULE_OUT_OF_MEMORY;
  *data = *(const float*)call->inputs[0].data + (float)choice;
  aotpack_module_tensor* y = &call->outputs[0];
  y->data = y->block = data;
  y->dtype = AOTPACK_DTYPE_FLOAT32;
  y->rank = 0;
  return AOTPACK_MODULE_OK;
}

DEFINE_MODULE("x86-64", 1, 1, 0, names)
