#include "model/plan.h"

#include <algorithm>

#include "base/status.h"
#include "base/strided.h"

namespace aotpack::runtime {

EntryPlan::EntryPlan(const EntryRecord& record) : record_(&record) {
  find_dim_sources();
  find_formulas();
  initial_sizes_.resize(record.dims.size());
  add_slots(record.inputs, {"input", &input_slots_, &derived_sizes_, &affine_slots_, nullptr});
  add_slots(record.outputs, {"output", &output_slots_, &derived_sizes_, &affine_slots_, nullptr});
  make_inputs();
  has_same_ = std::any_of(record.variants.begin(), record.variants.end(),
                          [](const VariantRecord& variant) { return !variant.same.empty(); });
}

// The first plain use of a dim as a size gives its value; without one it is solved for from the first other use as a
// size; a dim that is not a size is an int. In one pass: there may be many of all.
void EntryPlan::find_dim_sources() {
  std::vector<DimSource> sources;  // by dim; mul 0: none yet
  for (uint32_t dim = 0; dim < record_->dims.size(); ++dim) {
    const DimRecord& bounds = record_->dims[dim];
    sources.push_back({dim, 0, 0, 0, 0, bounds.min, bounds.max, bounds.multiple_of, false});
  }
  std::vector<uint32_t> numbers(sources.size(), DimSource::kNumber);  // by dim: the first int that gives it
  for (uint32_t input = 0; input < record_->inputs.size(); ++input) {
    const ValueRecord& value = record_->inputs[input];
    if (value.dim != ValueRecord::kNoDim && numbers[value.dim] == DimSource::kNumber) numbers[value.dim] = input;
    for (uint32_t axis = 0; axis < value.shape.size(); ++axis) {
      const SizeRecord& size = value.shape[axis];
      if (size.kind != SizeRecord::Kind::kDim) continue;
      DimSource& source = sources[size.dim];
      if (source.mul != 0 && (source.is_plain() || !size.is_plain_dim())) continue;
      source.input = input;
      source.axis = axis;
      source.mul = size.mul;
      source.add = size.add;
    }
  }
  for (DimSource& source : sources) {
    if (source.mul != 0) {
      if (source.is_plain()) source.min = std::max<int64_t>(source.min, 0);
    } else if (numbers[source.dim] != DimSource::kNumber) {
      source.input = numbers[source.dim];
      source.axis = DimSource::kNumber;
      source.mul = 1;
    } else {
      continue;
    }
    source.is_special = source.axis == DimSource::kNumber || !source.is_plain() || source.multiple_of != 1;
    dim_sources_.push_back(source);
  }
  for (uint32_t input = 0; input < record_->inputs.size(); ++input) {
    const uint32_t dim = record_->inputs[input].dim;
    if (dim == ValueRecord::kNoDim) continue;
    const DimSource& source = sources[dim];
    const bool is_source = source.axis == DimSource::kNumber && source.input == input;
    if (!is_source) number_uses_.push_back({input, dim, nullptr});
  }
}

void EntryPlan::find_formulas() {
  for (uint32_t input = 0; input < record_->inputs.size(); ++input) {
    const std::optional<SizeRecord>& formula = record_->inputs[input].formula;
    if (formula) number_uses_.push_back({input, formula->dim, &*formula});
  }
}

ValuesPlan EntryPlan::add_values(const std::vector<ValueRecord>& values) {
  ValuesPlan plan;
  AffineSlots affine;  // what another implementation computes is not there in a call of this one
  add_slots(values, {"value", &plan.slots, &plan.derived, &affine, &affine_slots_});
  return plan;
}

uint32_t EntryPlan::slot_of(const SizeRecord& size, const ValueRecord& value, uint32_t axis, const Slots& out) {
  if (size.kind == SizeRecord::Kind::kData) return kAnySize;
  if (size.is_plain_dim()) return size.dim;
  const auto next = static_cast<uint32_t>(initial_sizes_.size());
  if (size.kind == SizeRecord::Kind::kDim) {
    const std::tuple key{size.dim, size.mul, size.add};
    if (out.known != nullptr) {
      if (const auto known = out.known->find(key); known != out.known->end()) return known->second;
    }
    const auto [known, is_new] = out.affine->try_emplace(key, next);
    if (!is_new) return known->second;
  }
  if (size.kind != SizeRecord::Kind::kStatic) {
    const Code* code = size.kind == SizeRecord::Kind::kCode ? &size.code : nullptr;
    out.derived->push_back({next, size.dim, size.mul, size.add, code, out.role, &value, axis});
  }
  initial_sizes_.push_back(size.size);
  return next;
}

void EntryPlan::add_slots(const std::vector<ValueRecord>& values, const Slots& out) {
  for (const ValueRecord& value : values) {
    for (uint32_t axis = 0; axis < value.shape.size(); ++axis) {
      out.slots->push_back(slot_of(value.shape[axis], value, axis, out));
    }
  }
}

void EntryPlan::make_inputs() {
  uint32_t slot = 0;
  for (const ValueRecord& value : record_->inputs) {
    aotpack_module_tensor tensor = {};
    tensor.dtype = value.dtype->module_code;
    tensor.rank = static_cast<int32_t>(value.shape.size());
    InputPlan input = {};
    input.dtype = value.dtype->dlpack;
    input.rank = tensor.rank;
    input.item = value.dtype->size;
    input.alignment = value.dtype->alignment;
    input.first_slot = slot;
    input.is_static = true;
    input.is_mutated = value.mutated;
    input.is_bool = value.dtype->is_bool();
    input.on_host = value.device == kHostDevice;
    input.is_row_major = std::is_sorted(value.order.begin(), value.order.end());
    input.order = value.order.data();
    for (const SizeRecord& size : value.shape) {
      tensor.sizes[slot - input.first_slot] = size.size;
      input.is_static = input.is_static && size.kind == SizeRecord::Kind::kStatic;
      ++slot;
    }
    if (input.is_static &&
        !dense_strides(tensor.sizes, input.order, input.rank, input.item, tensor.strides, &input.bytes)) {
      fail(AOTPACK_MALFORMED_ARCHIVE, "input '%s' of entry '%s' is too large", value.name.c_str(),
           record_->name.c_str());
    }
    has_mutated_inputs_ = has_mutated_inputs_ || value.mutated;
    has_bool_inputs_ = has_bool_inputs_ || input.is_bool;
    inputs_.push_back(input);
    input_templates_.push_back(tensor);
  }
}

}  // namespace aotpack::runtime
