#include "call/outputs.h"

#include <algorithm>

#include "base/dltensor.h"
#include "base/sharing.h"
#include "base/status.h"
#include "base/strided.h"
#include "call/tensor_kind.h"
#include "model/describe.h"

namespace aotpack::runtime {
namespace {

using ll = long long;

// Not inlined: every call goes through its caller.
[[noreturn, gnu::noinline]] void wrong_device(const EntryRecord& entry, std::string_view step, const ValueRecord& value,
                                              aotpack_module_device got, aotpack_module_device wanted) {
  const auto name_of = [](aotpack_module_device device) {
    return device_name({static_cast<DLDeviceType>(device.type), device.index});
  };
  fail(AOTPACK_INTERNAL, "entry '%s'%.*s: the module returned output '%s' on %s, which must be on %s",
       entry.name.c_str(), static_cast<int>(step.size()), step.data(), value.name.c_str(), name_of(got).c_str(),
       name_of(wanted).c_str());
}

}  // namespace

bool is_as_declared(const ValueRecord& value, const aotpack_module_tensor& output, const uint32_t* slots,
                    const int64_t* sizes) noexcept {
  bool right = output.dtype == value.dtype->module_code && output.rank == static_cast<int32_t>(value.shape.size());
  bool empty = false;
  for (int32_t axis = 0; right && axis < output.rank; ++axis) {
    const int64_t got = output.sizes[axis];
    right = got >= 0 && (slots[axis] == EntryPlan::kAnySize || got == sizes[slots[axis]]);
    empty = empty || got == 0;
  }
  return right && (output.data != nullptr || empty);
}

void refuse_output(const EntryRecord& entry, std::string_view step, const ValueRecord& value) {
  fail(AOTPACK_INTERNAL, "entry '%s'%.*s: the module returned an output '%s' that is not what the manifest says: %s %s",
       entry.name.c_str(), static_cast<int>(step.size()), step.data(), value.name.c_str(), value.dtype->name,
       describe_shape(entry, value).c_str());
}

void check_outputs(const EntryPlan& plan, const std::vector<aotpack_module_tensor>& outputs, const int64_t* sizes) {
  const EntryRecord& entry = plan.record();
  const uint32_t* slot = plan.output_slots().data();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueRecord& value = entry.outputs[i];
    if (!is_as_declared(value, outputs[i], slot, sizes)) [[unlikely]]
      refuse_output(entry, "", value);
    slot += value.shape.size();
  }
}

void check_output_devices(const EntryRecord& entry, const ModuleCall& call, const aotpack_module_device* devices) {
  if (!call.names_devices()) return;
  const std::vector<aotpack_module_device>& wanted = call.output_devices();
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (devices[i].type != wanted[i].type || devices[i].index != wanted[i].index) [[unlikely]]
      wrong_device(entry, "", entry.outputs[i], devices[i], wanted[i]);
  }
}

void check_output_device(const EntryRecord& entry, const std::string& step, const ValueRecord& value,
                         const ModuleCall& call, size_t index, aotpack_module_device device) {
  const aotpack_module_device wanted = call.output_devices()[index];
  if (device.type != wanted.type || device.index != wanted.index) wrong_device(entry, step, value, device, wanted);
}

void adopt_outputs(std::vector<aotpack_module_tensor>* outputs) noexcept {
  for (aotpack_module_tensor& output : *outputs) {
    if (output.block != nullptr && Allocator::claim(output.block)) Allocator::retain_block(output.block);
  }
}

void* own_output(const ValueRecord& value, aotpack_module_tensor& output, bool on_host, const Workspace& workspace) {
  int64_t strides[AOTPACK_MAX_RANK];
  size_t bytes = 0;
  if (!dense_strides(output.sizes, value.order.data(), output.rank, value.dtype->size, strides, &bytes)) {
    fail(AOTPACK_INTERNAL, "output '%s' is larger than the address space", value.name.c_str());
  }
  void* replaced = nullptr;
  const bool to_host = value.device == kHostDevice;
  if (output.block == nullptr || !same_layout(output.sizes, output.strides, strides, output.rank) ||
      (to_host != on_host && !workspace.is_host())) {
    void* copy = workspace.allocator_of(to_host)->allocate(bytes);
    if (copy == nullptr) {
      fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes for output '%s'", bytes, value.name.c_str());
    }
    void* data = Allocator::data(copy);
    try {
      // What is in no block may be a number, which is on the host.
      const bool is_far = !to_host && !on_host && output.block != nullptr && !workspace.is_host();
      const auto move = is_far ? &Stream::copy_strided_on_device : &Stream::copy_strided;
      (workspace.stream().*move)(data, strides, output.data, output.strides, output.sizes, output.rank,
                                 value.dtype->size);
    } catch (...) {
      Allocator::release_block(copy);
      throw;
    }
    replaced = output.block;
    output.block = copy;
    output.data = data;
  }
  // Also where nothing was copied: dims of size 1 may have come with any stride.
  std::copy(strides, strides + output.rank, output.strides);
  return replaced;
}

