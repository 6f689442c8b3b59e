#include "model/variant.h"

#include <algorithm>

#include "base/status.h"
#include "hal/features.h"
#include "model/devices.h"

namespace aotpack::runtime {
namespace {

using Kind = ReferenceRecord::Source;

bool runs(const Device& device, std::string_view target) {
  const std::vector<std::string_view>& targets = device.targets();
  return std::find(targets.begin(), targets.end(), target) != targets.end();
}

// Why a device that runs the implementation's target cannot run its steps; empty where it can.
std::string find_obstacle(const ImplementationRecord& implementation, const Device& device) {
  for (const StepRecord& step : implementation.steps) {
    for (const std::string& feature : step.module.features) {
      if (find_feature(feature) == 0) return "the feature '" + feature + "', which this runtime does not provide";
    }
    const Device& runner = step.device == kHostDevice ? host_device() : device;
    if (runs(runner, step.module.target)) continue;
    return step.module.target + " for one of its steps, which needs " + runner.missing(step.module.target);
  }
  return "";
}

bool is_in_order(const std::vector<ReferenceRecord>& references, Kind kind) {
  for (uint32_t i = 0; i < references.size(); ++i) {
    if (!(references[i] == ReferenceRecord{kind, i})) return false;
  }
  return true;
}

bool is_direct(const ImplementationRecord& implementation, const EntryRecord& entry, const Device& device) {
  if (implementation.steps.size() != 1) return false;
  const StepRecord& step = implementation.steps.front();
  const bool in_order =
      step.is_whole || (step.inputs.size() == entry.inputs.size() && step.outputs.size() == entry.outputs.size() &&
                        is_in_order(step.inputs, Kind::kInput) && is_in_order(step.outputs, Kind::kOutput));
  if (!in_order || device.is_host()) return in_order;
  const auto is_there = [](const ValueRecord& value) { return value.device != kHostDevice; };
  const auto is_passed = [&](const ValueRecord& value) {
    return is_there(value) || value.number != AOTPACK_NUMBER_NONE;
  };
  return step.device != kHostDevice && std::all_of(entry.inputs.begin(), entry.inputs.end(), is_passed) &&
         std::all_of(entry.outputs.begin(), entry.outputs.end(), is_there);
}

void add_references(const StepRecord& record, const EntryRecord& entry, Step* out) {
  out->inputs = record.inputs;
  out->outputs = record.outputs;
  if (!record.is_whole) return;
  for (uint32_t i = 0; i < entry.inputs.size(); ++i) out->inputs.push_back({Kind::kInput, i});
  for (uint32_t i = 0; i < entry.outputs.size(); ++i) out->outputs.push_back({Kind::kOutput, i});
}

bool is_number(ReferenceRecord reference, const EntryRecord& entry) {
  if (reference.source == Kind::kValue) return false;
  const auto& values = reference.source == Kind::kInput ? entry.inputs : entry.outputs;
  return values[reference.index].number != AOTPACK_NUMBER_NONE;
}

void find_last_uses(size_t num_values, std::vector<Step>* steps) {
  std::vector<size_t> last(num_values);
  for (size_t i = 0; i < steps->size(); ++i) {
    for (const auto* references : {&(*steps)[i].inputs, &(*steps)[i].outputs}) {
      for (const ReferenceRecord& reference : *references) {
        if (reference.source == Kind::kValue) last[reference.index] = i;
      }
    }
  }
  for (uint32_t value = 0; value < num_values; ++value) (*steps)[last[value]].last_uses.push_back(value);
}

}  // namespace

std::string step_suffix(const Variant& variant, const Step& step) {
  if (variant.steps.size() == 1) return "";
  return format(", step %zu", static_cast<size_t>(&step - variant.steps.data()) + 1);
}

Variant make_variant(const VariantRecord& record, const Manifest& manifest, EntryPlan* plan, const Device& device,
                     const std::string& what) {
  std::vector<Candidate> candidates;
  for (const ImplementationRecord& each : record.implementations) {
    candidates.push_back({each.target, find_obstacle(each, device)});
  }
  Variant variant;
  variant.record = &record;
  variant.implementation = &record.implementations[choose_target(device, candidates, what)];
  variant.is_direct = is_direct(*variant.implementation, plan->record(), device);
  for (const StepRecord& step_record : variant.implementation->steps) {
    Step& step = variant.steps.emplace_back();
    step.module = &step_record.module;
    step.on_host = step_record.device == kHostDevice && !device.is_host();
    if (!variant.is_direct) add_references(step_record, plan->record(), &step);
    step.num_inputs = step_record.is_whole ? plan->record().inputs.size() : step_record.inputs.size();
    for (uint32_t i = 0; i < step.num_inputs; ++i) {
      step.numbers.push_back(
          is_number(step_record.is_whole ? ReferenceRecord{Kind::kInput, i} : step_record.inputs[i], plan->record()));
    }
    step.num_outputs = step_record.is_whole ? plan->record().outputs.size() : step_record.outputs.size();
    for (const uint32_t index : step.module->constants) {
      step.mutates_constants = step.mutates_constants || manifest.constants[index].mutated;
    }
  }
  variant.values = plan->add_values(variant.implementation->values);
  find_last_uses(variant.implementation->values.size(), &variant.steps);
  return variant;
}

}  // namespace aotpack::runtime
