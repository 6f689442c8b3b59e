#include "call/steps.h"

#include <algorithm>

#include "base/status.h"
#include "call/outputs.h"

namespace aotpack::runtime {
namespace {

using Kind = ReferenceRecord::Source;

bool is_on_host(const ValueRecord& value) noexcept { return value.device == kHostDevice; }

// Where the sizes of each value are, in a list that has those of all.
std::vector<const uint32_t*> slots_by_value(const std::vector<ValueRecord>& values, const std::vector<uint32_t>& all) {
  std::vector<const uint32_t*> slots;
  const uint32_t* next = all.data();
  for (const ValueRecord& value : values) {
    slots.push_back(next);
    next += value.shape.size();
  }
  return slots;
}

// Of a dense tensor.
size_t size_of(const aotpack_module_tensor& tensor, const DType& dtype) noexcept {
  size_t bytes = dtype.size;
  for (int32_t axis = 0; axis < tensor.rank; ++axis) bytes *= static_cast<size_t>(tensor.sizes[axis]);
  return bytes;
}

}  // namespace

Steps::Steps(const EntryPlan& plan, const Variant& variant, const Workspace& workspace)
    : plan_(plan),
      variant_(variant),
      workspace_(&workspace),
      value_slots_(slots_by_value(variant.implementation->values, variant.values.slots)),
      output_slots_(slots_by_value(plan.record().outputs, plan.output_slots())),
      values_(variant.implementation->values.size()) {
  // So that no block is lost for want of room to note it down.
  size_t most_inputs = 0;
  size_t blocks = values_.size();
  for (const Step& step : variant.steps) {
    most_inputs = std::max(most_inputs, step.num_inputs);
    blocks += step.num_inputs + step.num_outputs;
  }
  copies_.reserve(most_inputs);
  retired_.reserve(blocks);
}

const ValueRecord& Steps::record_of(ReferenceRecord reference) const noexcept {
  switch (reference.source) {
    case Kind::kInput:
      return plan_.record().inputs[reference.index];
    case Kind::kOutput:
      return plan_.record().outputs[reference.index];
    case Kind::kValue:
      break;
  }
  return variant_.implementation->values[reference.index];
}

const aotpack_module_tensor& Steps::tensor_of(ReferenceRecord reference) const noexcept {
  switch (reference.source) {
    case Kind::kInput:
      return bound_->tensors()[reference.index];
    case Kind::kOutput:
      return (*outputs_)[reference.index];
    case Kind::kValue:
      break;
  }
  return values_[reference.index];
}

const uint32_t* Steps::slots_of(ReferenceRecord reference) const noexcept {
  return (reference.source == Kind::kOutput ? output_slots_ : value_slots_)[reference.index];
}

void Steps::begin(BoundInputs* inputs, std::vector<aotpack_module_tensor>* outputs) {
  bound_ = inputs;
  outputs_ = outputs;
  bound_->solve_values(variant_.values);
}

void Steps::prepare(size_t index, aotpack_module_call* call, CallState* state) {
  const Step& step = variant_.steps[index];
  inputs_.clear();
  for (const ReferenceRecord reference : step.inputs) {
    // One copy of an input that occurs twice: the module may write to it.
    const auto earlier = std::find(step.inputs.begin(), step.inputs.begin() + inputs_.size(), reference);
    if (const size_t at = earlier - step.inputs.begin(); at < inputs_.size()) {
      inputs_.push_back(inputs_[at]);
      continue;
    }
    aotpack_module_tensor& tensor = inputs_.emplace_back(tensor_of(reference));
    tensor.block = nullptr;
    const ValueRecord& value = record_of(reference);
    const bool is_number = value.number != AOTPACK_NUMBER_NONE;  // every module reads it in memory of the host
    if (!workspace_->is_host() && !is_number && is_on_host(value) != step.on_host) {
      move_input(value, step.on_host, &tensor);
    }
  }
  if (step.on_host) {
    workspace_->stream().wait();
    release_retired();
  }
  results_.assign(step.num_outputs, aotpack_module_tensor{});
  adopted_ = false;
  call->inputs = inputs_.data();
  call->outputs = results_.data();
  call->stream = step.on_host ? nullptr : workspace_->stream_handle();
  state->allocator = workspace_->allocator_of(step.on_host);
}

void Steps::move_input(const ValueRecord& value, bool to_host, aotpack_module_tensor* tensor) {
  const size_t bytes = size_of(*tensor, *value.dtype);
  void* block = workspace_->allocator_of(to_host)->allocate(bytes);
  if (block == nullptr) {
    fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes to copy '%s' to another device", bytes, value.name.c_str());
  }
  copies_.push_back({block, value.mutated ? tensor->data : nullptr, bytes});
  void* data = Allocator::data(block);
  workspace_->stream().copy(data, tensor->data, bytes);
  tensor->data = data;
}

void Steps::finish(size_t index, const aotpack_module_device* devices) {
  const Step& step = variant_.steps[index];
  adopt_outputs(&results_);
  adopted_ = true;
  for (size_t i = 0; i < results_.size(); ++i) take_result(step, i, devices[i]);
  for (; !copies_.empty(); copies_.pop_back()) {
    const Copy& copy = copies_.back();
    if (copy.original != nullptr) workspace_->stream().copy(copy.original, Allocator::data(copy.block), copy.bytes);
    retire(copy.block, step.on_host);
  }
  for (const uint32_t value : step.last_uses) {
    retire(values_[value].block, is_on_host(variant_.implementation->values[value]));
    values_[value].block = nullptr;
  }
}

void Steps::take_result(const Step& step, size_t index, aotpack_module_device device) {
  const ReferenceRecord reference = step.outputs[index];
  const ValueRecord& value = record_of(reference);
  aotpack_module_tensor& result = results_[index];
  if (!is_as_declared(value, result, slots_of(reference), bound_->sizes())) {
    refuse_output(plan_.record(), step_suffix(variant_, step), value);
  }
  if (step.call.names_devices()) {
    check_output_device(plan_.record(), step_suffix(variant_, step), value, step.call, index, device);
  }
  if (void* replaced = own_output(value, result, step.on_host, *workspace_)) retire(replaced, step.on_host);
  (reference.source == Kind::kOutput ? (*outputs_)[reference.index] : values_[reference.index]) = result;
  result.block = nullptr;
}

// Memory of a device is used again in the order of the stream, memory of the host at once.
void Steps::retire(void* block, bool on_host) noexcept {
  if (on_host && !workspace_->is_host()) {
    retired_.push_back(block);
  } else {
    Allocator::release_block(block);
  }
}

void Steps::release_retired() noexcept {
  for (void* block : retired_) Allocator::release_block(block);
  retired_.clear();
}

void Steps::release() noexcept {
  for (aotpack_module_tensor& result : results_) {
    if (adopted_ && result.block != nullptr) Allocator::release_block(result.block);
    result.block = nullptr;
  }
  for (aotpack_module_tensor& value : values_) {
    if (value.block != nullptr) Allocator::release_block(value.block);
    value.block = nullptr;
  }
  for (const Copy& copy : copies_) Allocator::release_block(copy.block);
  copies_.clear();
  release_retired();
}

}  // namespace aotpack::runtime
