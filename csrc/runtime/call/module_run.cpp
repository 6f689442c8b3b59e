#include "call/module_run.h"

#include "base/status.h"
#include "call/failure.h"

namespace aotpack::runtime {

const aotpack_module_tensor* constants_with_state(const Model& model, const Step& step, const WeightSet& weights,
                                                  const std::vector<aotpack_module_tensor>& shared, const State& state,
                                                  StepTable* table) {
  if (table->state_version != state.version() || table->weights_id != weights.id()) {
    table->state_version = 0;  // should the copy fail
    table->tensors = shared;
    const std::vector<ConstantRecord>& records = model.archive().manifest().constants;
    for (size_t i = 0; i < shared.size(); ++i) {
      const uint32_t index = step.module->constants[i];
      if (records[index].mutated) table->tensors[i].data = state.data(index);
    }
    table->weights_id = weights.id();
    table->state_version = state.version();
  }
  return table->tensors.data();
}

void run_module(const EntryRecord& entry, const Variant& variant, const Step& step, aotpack_module_call* call,
                CallState* state) {
  const int32_t code = step.executable->launch(*call, *state->stream);
  if (code != AOTPACK_MODULE_OK) [[unlikely]]
    throw_failure(state, "entry '" + entry.name + "'" + step_suffix(variant, step), code);
  if (!state->take_blocks(call->outputs, step.num_outputs)) [[unlikely]] {
    state->release_blocks();
    fail(AOTPACK_INTERNAL, "entry '%s'%s: the module returned an output in memory that it has not allocated",
         entry.name.c_str(), step_suffix(variant, step).c_str());
  }
}

}  // namespace aotpack::runtime
