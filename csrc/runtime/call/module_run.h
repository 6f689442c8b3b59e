// One run of a step's module, and what is kept of it from call to call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aotpack/module_abi.h"
#include "call/state.h"
#include "hal/imports.h"
#include "model/model.h"

namespace aotpack::runtime {

// Of a step: the constants of one that writes to some, copies of a context among those of a set of weights.
struct StepTable {
  explicit StepTable(size_t num_outputs) : output_devices(num_outputs) {}
  std::vector<aotpack_module_tensor> tensors;
  uint64_t weights_id = 0;
  uint64_t state_version = 0;  // 0: never filled in
  // What the module says of its outputs. Of no device before its first call.
  std::vector<aotpack_module_device> output_devices;
};

// The constants of a step that writes to some: `shared`, the table of `weights`, but for the copies of `state`, which
// are there.
const aotpack_module_tensor* constants_with_state(const Model& model, const Step& step, const WeightSet& weights,
                                                  const std::vector<aotpack_module_tensor>& shared, const State& state,
                                                  StepTable* table);

// Runs the module of a call that is complete; its outputs are in blocks then. Throws what the module failed with.
void run_module(const EntryRecord& entry, const Variant& variant, const Step& step, aotpack_module_call* call,
                CallState* state);

}  // namespace aotpack::runtime