void check_destinations(const EntryRecord& entry, const DLTensor* const* destinations, size_t count, DLDevice device) {
  if (count > 0 && destinations == nullptr) fail(AOTPACK_INVALID_ARGUMENT, "outputs is NULL");
  for (size_t i = 0; i < count; ++i) {
    const ValueRecord& value = entry.outputs[i];
    const DLTensor* given = destinations[i];
    check_tensor_kind("output", entry, value, given, device);
    const int32_t rank = given->ndim;
    for (int32_t axis = 0; axis < rank; ++axis) {
      const SizeRecord& size = value.shape[static_cast<size_t>(axis)];
      if (size.kind == SizeRecord::Kind::kStatic && given->shape[axis] != size.size) {
        fail(AOTPACK_INVALID_ARGUMENT, "output '%s': dim %d must be %lld, got %lld", value.name.c_str(), axis,
             static_cast<ll>(size.size), static_cast<ll>(given->shape[axis]));
      }
    }
    int64_t compact[AOTPACK_MAX_RANK];
    const int64_t* strides = nullptr;
    if (!strides_of(*given, compact, &strides) || !is_non_overlapping(given->shape, strides, rank)) {
      fail(AOTPACK_INVALID_ARGUMENT, "output '%s': the strides of its buffer overlap", value.name.c_str());
    }
    const bool empty = std::find(given->shape, given->shape + rank, 0) != given->shape + rank;
    if (!empty && data_of(*given) == nullptr) {
      fail(AOTPACK_INVALID_ARGUMENT, "output '%s' has no data", value.name.c_str());
    }
  }
}

void check_destination_sizes(const EntryRecord& entry, const std::vector<aotpack_module_tensor>& outputs,
                             const DLTensor* const* destinations) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    for (int32_t axis = 0; axis < outputs[i].rank; ++axis) {
      const int64_t size = outputs[i].sizes[axis];
      if (destinations[i]->shape[axis] == size) continue;
      const ValueRecord& value = entry.outputs[i];
      fail(AOTPACK_INVALID_ARGUMENT, "output '%s': dim %d is %s = %lld in this call, the buffer has %lld",
           value.name.c_str(), axis, describe_size(entry, value.shape[static_cast<size_t>(axis)]).c_str(),
           static_cast<ll>(size), static_cast<ll>(destinations[i]->shape[axis]));
    }
  }
}

bool touches_any(const ValueRecord& value, const aotpack_module_tensor& output, const DLTensor* const* destinations,
                 size_t count) noexcept {
  const AddressRange source = addresses({output.data, output.sizes, output.strides, output.rank, value.dtype->size});
  for (size_t i = 0; i < count; ++i) {
    int64_t compact[AOTPACK_MAX_RANK];
    const int64_t* strides = nullptr;
    const DLTensor& other = *destinations[i];
    if (!strides_of(other, compact, &strides)) continue;
    const DType* type = find_dtype(other.dtype);
    const size_t item = type != nullptr ? type->size : 1;
    if (intersect(source, addresses({data_of(other), other.shape, strides, other.ndim, item}))) return true;
  }
  return false;
}

void copy_out(const ValueRecord& value, const aotpack_module_tensor& output, const DLTensor& destination,
              Stream& stream) {
  int64_t compact[AOTPACK_MAX_RANK];
  const int64_t* strides = nullptr;
  if (!strides_of(destination, compact, &strides)) return;  // was checked
  const bool is_far = value.device != kHostDevice && output.block != nullptr && !is_on_host(destination.device);
  const auto move = is_far ? &Stream::copy_strided_on_device : &Stream::copy_strided;
  (stream.*move)(data_of(destination), strides, output.data, output.strides, output.sizes, output.rank,
                 value.dtype->size);
}

}  // namespace aotpack::runtime
