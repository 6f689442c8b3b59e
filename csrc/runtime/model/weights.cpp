#include "model/weights.h"

#include <algorithm>
#include <new>

#include "archive/archive.h"
#include "base/status.h"
#include "model/model.h"

namespace aotpack::runtime {
namespace {

constexpr size_t kAlignment = 256;  // as of the blocks of drivers
// Blocks have at least so many bytes where there are enough constants: drivers round them up to 2 MiB and need tens of
// microseconds for each.
constexpr size_t kBlock = size_t{16} << 20;

}  // namespace

OwnedMemory allocate_weight(Device& device, size_t bytes) {
  // At least one byte: NULL is no value.
  void* memory = device.allocate(std::max<size_t>(bytes, 1), AOTPACK_ALIGNMENT);
  if (memory == nullptr) {
    device.require_usable();
    if (device.is_host()) throw std::bad_alloc();
    fail(AOTPACK_OUT_OF_MEMORY, "out of memory: %zu bytes for weights on %s", bytes, device.description().c_str());
  }
  return OwnedMemory(memory, [&device](void* block) { device.free(block); });
}

std::vector<std::shared_ptr<void>> allocate_weights(Device& device, const std::vector<size_t>& bytes, bool together) {
  std::vector<std::shared_ptr<void>> owners;
  owners.reserve(bytes.size());
  std::vector<size_t> offsets;  // in the next block
  size_t size = 0;
  const auto finish_block = [&] {
    if (offsets.empty()) return;
    const std::shared_ptr<void> block(allocate_weight(device, size));
    for (const size_t offset : offsets) owners.emplace_back(block, static_cast<char*>(block.get()) + offset);
    offsets.clear();
    size = 0;
  };
  for (const size_t of_constant : bytes) {
    offsets.push_back(size);
    size += (of_constant + kAlignment - 1) / kAlignment * kAlignment;
    if (!together && size >= kBlock) finish_block();
  }
  finish_block();
  return owners;
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
