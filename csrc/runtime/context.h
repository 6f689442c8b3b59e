// The state of calls: scratch memory, copies of what the model writes to, seed, number of threads.
#ifndef AOTPACK_RUNTIME_CONTEXT_H_
#define AOTPACK_RUNTIME_CONTEXT_H_

#include <atomic>
#include <memory>
#include <vector>

#include "imports.h"
#include "inputs.h"
#include "model.h"

namespace aotpack::runtime {

// Belongs to one thread at a time; a call while another is running is refused. Keeps its model alive.
class Context {
 public:
  static constexpr int32_t kMaxThreads = 4096;

  // Throws INVALID_ARGUMENT for a number of threads outside [0, kMaxThreads].
  Context(Model* model, int32_t num_threads);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int32_t num_threads() const noexcept { return num_threads_; }
  void set_num_threads(int32_t num_threads);
  void set_seed(uint64_t seed) noexcept { call_.seed = seed; }

  // See aotpack_context_run. The elements of `outputs` are NULL when this throws.
  void run(size_t entry, const DLTensor* const* inputs, size_t num_inputs, DLManagedTensorVersioned** outputs,
           size_t num_outputs);
  // See aotpack_context_run_into.
  void run_into(size_t entry, const DLTensor* const* inputs, size_t num_inputs, const DLTensor* const* outputs,
                size_t num_outputs);

  Pool& pool() noexcept { return *call_.pool; }

 private:
  // What one entry keeps from call to call, so that a call allocates none of it.
  struct EntryState {
    explicit EntryState(const ModelEntry& entry);
    BoundInputs inputs;
    std::vector<aotpack_module_tensor> outputs;
    std::vector<std::vector<aotpack_module_tensor>> constants;  // by variant; empty: the model's own
  };
  // Gives back, at the end of a call, what the call still holds.
  class Cleanup;

  EntryState& prepare(size_t entry, size_t num_outputs);
  void make_private_constants(const Variant& variant, std::vector<aotpack_module_tensor>* out);
  size_t choose_variant(const ModelEntry& entry, const BoundInputs& inputs) const;
  void execute(const ModelEntry& entry, EntryState& state, const DLTensor* const* inputs, size_t num_inputs);
  [[noreturn]] void execution_failed(const EntryRecord& entry, int32_t code) const;
  void adopt_outputs(EntryState& state) noexcept;
  // Makes an output dense in the model's order and the owner of its block. What aliases an input or a constant, or is a
  // view of something bigger, gets memory of its own.
  void own_output(const ValueRecord& value, aotpack_module_tensor& output);
  DLManagedTensorVersioned* take_output(const ValueRecord& value, aotpack_module_tensor& output);

  Model* model_;
  int32_t num_threads_ = 1;
  std::atomic<bool> busy_{false};
  CallState call_;
  std::vector<std::unique_ptr<EntryState>> states_;  // by entry, made at its first call
  std::vector<void*> private_constants_;             // by constant; NULL where there is no copy
};

}  // namespace aotpack::runtime

#endif  // AOTPACK_RUNTIME_CONTEXT_H_
