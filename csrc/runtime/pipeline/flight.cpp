#include "pipeline/flight.h"

#include <utility>

#include "base/status.h"
#include "call/outputs.h"
#include "call/tensor.h"
#include "host/team.h"
#include "host/thread_team.h"

namespace aotpack::runtime {

StageTools::StageTools(const ModelEntry& entry, size_t stage, Device& device)
    : workspace(device, Allocator::Keep::kFree) {
  for (const Variant& variant : entry.variants) {
    tables.emplace_back(stage < variant.steps.size() ? variant.steps[stage].num_outputs : 0);
  }
}

Flight::Flight(const Model& model, size_t entry)
    : model_(model),
      entry_(entry),
      inputs_(model.entries()[entry].plan),
      outputs_(model.entries()[entry].plan.record().outputs.size()),
      made_(outputs_.size()),
      steps_(model.entries()[entry].variants.size()) {}

void Flight::begin(const DLTensor* const* inputs, size_t count, const Workspace& workspace, State* state, uint64_t seed,
                   std::shared_ptr<PendingCall> pending) {
  const ModelEntry& entry = model_.entries()[entry_];
  variant_ = inputs_.bind(inputs, count, workspace);
  try {
    inputs_.own(workspace);
    weights_ = model_.weights();
    const Variant& variant = entry.variants[variant_];
    for (const Step& step : variant.steps) {
      if (step.mutates_constants) state->ensure(**weights_, workspace);
    }
    if (!variant.is_direct) {
      if (steps_[variant_] == nullptr) steps_[variant_] = std::make_unique<Steps>(entry.plan, variant, workspace);
      steps_[variant_]->begin(&inputs_, &outputs_);
    }
  } catch (...) {
    release();
    throw;
  }
  for (aotpack_module_tensor& output : outputs_) output.block = nullptr;
  seed_ = seed;
  pending_ = std::move(pending);
}

void Flight::run(size_t step, StageTools* tools, const State& state) noexcept {
  if (status_ != nullptr || step >= model_.entries()[entry_].variants[variant_].steps.size()) return;
  status_ = guarded([&] { run_step(step, tools, state); });
}

void Flight::run_step(size_t index, StageTools* tools, const State& state) {
  const ModelEntry& entry = model_.entries()[entry_];
  const Variant& variant = entry.variants[variant_];
  const Step& step = variant.steps[index];
  StepTable& table = tools->tables[variant_];
  const WeightSet& weights = **weights_;
  const int32_t num_threads = begin_team(tools->num_threads);
  CallState& state_of_call = tools->call;
  state_of_call.reset();
  state_of_call.seed = seed_;
  state_of_call.stream = &tools->workspace.stream();
  aotpack_module_call call = step.call.prepared();
  Steps* steps = steps_[variant_].get();
  if (variant.is_direct) {
    call.inputs = inputs_.tensors();
    call.outputs = outputs_.data();
    call.stream = tools->workspace.stream_handle();
    state_of_call.allocator = tools->workspace.allocator();
  } else {
    steps->move_to(tools->workspace);
    steps->prepare(index, &call, &state_of_call);
  }
  const std::vector<aotpack_module_tensor>& shared = weights.table(entry_, variant_, index);
  call.constants =
      step.mutates_constants ? constants_with_state(model_, step, weights, shared, state, &table) : shared.data();
  call.runtime = &state_of_call;
  call.num_threads = num_threads;
  call.team = team_for(num_threads);
  call.output_devices = table.output_devices.data();
  if (variant.is_direct) {
    run_direct(step, &call, tools, &table);
  } else {
    run_module(entry.plan.record(), variant, step, &call, &state_of_call);
    steps->finish(index, table.output_devices.data());
    // Here, where their memory comes from: the pipeline may be gone before they are.
    for (const ReferenceRecord reference : step.outputs) {
      if (reference.source == ReferenceRecord::Source::kOutput) take(reference.index, tools->workspace);
    }
  }
  seed_ = state_of_call.seed;
}

void Flight::run_direct(const Step& step, aotpack_module_call* call, StageTools* tools, StepTable* table) {
  const ModelEntry& entry = model_.entries()[entry_];
  const EntryRecord& record = entry.plan.record();
  try {
    run_module(record, entry.variants[variant_], step, call, &tools->call);
  } catch (...) {
    // What a module that fails leaves there is not for us to release.
    for (aotpack_module_tensor& output : outputs_) output.block = nullptr;
    throw;
  }
  adopt_outputs(&outputs_);
  check_output_devices(record, step.call, table->output_devices.data());
  check_outputs(entry.plan, outputs_, inputs_.sizes());
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (void* replaced = own_output(record.outputs[i], outputs_[i], false, tools->workspace)) {
      Allocator::release_block(replaced);
    }
    take(i, tools->workspace);
  }
}

void Flight::take(size_t output, const Workspace& workspace) {
  const ValueRecord& value = model_.entries()[entry_].plan.record().outputs[output];
  aotpack_module_tensor& tensor = outputs_[output];
  made_[output] =
      make_tensor(workspace, false, tensor.block, tensor.data, *value.dtype, tensor.rank, tensor.sizes, tensor.strides);
  if (made_[output] == nullptr) fail(AOTPACK_OUT_OF_MEMORY, "out of memory for output '%s'", value.name.c_str());
  tensor.block = nullptr;  // the tensor has it now
}

void Flight::fail_with(aotpack_code code, const char* message) noexcept {
  if (status_ == nullptr) status_ = make_status(code, message);
}

void Flight::end(const Workspace& workspace) noexcept {
  std::vector<DLManagedTensorVersioned*> results;
  if (status_ == nullptr) {
    status_ = guarded([&] {
      results.resize(made_.size());
      inputs_.write_back(workspace);
    });
  }
  if (status_ == nullptr) {
    for (size_t i = 0; i < made_.size(); ++i) results[i] = std::exchange(made_[i], nullptr);
  } else {
    results.clear();
  }
  aotpack_status* status = std::exchange(status_, nullptr);
  const std::shared_ptr<PendingCall> pending = std::move(pending_);
  release();
  pending->end(std::move(results), status);
}

void Flight::release() noexcept {
  for (DLManagedTensorVersioned*& tensor : made_) release_managed(std::exchange(tensor, nullptr));
  for (aotpack_module_tensor& output : outputs_) {
    if (output.block != nullptr) Allocator::release_block(std::exchange(output.block, nullptr));
  }
  if (!steps_.empty() && steps_[variant_] != nullptr) steps_[variant_]->release();
  inputs_.release();
  weights_.reset();
  pending_.reset();
  release_status(std::exchange(status_, nullptr));
}

}  // namespace aotpack::runtime
