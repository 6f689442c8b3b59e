#include "call/inputs.h"

#include <algorithm>
#include <new>
#include <numeric>

#include "base/bools.h"
#include "base/bytes.h"
#include "base/dltensor.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/tensor_kind.h"
#include "call/variants.h"
#include "model/describe.h"

namespace aotpack::runtime {
namespace {

using ll = long long;

// What a module gets as the data of an empty tensor: some address that is aligned, never read.
alignas(AOTPACK_ALIGNMENT) char empty_data[AOTPACK_ALIGNMENT];

[[noreturn]] void invalid(const std::string& message) { throw Error(AOTPACK_INVALID_ARGUMENT, message); }

// All bits set, but for dims of size 1: those may have any stride.
int64_t stride_mask(int64_t size) noexcept { return -static_cast<int64_t>(size != 1); }

// The usual case, quickly: a tensor with data that lies in memory as the model wants it. Also completes the strides of
// one whose shape is not static. False, with nothing decided, where it is no such tensor.
bool use_in_place(const InputPlan& plan, const DLTensor& given, aotpack_module_tensor* tensor) noexcept {
  char* data = data_of(given);
  if (data == nullptr || (given.strides == nullptr && !plan.is_row_major)) return false;
  // No strides: row-major, which is what is asked for.
  const int64_t* strides = given.strides != nullptr ? given.strides : tensor->strides;
  const int64_t* sizes = tensor->sizes;
  int64_t difference = static_cast<int64_t>(reinterpret_cast<uintptr_t>(data) & (plan.alignment - 1));
  if (plan.is_static) {
    if (plan.bytes == 0) return false;
    for (int32_t axis = 0; axis < plan.rank; ++axis) {
      difference |= (strides[axis] ^ tensor->strides[axis]) & stride_mask(sizes[axis]);
    }
  } else {
    int64_t run = 1;
    bool overflow = false;
    for (int32_t i = plan.rank; i-- > 0;) {
      const uint32_t axis = plan.order[i];
      tensor->strides[axis] = run;
      difference |= (strides[axis] ^ run) & stride_mask(sizes[axis]);
      overflow |= !checked_mul(run, sizes[axis], &run);
    }
    int64_t bytes;
    if (overflow || run == 0 || !checked_mul<int64_t>(run, plan.item, &bytes)) return false;
  }
  if (difference != 0) return false;
  tensor->data = data;
  return true;
}

std::string join_names(const std::vector<ValueRecord>& values) {
  std::string names;
  for (const ValueRecord& value : values) names += (names.empty() ? "" : ", ") + value.name;
  return names;
}

}  // namespace

BoundInputs::BoundInputs(const EntryPlan& plan)
    : plan_(&plan), sizes_(plan), tensors_(plan.input_templates()), copies_(plan.inputs().size()) {}

void BoundInputs::check_kinds(const DLTensor* const* inputs, size_t count, DLDevice device) const {
  const EntryRecord& entry = plan_->record();
  if (count != entry.inputs.size()) {
    invalid(format("entry '%s' takes %zu inputs (%s), got %zu", entry.name.c_str(), entry.inputs.size(),
                   join_names(entry.inputs).c_str(), count));
  }
  if (count > 0 && inputs == nullptr) invalid("inputs is NULL");
  const InputPlan* wanted = plan_->inputs().data();
  for (size_t i = 0; i < count; ++i) {
    const DLTensor* given = inputs[i];
    const bool is_there =
        given != nullptr && (is_on_host(given->device) || (!wanted[i].on_host && same_device(given->device, device)));
    if (!is_there || !same_dtype(given->dtype, wanted[i].dtype) || given->ndim != wanted[i].rank ||
        (given->shape == nullptr && given->ndim != 0)) [[unlikely]] {
      check_tensor_kind("input", entry, entry.inputs[i], given, wanted[i].on_host ? DLDevice{kDLCPU, 0} : device);
    }
  }
}

// Where the shape is not static, also fills in the sizes that the module will see.
void BoundInputs::check_sizes(const DLTensor* const* inputs) {
  const std::vector<InputPlan>& plans = plan_->inputs();
  const int64_t* all = sizes_.data();
  const uint32_t* slots = plan_->input_slots().data();
  for (size_t i = 0; i < plans.size(); ++i) {
    const int64_t* shape = inputs[i]->shape;
    const int32_t rank = plans[i].rank;
    int64_t* sizes = tensors_[i].sizes;
    int64_t difference = 0;
    if (plans[i].is_static) {
      for (int32_t axis = 0; axis < rank; ++axis) difference |= shape[axis] ^ sizes[axis];
    } else {
      for (int32_t axis = 0; axis < rank; ++axis) {
        sizes[axis] = all[slots[axis]];
        difference |= shape[axis] ^ sizes[axis];
      }
    }
    slots += rank;
    if (difference != 0) [[unlikely]]
      wrong_size(i, *inputs[i]);
  }
}

void BoundInputs::wrong_size(size_t index, const DLTensor& given) const {
  const EntryRecord& entry = plan_->record();
  const ValueRecord& value = entry.inputs[index];
  uint32_t axis = 0;
  while (given.shape[axis] == tensors_[index].sizes[axis]) ++axis;
  const auto got = static_cast<ll>(given.shape[axis]);
  const auto expected = static_cast<ll>(tensors_[index].sizes[axis]);
  const SizeRecord& size = value.shape[axis];
  const std::string where = format("input '%s': dim %u", value.name.c_str(), axis);
  if (size.kind == SizeRecord::Kind::kStatic)
    invalid(format("%s must be %lld, got %lld", where.c_str(), expected, got));
  const std::string dims = describe_dims(*plan_, dims_of(size), sizes_.data());
  if (size.is_plain_dim()) invalid(format("%s is %s, got %lld", where.c_str(), dims.c_str(), got));
  invalid(format("%s must be %s = %lld, got %lld%s%s%s", where.c_str(), describe_size(entry, size).c_str(), expected,
                 got, dims.empty() ? "" : " (", dims.c_str(), dims.empty() ? "" : ")"));
}

void BoundInputs::place(size_t index, const DLTensor& given, const Workspace& workspace) {
  const InputPlan& plan = plan_->inputs()[index];
  aotpack_module_tensor& tensor = tensors_[index];
  const int64_t* strides = given.strides;
  int64_t compact[AOTPACK_MAX_RANK];
  size_t bytes = plan.bytes;
  if ((!plan.is_static && !dense_strides(tensor.sizes, plan.order, plan.rank, plan.item, tensor.strides, &bytes)) ||
      (strides == nullptr && !plan.is_row_major && !strides_of(given, compact, &strides))) {
    invalid("input '" + plan_->record().inputs[index].name + "' is larger than the address space");
  }
  if (strides == nullptr) strides = tensor.strides;  // row-major is what is asked for
  char* data = data_of(given);
  if (bytes == 0) {
    tensor.data = data != nullptr ? data : empty_data;
    return;
  }
  if (data == nullptr) invalid("input '" + plan_->record().inputs[index].name + "' has no data");
  const bool is_there = workspace.is_host() || plan.on_host || !is_on_host(given.device);
  const size_t alignment =
      plan.on_host ? plan.alignment : std::max<size_t>(plan.alignment, workspace.input_alignment());
  bool fits = is_there && reinterpret_cast<uintptr_t>(data) % alignment == 0;
  for (int32_t axis = 0; axis < plan.rank; ++axis) {
    fits &= strides[axis] == tensor.strides[axis] || tensor.sizes[axis] == 1;
  }
  if (!fits) return copy_in(index, given, strides, bytes, workspace);
  tensor.data = data;
}

// Bools of the host become 0 and 1 there: elsewhere it does not see them. Those that come from the device stay as they
// are; its modules read any byte other than 0 as true.
void BoundInputs::stage_bools(Copy& copy, const int64_t* strides, size_t bytes, aotpack_module_tensor& tensor,
                              const Workspace& workspace) {
  copy.staged = workspace.host_allocator()->allocate(bytes);
  if (copy.staged == nullptr) throw std::bad_alloc();
  strided_copy(copy.staged, tensor.strides, copy.given, strides, tensor.sizes, tensor.rank, 1);
  make_bools(copy.staged, bytes);
  workspace.stream().copy(tensor.data, copy.staged, bytes);
}

void BoundInputs::copy_in(size_t index, const DLTensor& given, const int64_t* strides, size_t bytes,
                          const Workspace& workspace) {
  aotpack_module_tensor& tensor = tensors_[index];
  const InputPlan& plan = plan_->inputs()[index];
  void* block = workspace.allocator_of(plan.on_host)->allocate(bytes);
  if (block == nullptr) {
    fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes to bring input '%s' into the model's layout", bytes,
         plan_->record().inputs[index].name.c_str());
  }
  Copy& copy = copies_[index];
  copy.block = block;
  copy.given = data_of(given);
  std::copy(strides, strides + tensor.rank, copy.given_strides);
  any_copy_ = true;
  tensor.data = Allocator::data(block);
  if (plan.on_host) {  // at once: the host may read it next
    return strided_copy(tensor.data, tensor.strides, copy.given, strides, tensor.sizes, tensor.rank, plan.item);
  }
  if (!workspace.is_host() && plan.is_bool && is_on_host(given.device))
    return stage_bools(copy, strides, bytes, tensor, workspace);
  const bool is_far = !workspace.is_host() && !is_on_host(given.device);
  const auto move = is_far ? &Stream::copy_strided_on_device : &Stream::copy_strided;
  (workspace.stream().*move)(tensor.data, tensor.strides, copy.given, strides, tensor.sizes, tensor.rank, plan.item);
}

