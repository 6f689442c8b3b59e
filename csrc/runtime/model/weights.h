// The values of a model's constants: the archive's own, or those of an update.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "aotpack/module_abi.h"
#include "hal/device.h"

namespace aotpack::runtime {

class Archive;
struct ModelEntry;
struct Step;

// Memory and how to free it.
using OwnedMemory = std::unique_ptr<void, std::function<void(void*)>>;

// Uninitialised memory of a device, at a multiple of AOTPACK_ALIGNMENT. Throws std::bad_alloc, or
// OUT_OF_MEMORY where it is not the host's.
OwnedMemory allocate_weight(Device& device, size_t bytes);

// Uninitialised memory of a device for several constants of so many bytes each: an owner of each, at whose address it
// is. Constants share blocks; a block is freed when none of its constants has an owner any more. `together`: all are in
// one block, for constants that go at the same time. Throws as above.
std::vector<std::shared_ptr<void>> allocate_weights(Device& device, const std::vector<size_t>& bytes, bool together);

// The value of a constant. On a device whose memory the host cannot access, it is there, in memory of the host, or
// both.
struct ConstantValue {
  const void* data = nullptr;        // on the model's device; NULL: not there
  std::shared_ptr<void> owner;       // NULL: the archive's pages
  const void* host = nullptr;        // in memory of the host, if that is not the model's device; NULL: not there
  std::shared_ptr<void> host_owner;  // NULL: the archive's pages
};

// Immutable, and shared by the calls that run on it: a call sees one set from its beginning to its end. The archive
// outlives it.
class WeightSet {
 public:
  // `values[i]` is that of constant i; what modules read is there. No two sets of a model have the same id.
  WeightSet(const Archive& archive, const std::vector<ModelEntry>& entries, uint64_t id,
            std::vector<ConstantValue> values);

  uint64_t id() const noexcept { return id_; }
  const std::vector<ConstantValue>& values() const noexcept { return values_; }
  const void* data(size_t constant) const noexcept { return values_[constant].data; }
  // The value in memory of the host, of a model whose steps on the host read it.
  const void* host_data(size_t constant) const noexcept {
    return values_[constant].host != nullptr ? values_[constant].host : values_[constant].data;
  }
  // The constants of a step's module, in the order that it expects. Those that are mutated have the initial value.
  const std::vector<aotpack_module_tensor>& table(size_t entry, size_t variant, size_t step) const noexcept {
    return tables_[entry][variant][step];
  }

 private:
  std::vector<aotpack_module_tensor> make_table(const Archive& archive, const Step& step) const;

  uint64_t id_;
  std::vector<ConstantValue> values_;
  // By entry, by variant, by step.
  std::vector<std::vector<std::vector<std::vector<aotpack_module_tensor>>>> tables_;
};

// A set for the time of a call. That of a frozen model lives as long as the model and is not counted.
class WeightsInUse {
 public:
  explicit WeightsInUse(const WeightSet* set) noexcept : set_(set) {}
  explicit WeightsInUse(std::shared_ptr<const WeightSet> set) noexcept : set_(set.get()), owner_(std::move(set)) {}

  const WeightSet& operator*() const noexcept { return *set_; }
  const WeightSet* operator->() const noexcept { return set_; }
  // Keeps the set. NULL in a frozen model, which does.
  const std::shared_ptr<const WeightSet>& owner() const noexcept { return owner_; }

 private:
  const WeightSet* set_;
  std::shared_ptr<const WeightSet> owner_;
};

}  // namespace aotpack::runtime
