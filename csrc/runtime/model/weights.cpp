#include "model/weights.h"

#include <algorithm>
#include <new>

#include "archive/archive.h"
#include "model/model.h"

namespace aotpack::runtime {

OwnedMemory allocate_weight(Device& device, size_t bytes) {
  // At least one byte: NULL is no value.
  void* memory = device.allocate(std::max<size_t>(bytes, 1), AOTPACK_ALIGNMENT);
  if (memory == nullptr) {
    device.require_usable();
    throw std::bad_alloc();
  }
  return OwnedMemory(memory, [&device](void* block) { device.free(block); });
}

WeightSet::WeightSet(const Archive& archive, const std::vector<ModelEntry>& entries, uint64_t id,
                     std::vector<ConstantValue> values)
    : id_(id), values_(std::move(values)) {
  for (const ModelEntry& entry : entries) {
    auto& of_entry = tables_.emplace_back();
    for (const Variant& variant : entry.variants) {
      auto& of_variant = of_entry.emplace_back();
      for (const Step& step : variant.steps) of_variant.push_back(make_table(archive, step));
    }
  }
}

std::vector<aotpack_module_tensor> WeightSet::make_table(const Archive& archive, const Step& step) const {
  std::vector<aotpack_module_tensor> table;
  for (const uint32_t index : step.module->constants) {
    const ConstantRecord& record = archive.manifest().constants[index];
    aotpack_module_tensor& tensor = table.emplace_back();
    tensor = {};
    // The archive's pages are read-only: a module that writes to a constant that is not flagged as mutated gets a
    // fault, not a silent change for everyone.
    tensor.data = const_cast<void*>(step.on_host ? host_data(index) : data(index));
    tensor.dtype = record.dtype->module_code;
    tensor.rank = static_cast<int32_t>(record.shape.size());
    std::copy(record.shape.begin(), record.shape.end(), tensor.sizes);
    std::copy(record.stride.begin(), record.stride.end(), tensor.strides);
  }
  return table;
}

}  // namespace aotpack::runtime