// Of inputs on the host. All are placed: dense, and so one run of bytes, of one byte an element.
void BoundInputs::normalise_bools(const DLTensor* const* inputs, const Workspace& workspace) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const InputPlan& plan = plan_->inputs()[i];
    if (!plan.is_bool || follows(i) || !(workspace.is_host() || plan.on_host)) continue;
    aotpack_module_tensor& tensor = tensors_[i];
    size_t count = 1;
    for (int32_t axis = 0; axis < plan.rank; ++axis) count *= static_cast<size_t>(tensor.sizes[axis]);
    if (are_bools(tensor.data, count)) continue;
    // Never in the caller's memory, which others may be reading.
    if (copies_[i].block == nullptr) copy_in(i, *inputs[i], tensor.strides, count, workspace);
    make_bools(tensor.data, count);
  }
}

// The first of the inputs that are one tensor, or the first that the call writes to: what a module writes to it is
// written back.
void BoundInputs::find_leaders(const VariantRecord& variant) {
  if (same_ != nullptr) {
    for (const std::vector<uint32_t>& group : *same_) {
      for (const uint32_t index : group) leaders_[index] = index;
    }
    same_ = nullptr;
  }
  if (variant.same.empty()) return;
  if (leaders_.empty()) {
    leaders_.resize(tensors_.size());
    std::iota(leaders_.begin(), leaders_.end(), 0u);
  }
  same_ = &variant.same;
  for (const std::vector<uint32_t>& group : *same_) {
    const auto written =
        std::find_if(group.begin(), group.end(), [&](uint32_t index) { return plan_->inputs()[index].is_mutated; });
    const uint32_t leader = written != group.end() ? *written : group.front();
    for (const uint32_t index : group) leaders_[index] = leader;
  }
}

