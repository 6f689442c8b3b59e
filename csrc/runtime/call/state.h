// What a model writes to: every context has copies of those constants.
#pragma once

#include <cstdint>
#include <vector>

#include "aotpack/aotpack.h"
#include "call/workspace.h"
#include "host/file_map.h"
#include "model/model.h"

namespace aotpack::runtime {

// One context's copies of all mutated constants of a model, made together at the first call that needs one: until then
// they have the initial values. Entries and variants share them. Belongs to one thread at a time.
class State {
 public:
  explicit State(const Model& model) noexcept : model_(model) {}
  ~State() { reset(); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Changes whenever data() may.
  uint64_t version() const noexcept { return version_; }
  // Copies the initial values, those of `weights`, unless there are copies already. Throws OUT_OF_MEMORY; there are
  // none then.
  void ensure(const WeightSet& weights, const Workspace& workspace);
  // Lets the copies go.
  void reset() noexcept;
  // The context's copy of a mutated constant. Only after ensure().
  void* data(size_t constant) const noexcept { return copies_[constant].data; }

  // A new row-major tensor with the value of model.state()[index]. Throws OUT_OF_MEMORY.
  DLManagedTensorVersioned* get(size_t index, const WeightSet& weights, const Workspace& workspace) const;
  // Replaces all values. Throws INVALID_ARGUMENT with everything that is wrong, or OUT_OF_MEMORY; nothing has changed
  // then.
  void load(const char* const* names, const DLTensor* const* tensors, size_t count, const WeightSet& weights,
            const Workspace& workspace);

 private:
  struct Copy {
    void* data = nullptr;
    void* block = nullptr;
    PrivateMap map;  // empty: `data` is that of `block`
  };

  void copy_from_device(const DLTensor& given, uint32_t constant, const Workspace& workspace);
  void make(uint32_t constant, const WeightSet& weights, const Workspace& workspace);

  const Model& model_;
  std::vector<Copy> copies_;  // by constant; empty: there are none
  uint64_t version_ = 1;
};

}  // namespace aotpack::runtime
