#include "inputs.h"

#include <algorithm>
#include <cstring>

#include "bytes.h"
#include "status.h"
#include "strided.h"

namespace aotpack::runtime {
namespace {

using ll = long long;

// What a module gets as the data of an empty tensor: some address that is aligned, never read.
alignas(AOTPACK_ALIGNMENT) char empty_data[AOTPACK_ALIGNMENT];

[[noreturn]] void invalid(const std::string& message) { throw Error(AOTPACK_INVALID_ARGUMENT, message); }

std::string quoted(const char* role, const ValueRecord& value) { return std::string(role) + " '" + value.name + "'"; }

std::string describe_range(int64_t min, int64_t max) {
  if (max == INT64_MAX) return format("must be at least %lld", static_cast<ll>(min));
  return format("must be in [%lld, %lld]", static_cast<ll>(min), static_cast<ll>(max));
}

std::string join_names(const std::vector<ValueRecord>& values) {
  std::string names;
  for (const ValueRecord& value : values) names += (names.empty() ? "" : ", ") + value.name;
  return names;
}

}  // namespace

std::string device_name(DLDevice device) {
  const char* type = device.device_type == kDLCUDA ? "cuda" : nullptr;
  return type != nullptr ? format("%s:%d", type, device.device_id)
                         : format("DLPack device type %d", static_cast<int>(device.device_type));
}

std::string describe_size(const EntryRecord& entry, const SizeRecord& size) {
  if (size.kind == SizeRecord::Kind::kStatic) return format("%lld", static_cast<ll>(size.size));
  if (size.kind == SizeRecord::Kind::kComputed) return "?";
  std::string text = size.mul != 1 ? format("%lld*", static_cast<ll>(size.mul)) : "";
  text += entry.dims[size.dim].name;
  if (size.add > 0) text += format(" + %lld", static_cast<ll>(size.add));
  if (size.add < 0) text += format(" - %llu", -static_cast<unsigned long long>(size.add));
  return text;
}

std::string describe_shape(const EntryRecord& entry, const ValueRecord& value) {
  std::string text = "[";
  for (const SizeRecord& size : value.shape) text += (text.size() > 1 ? ", " : "") + describe_size(entry, size);
  return text + "]";
}

bool strides_of(const DLTensor& tensor, int64_t* buffer, const int64_t** out) noexcept {
  if (tensor.strides != nullptr) {
    *out = tensor.strides;
    return true;
  }
  int64_t run = 1;
  for (int32_t axis = tensor.ndim; axis-- > 0;) {
    buffer[axis] = run;
    if (!checked_mul(run, std::max<int64_t>(tensor.shape[axis], 1), &run)) return false;
  }
  *out = buffer;
  return true;
}

void check_tensor_kind(const char* role, const ValueRecord& value, const DLTensor* given) {
  if (given == nullptr) invalid(quoted(role, value) + " is missing");
  if (given->device.device_type != kDLCPU && given->device.device_type != kDLCUDAHost) {
    invalid(quoted(role, value) + " must be on the CPU, got " + device_name(given->device));
  }
  if (!same_dtype(given->dtype, value.dtype->dlpack)) {
    invalid(quoted(role, value) + ": expected " + value.dtype->name + ", got " + dtype_name(given->dtype));
  }
}

BoundInputs::BoundInputs(const EntryPlan& plan)
    : plan_(&plan),
      dims_(plan.record().dims.size()),
      tensors_(plan.input_templates()),
      copies_(plan.record().inputs.size()) {}

void BoundInputs::check_kind(const DLTensor* const* inputs, size_t count) const {
  const EntryRecord& entry = plan_->record();
  if (count != entry.inputs.size()) {
    invalid(format("entry '%s' takes %zu inputs (%s), got %zu", entry.name.c_str(), entry.inputs.size(),
                   join_names(entry.inputs).c_str(), count));
  }
  if (count > 0 && inputs == nullptr) invalid("inputs is NULL");
  for (size_t i = 0; i < count; ++i) {
    const ValueRecord& value = entry.inputs[i];
    const DLTensor* given = inputs[i];
    check_tensor_kind("input", value, given);
    if (given->ndim != tensors_[i].rank) {
      invalid(format("input '%s': expected %d dims %s, got %d", value.name.c_str(), tensors_[i].rank,
                     describe_shape(entry, value).c_str(), given->ndim));
    }
    if (given->ndim > 0 && given->shape == nullptr) invalid(quoted("input", value) + " has no shape");
  }
}

std::string BoundInputs::dim_origin(uint32_t dim) const {
  const EntryRecord& entry = plan_->record();
  return format("'%s' = %lld by input '%s'", entry.dims[dim].name.c_str(), static_cast<ll>(dims_[dim]),
                entry.inputs[plan_->dim_sources()[dim].input].name.c_str());
}

void BoundInputs::solve_dims(const DLTensor* const* inputs) {
  const EntryRecord& entry = plan_->record();
  for (uint32_t i = 0; i < dims_.size(); ++i) {
    const DimSource& source = plan_->dim_sources()[i];
    if (source.input == DimSource::kNone) continue;
    const DimRecord& dim = entry.dims[i];
    const int64_t size = inputs[source.input]->shape[source.axis];
    const bool plain = source.mul == 1 && source.add == 0;
    int64_t value = size;
    if (!plain) {
      const SizeRecord& relation = entry.inputs[source.input].shape[source.axis];
      if (size < 0 || !checked_add(size, -source.add, &value) || value % source.mul != 0) {
        invalid(format("input '%s': dim %u must be %s with a whole '%s', got %lld",
                       entry.inputs[source.input].name.c_str(), source.axis, describe_size(entry, relation).c_str(),
                       dim.name.c_str(), static_cast<ll>(size)));
      }
      value /= source.mul;
    }
    if (value < dim.min || value > dim.max) {
      const std::string where = format("input '%s': dim %u", entry.inputs[source.input].name.c_str(), source.axis);
      if (plain) {
        invalid(format("%s ('%s') %s, got %lld", where.c_str(), dim.name.c_str(),
                       describe_range(dim.min, dim.max).c_str(), static_cast<ll>(size)));
      }
      const SizeRecord& relation = entry.inputs[source.input].shape[source.axis];
      invalid(format("%s is %s = %lld, so '%s' is %lld, but it %s", where.c_str(),
                     describe_size(entry, relation).c_str(), static_cast<ll>(size), dim.name.c_str(),
                     static_cast<ll>(value), describe_range(dim.min, dim.max).c_str()));
    }
    dims_[i] = value;
  }
}

void BoundInputs::wrong_size(size_t index, uint32_t axis, int64_t got) const {
  const EntryRecord& entry = plan_->record();
  const ValueRecord& value = entry.inputs[index];
  const SizeRecord& size = value.shape[axis];
  const std::string where = format("input '%s': dim %u", value.name.c_str(), axis);
  if (size.kind == SizeRecord::Kind::kStatic) {
    invalid(format("%s must be %lld, got %lld", where.c_str(), static_cast<ll>(size.size), static_cast<ll>(got)));
  }
  if (size.mul == 1 && size.add == 0) {
    invalid(format("%s is %s, got %lld", where.c_str(), dim_origin(size.dim).c_str(), static_cast<ll>(got)));
  }
  invalid(format("%s must be %s with %s, got %lld", where.c_str(), describe_size(entry, size).c_str(),
                 dim_origin(size.dim).c_str(), static_cast<ll>(got)));
}

// Where the shape is not static, also fills in the sizes that the module will see.
void BoundInputs::check_sizes(size_t index, const DLTensor& given) {
  aotpack_module_tensor& tensor = tensors_[index];
  const auto rank = static_cast<uint32_t>(tensor.rank);
  if (plan_->is_static_input(index)) {
    for (uint32_t axis = 0; axis < rank; ++axis) {
      if (given.shape[axis] != tensor.sizes[axis]) wrong_size(index, axis, given.shape[axis]);
    }
    return;
  }
  const std::vector<SizeRecord>& shape = plan_->record().inputs[index].shape;
  for (uint32_t axis = 0; axis < rank; ++axis) {
    const SizeRecord& size = shape[axis];
    int64_t expected = size.size;
    if (size.kind == SizeRecord::Kind::kDim && (!checked_mul(size.mul, dims_[size.dim], &expected) ||
                                                !checked_add(expected, size.add, &expected) || expected < 0)) {
      wrong_size(index, axis, given.shape[axis]);
    }
    if (given.shape[axis] != expected) wrong_size(index, axis, given.shape[axis]);
    tensor.sizes[axis] = expected;
  }
}

void BoundInputs::place(size_t index, const DLTensor& given, Pool* pool) {
  const ValueRecord& value = plan_->record().inputs[index];
  aotpack_module_tensor& tensor = tensors_[index];
  size_t bytes = plan_->input_bytes()[index];
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* strides = nullptr;
  if ((!plan_->is_static_input(index) &&
       !dense_strides(tensor.sizes, value.order.data(), tensor.rank, value.dtype->size, tensor.strides, &bytes)) ||
      !strides_of(given, compact, &strides)) {
    invalid(quoted("input", value) + " is larger than the address space");
  }
  char* data = data_of(given);
  if (bytes == 0) {
    tensor.data = data != nullptr ? data : empty_data;
    return;
  }
  if (data == nullptr) invalid(quoted("input", value) + " has no data");
  const bool aligned = reinterpret_cast<uintptr_t>(data) % value.dtype->alignment == 0;
  if (aligned && same_layout(tensor.sizes, strides, tensor.strides, tensor.rank)) {
    tensor.data = data;
    return;
  }
  if (value.mutated && !is_non_overlapping(tensor.sizes, strides, tensor.rank)) {
    invalid(quoted("input", value) + " is written to, but its strides overlap");
  }
  void* block = pool->allocate(bytes);
  if (block == nullptr) {
    fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes to bring input '%s' into the model's layout", bytes,
         value.name.c_str());
  }
  Copy& copy = copies_[index];
  copy.block = block;
  copy.given = data;
  std::copy(strides, strides + tensor.rank, copy.given_strides);
  any_copy_ = true;
  strided_copy(block, tensor.strides, data, strides, tensor.sizes, tensor.rank, value.dtype->size);
  tensor.data = block;
}

void BoundInputs::bind(const DLTensor* const* inputs, size_t count, Pool* pool) {
  check_kind(inputs, count);
  solve_dims(inputs);
  // All sizes before any copy: a wrong input should cost nothing.
  for (size_t i = 0; i < count; ++i) check_sizes(i, *inputs[i]);
  try {
    for (size_t i = 0; i < count; ++i) place(i, *inputs[i], pool);
  } catch (...) {
    release();
    throw;
  }
}

void BoundInputs::write_back() noexcept {
  if (!any_copy_) return;
  for (size_t i = 0; i < copies_.size(); ++i) {
    const ValueRecord& value = plan_->record().inputs[i];
    if (copies_[i].block == nullptr || !value.mutated) continue;
    const aotpack_module_tensor& tensor = tensors_[i];
    strided_copy(copies_[i].given, copies_[i].given_strides, tensor.data, tensor.strides, tensor.sizes, tensor.rank,
                 value.dtype->size);
  }
}

void BoundInputs::release() noexcept {
  if (!any_copy_) return;
  for (Copy& copy : copies_) {
    if (copy.block != nullptr) Pool::release_block(copy.block);
    copy.block = nullptr;
  }
  any_copy_ = false;
}

}  // namespace aotpack::runtime
