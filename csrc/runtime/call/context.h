// The state of calls: scratch memory, copies of what the model writes to, seed, number of threads.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "call/inputs.h"
#include "call/module_run.h"
#include "call/replays.h"
#include "call/state.h"
#include "call/steps.h"
#include "call/trial.h"
#include "call/undo.h"
#include "call/workspace.h"
#include "hal/imports.h"
#include "hal/profile.h"
#include "host/bound_thread.h"
#include "host/thread_team.h"
#include "model/model.h"

namespace aotpack::runtime {

// Belongs to one thread at a time; a call while another is running is refused. Keeps its model alive.
class Context {
 public:
  static constexpr int32_t kMaxThreads = 4096;

  // Throws INVALID_ARGUMENT for a number of threads outside [0, kMaxThreads], and for CPUs that the calling thread
  // cannot be bound to.
  // `keep`: a context that runs once, for results that stay, need not hold on to scratch memory, and makes no graphs.
  // `cpus`: where calls run; empty: where the calling thread does.
  Context(Model* model, int32_t num_threads, Allocator::Keep keep = Allocator::Keep::kFree, CpuSet cpus = {});
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  const Model& model() const noexcept { return *model_; }
  // A number that no other context of the process has had.
  uint64_t id() const noexcept { return id_; }
  int32_t num_threads() const noexcept { return num_threads_; }
  void set_num_threads(int32_t num_threads);
  void set_seed(uint64_t seed) noexcept { call_.seed = seed; }

  // See aotpack_context_set_stream and the like. Refused while a call is running, as another call is.
  void set_stream(void* stream);
  void* stream() const noexcept { return workspace_.stream_handle(); }
  void synchronize();

  // See aotpack_context_set_profiling. Refused while a call is running, as another call is.
  void set_profiling(bool enabled);
  // See aotpack_context_set_atomic and aotpack_context_set_check_finite. Refused while a call is running.
  void set_atomic(bool enabled);
  void set_check_finite(bool enabled);
  // See aotpack_context_set_choices and aotpack_context_clear_choices. Refused while a call is running.
  void set_choices(const aotpack_choice* choices, size_t count, bool records);
  void clear_choices();
  // Of choices that were set; NULL otherwise.
  const Trial* trial() const noexcept { return trial_.get(); }
  // The events of the last call; NULL where calls are not profiled.
  const Profile* profile() const noexcept { return profile_.get(); }

  // See aotpack_context_run. The elements of `outputs` are NULL when this throws.
  void run(size_t entry, const DLTensor* const* inputs, size_t num_inputs, DLManagedTensorVersioned** outputs,
           size_t num_outputs);
  // See aotpack_context_run_into.
  void run_into(size_t entry, const DLTensor* const* inputs, size_t num_inputs, const DLTensor* const* outputs,
                size_t num_outputs);

  // See aotpack_context_to_device. Refused while a call is running, as another call is.
  DLManagedTensorVersioned* to_device(const DLTensor& tensor);
  // See aotpack_context_get_state and the like. Refused while a call is running, as another call is.
  DLManagedTensorVersioned* get_state(size_t index);
  DLManagedTensorVersioned* share_state(size_t index);
  uint64_t state_generation() const noexcept { return state_generation_; }
  void load_state(const char* const* names, const DLTensor* const* tensors, size_t count);
  void save_state_file(const std::string& path);
  void load_state_file(const std::string& path, uint64_t flags);
  void reset();

  // See aotpack_context_variant.
  const char* variant(size_t entry) const noexcept;

  const Workspace& workspace() const noexcept { return workspace_; }

 private:
  // What one variant keeps from call to call.
  struct VariantScratch {
    std::vector<StepTable> tables;  // by step
    std::unique_ptr<Steps> steps;   // of a variant that is not direct; made at its first call
  };
  // What one entry keeps from call to call, so that a call allocates none of it.
  struct EntryScratch {
    explicit EntryScratch(const ModelEntry& entry);
    BoundInputs inputs;
    std::vector<aotpack_module_tensor> outputs;
    std::vector<VariantScratch> variants;
    const Variant* variant = nullptr;  // of the last call; NULL before the first that found one
  };
  // Gives back, at the end of a call, what the call still holds.
  class Cleanup;

  void check_state_index(size_t index) const;
  void bind_to(CpuSet cpus);
  EntryScratch& prepare(size_t entry, size_t num_outputs);
  // `shared` is the table of the weights.
  const aotpack_module_tensor* constants_of(const Step& step, const WeightSet& weights,
                                            const std::vector<aotpack_module_tensor>& shared, StepTable* table);
  // Fills in the outputs; from then on they are the cleanup's to release.
  void execute(size_t entry, EntryScratch& scratch, const WeightSet& weights, const DLTensor* const* inputs,
               size_t num_inputs, Undo& undo, Cleanup& cleanup);
  // The end of a call that succeeds.
  void finish(Undo& undo, Cleanup& cleanup);
  // Keeps the weights of a call that the caller records: what is recorded reads them whenever it runs.
  void keep_if_captured(const WeightsInUse& weights);
  // The ways that the kernels of a step go; NULL: as they choose.
  const aotpack_module_tuning* tuning_of(const Step& step, int32_t num_threads);
  // Calls a module with what all of its calls have.
  void launch(const EntryRecord& entry, const Variant& variant, const Step& step, aotpack_module_call* call,
              StepTable* table, uint64_t weights_id, int32_t num_threads);
  void finish_output(const ValueRecord& value, const Variant& variant, aotpack_module_tensor& output);
  DLManagedTensorVersioned* take_output(const ValueRecord& value, aotpack_module_tensor& output);

  Model* model_;
  const uint64_t id_;
  int32_t num_threads_ = 1;
  CpuSet cpus_;
  std::unique_ptr<ThreadTeam> team_;  // on those CPUs, where there are any
  std::atomic<bool> busy_{false};
  Workspace workspace_;
  Replays replays_;
  std::unique_ptr<Profile> profile_;
  std::unique_ptr<Trial> trial_;
  CallState call_;
  std::vector<std::unique_ptr<EntryScratch>> scratch_;  // by entry, made at its first call
  State state_;
  uint64_t state_generation_ = 0;
  bool atomic_ = false;
  bool check_finite_ = false;
  std::vector<std::shared_ptr<const WeightSet>> captured_;
};

}  // namespace aotpack::runtime
