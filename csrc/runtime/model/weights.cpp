#include "model/weights.h"

#include <algorithm>
#include <new>

#include "archive/archive.h"
#include "model/model.h"

namespace aotpack::runtime {

OwnedMemory allocate_weight(Device& device, size_t bytes) {
  // At least one byte: NULL is no value.
  void* memory = device.allocate(std::max<size_t>(bytes, 1), AOTPACK_ALIGNMENT);
  if (memory == nullptr) throw std::bad_alloc();
  return OwnedMemory(memory, [&device](void* block) { device.free(block); });
}

WeightSet::WeightSet(const Archive& archive, const std::vector<ModelEntry>& entries, uint64_t id,
                     std::vector<ConstantValue> values)
    : id_(id), values_(std::move(values)) {
  for (const ModelEntry& entry : entries) {
    auto& of_entry = tables_.emplace_back();
    for (const Variant& variant : entry.variants) {
      auto& table = of_entry.emplace_back();
      for (const uint32_t index : variant.module_record->constants) {
        const ConstantRecord& record = archive.manifest().constants[index];
        aotpack_module_tensor& tensor = table.emplace_back();
        tensor = {};
        // The archive's pages are read-only: a module that writes to a constant that is not flagged as mutated gets a
        // fault, not a silent change for everyone.
        tensor.data = const_cast<void*>(values_[index].data);
        tensor.dtype = record.dtype->module_code;
        tensor.rank = static_cast<int32_t>(record.shape.size());
        std::copy(record.shape.begin(), record.shape.end(), tensor.sizes);
        std::copy(record.stride.begin(), record.stride.end(), tensor.strides);
      }
    }
  }
}

}  // namespace aotpack::runtime
