// A call on its way through the stages of a pipeline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "call/inputs.h"
#include "call/module_run.h"
#include "call/state.h"
#include "call/steps.h"
#include "call/workspace.h"
#include "model/model.h"
#include "pipeline/pending_call.h"

namespace aotpack::runtime {

// What a worker keeps from call to call. Belongs to the worker's thread.
class StageTools {
 public:
  // Of the steps number `stage` of an entry's variants.
  StageTools(const ModelEntry& entry, size_t stage, Device& device);

  int32_t num_threads = 1;
  Workspace workspace;
  CallState call;
  std::vector<StepTable> tables;  // by variant; those of variants without that step are not used
};

// Owns everything that the call needs, and is used for one call after another. Belongs to one thread at a time.
class Flight {
 public:
  Flight(const Model& model, size_t entry);
  Flight(const Flight&) = delete;
  Flight& operator=(const Flight&) = delete;
  ~Flight() { release(); }

  // Checks the inputs, and copies those that the model does not write to. `state` is made if it is not there. Throws
  // what Context::run throws; nothing is held then.
  void begin(const DLTensor* const* inputs, size_t count, const Workspace& workspace, State* state, uint64_t seed,
             std::shared_ptr<PendingCall> pending);
  // Runs a step, unless an earlier one has failed or the variant has no such step.
  void run(size_t step, StageTools* tools, const State& state) noexcept;
  // Lets the call fail, unless it has failed already.
  void fail_with(aotpack_code code, const char* message) noexcept;
  // The end: hands the results, or why there are none, to the caller.
  void end(const Workspace& workspace) noexcept;

  uint64_t sequence = 0;  // the place of the call among all of the pipeline

 private:
  void run_step(size_t step, StageTools* tools, const State& state);
  void run_direct(const Step& step, aotpack_module_call* call, StageTools* tools, StepTable* table);
  void take(size_t output, const Workspace& workspace);
  void release() noexcept;

  const Model& model_;
  const size_t entry_;
  BoundInputs inputs_;
  std::vector<aotpack_module_tensor> outputs_;  // those that are made have no block: `made_` has it
  std::vector<DLManagedTensorVersioned*> made_;
  std::vector<std::unique_ptr<Steps>> steps_;  // by variant; NULL until its first call, and where it is direct
  size_t variant_ = 0;
  std::optional<WeightsInUse> weights_;
  uint64_t seed_ = 0;
  aotpack_status* status_ = nullptr;
  std::shared_ptr<PendingCall> pending_;
};

}  // namespace aotpack::runtime
