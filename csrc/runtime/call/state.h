// What a model writes to: every context has copies of those constants.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "aotpack/aotpack.h"
#include "call/given.h"
#include "call/workspace.h"
#include "host/file_map.h"
#include "host/huge_memory.h"
#include "model/model.h"
#include "safetensors/format.h"
#include "safetensors/reader.h"

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
  // Whether the values are the initial ones, of which there are no copies.
  bool is_initial() const noexcept { return copies_.empty(); }
  // Copies the initial values, those of `weights`, unless there are copies already. Throws OUT_OF_MEMORY; there are
  // none then.
  void ensure(const WeightSet& weights, const Workspace& workspace);
  // The same for a step that trains: what is trained is in memory then, and no page of the file any more, as such a
  // step writes to all of it. Uses up to `threads` threads.
  void ensure_trained(const WeightSet& weights, const Workspace& workspace, int32_t threads) {
    if (copies_.empty() || !settled_) settle(weights, workspace, threads);
  }
  // Lets the copies go. Tensors of share() keep their memory, which is no longer that of the state.
  void reset() noexcept;
  // Gives all copies the initial values, those of `weights`, where they are. Only after ensure().
  void restore(const WeightSet& weights, const Workspace& workspace);
  // Whether there are tensors that share memory with the copies, which therefore stay where they are.
  bool is_shared() const noexcept { return shared_; }
  // The context's copy of a mutated constant. Only after ensure().
  void* data(size_t constant) const noexcept { return copies_[constant].data; }

  // A new row-major tensor with the value of model.state()[index]. Throws OUT_OF_MEMORY.
  DLManagedTensorVersioned* get(size_t index, const WeightSet& weights, const Workspace& workspace) const;
  // A tensor over the copy of model.state()[index], with the strides of its record. Makes the copies. Throws
  // OUT_OF_MEMORY.
  DLManagedTensorVersioned* share(size_t index, const WeightSet& weights, const Workspace& workspace);
  // Replaces all values. Throws INVALID_ARGUMENT with everything that is wrong, or OUT_OF_MEMORY; nothing has changed
  // then.
  void load(const char* const* names, const DLTensor* const* tensors, size_t count, const WeightSet& weights,
            const Workspace& workspace);

  // Writes all values to a `.safetensors` file. Throws what write_safetensors throws, OUT_OF_MEMORY, or what streams
  // throw; the file is the old one then.
  void save_file(const std::string& path, const Metadata& metadata, const WeightSet& weights,
                 const Workspace& workspace) const;
  // Replaces the values by those of a file. `flags` are AOTPACK_STATE_*: values that may be missing stay as they are.
  // Throws INVALID_ARGUMENT with everything that is wrong, OUT_OF_MEMORY, or what reading throws; nothing has changed
  // then. The new values are read into memory of their own: both sets are there until the end.
  void load_file(const SafetensorsReader& file, uint64_t flags, const WeightSet& weights, const Workspace& workspace);

 private:
  struct Copy {
    void* data = nullptr;
    void* block = nullptr;
    Mapping map;  // empty: `data` is that of `block`, or in `trained_`
  };

  void copy_from_device(const DLTensor& given, uint32_t constant, const Workspace& workspace);
  void settle(const WeightSet& weights, const Workspace& workspace, int32_t threads);
  void make(uint32_t constant, const WeightSet& weights, const Workspace& workspace);
  // Copies the initial value to where the copy is.
  void fill(uint32_t constant, const WeightSet& weights, const Workspace& workspace);
  // Copies the values of another state of the model to where the copies are.
  void copy_from(const State& other, const Workspace& workspace);
  // Memory for a copy, whose contents are whatever they are.
  void make_room(uint32_t constant, const Workspace& workspace);
  // Where a value is now, in the layout of its record.
  const void* value_of(uint32_t constant, const WeightSet& weights) const noexcept;
  const StoredTensor* find_stored(const SafetensorsReader& file, uint32_t constant, uint64_t flags,
                                  Problems* problems) const;
  void read_stored(const SafetensorsReader& file, const StoredTensor& stored, uint32_t constant,
                   const Workspace& workspace);
  void swap(State& other) noexcept {
    copies_.swap(other.copies_);
    std::swap(trained_, other.trained_);
    std::swap(settled_, other.settled_);
    ++version_;
  }

  const Model& model_;
  std::vector<Copy> copies_;  // by constant; empty: there are none
  Mapping trained_;           // of copies
  bool settled_ = false;      // none of what is trained is mapped
  bool shared_ = false;
  uint64_t version_ = 1;
};

// Throws OUT_OF_MEMORY for a copy of a constant.
[[noreturn]] void no_state_memory(size_t bytes, const ConstantRecord& record);

}  // namespace aotpack::runtime