void BoundInputs::join_followers() noexcept {
  if (same_ == nullptr) return;
  for (const std::vector<uint32_t>& group : *same_) {
    for (const uint32_t index : group) tensors_[index] = tensors_[leaders_[index]];
  }
}

size_t BoundInputs::bind(const DLTensor* const* inputs, size_t count, const Workspace& workspace) {
  check_kinds(inputs, count, workspace.device_id());
  sizes_.solve(inputs);
  // Everything before any copy: a wrong call should cost nothing.
  check_sizes(inputs);
  const size_t variant = choose_variant(*plan_, sizes_.data(), inputs);
  if (plan_->has_same()) find_leaders(plan_->record().variants[variant]);
  const bool is_host = workspace.is_host();
  try {
    for (size_t i = 0; i < count; ++i) {
      if (follows(i)) [[unlikely]]
        continue;
      const InputPlan& plan = plan_->inputs()[i];
      if (!(is_host || plan.on_host) || !use_in_place(plan, *inputs[i], &tensors_[i])) [[unlikely]]
        place(i, *inputs[i], workspace);
    }
    if (plan_->has_bool_inputs()) normalise_bools(inputs, workspace);
    join_followers();
  } catch (...) {
    release();
    throw;
  }
  return variant;
}

void BoundInputs::own(const Workspace& workspace) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const InputPlan& plan = plan_->inputs()[i];
    if (plan.is_mutated || follows(i) || copies_[i].block != nullptr) continue;
    aotpack_module_tensor& tensor = tensors_[i];
    size_t bytes = plan.item;
    for (int32_t axis = 0; axis < tensor.rank; ++axis) bytes *= static_cast<size_t>(tensor.sizes[axis]);
    if (bytes == 0) {
      tensor.data = empty_data;
      continue;
    }
    void* block = workspace.allocator_of(plan.on_host)->allocate(bytes);
    if (block == nullptr) {
      fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes to copy input '%s'", bytes,
           plan_->record().inputs[i].name.c_str());
    }
    copies_[i].block = block;
    any_copy_ = true;
    workspace.stream().copy(Allocator::data(block), tensor.data, bytes);
    tensor.data = Allocator::data(block);
  }
  join_followers();
}

void BoundInputs::write_back(const Workspace& workspace) {
  if (!any_copy_) return;
  for (size_t i = 0; i < copies_.size(); ++i) {
    const InputPlan& plan = plan_->inputs()[i];
    if (copies_[i].block == nullptr || !plan.is_mutated) continue;
    const aotpack_module_tensor& tensor = tensors_[i];
    workspace.stream().copy_strided(copies_[i].given, copies_[i].given_strides, tensor.data, tensor.strides,
                                    tensor.sizes, tensor.rank, plan.item);
  }
}

void BoundInputs::release() noexcept {
  if (!any_copy_) return;
  for (Copy& copy : copies_) {
    if (copy.block != nullptr) Allocator::release_block(copy.block);
    if (copy.staged != nullptr) Allocator::release_block(copy.staged);
    copy.block = copy.staged = nullptr;
  }
  any_copy_ = false;
}

}  // namespace aotpack::runtime
