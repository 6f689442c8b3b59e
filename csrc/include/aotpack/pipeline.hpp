// Part of aotpack.hpp: several calls at a time, in stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "aotpack/aotpack.h"
#include "aotpack/context.hpp"
#include "aotpack/model.hpp"
#include "aotpack/tensors.hpp"

namespace aotpack {

// A thread of a pipeline; see aotpack_pipeline_worker.
struct PipelineWorker {
  size_t stage = 0;
  std::vector<int32_t> cpus = {};  // empty: a share of the CPUs of the thread that makes the pipeline
  int32_t num_threads = 0;         // 0: one per CPU
};

// See aotpack_pipeline_options.
struct PipelineOptions {
  size_t entry = 0;
  std::vector<PipelineWorker> workers = {};  // empty: one per stage
  size_t max_in_flight = 0;                  // 0: two per worker
  std::optional<uint64_t> seed = {};
};

// A call that a pipeline runs. Movable; may outlive the pipeline.
class PendingCall {
 public:
  // Whether the call has ended, after at most `timeout_ns`; negative: whenever that is.
  bool wait(int64_t timeout_ns = -1) {
    bool ended = false;
    detail::check(aotpack_call_wait(handle_.get(), timeout_ns, &ended));
    return ended;
  }
  // Waits, and moves the results out, once. Throws what the call has failed with.
  std::vector<Tensor> take() {
    std::vector<DLManagedTensorVersioned*> raw(num_outputs_);
    std::vector<Tensor> outputs(raw.size());
    detail::check(aotpack_call_take(handle_.get(), raw.data(), raw.size()));
    for (size_t i = 0; i < raw.size(); ++i) outputs[i] = Tensor(raw[i]);
    return outputs;
  }

 private:
  friend class Pipeline;
  struct Deleter {
    void operator()(aotpack_call* call) const noexcept { aotpack_call_release(call); }
  };
  PendingCall(aotpack_call* handle, size_t num_outputs) noexcept : handle_(handle), num_outputs_(num_outputs) {}
  std::unique_ptr<aotpack_call, Deleter> handle_;
  size_t num_outputs_;
};

// Runs the steps of an entry on threads of its own, several calls at a time. Movable; any number of threads may use it.
class Pipeline {
 public:
  explicit Pipeline(const Model& model, const PipelineOptions& options = {}) : model_(model), entry_(options.entry) {
    std::vector<aotpack_pipeline_worker> workers;
    workers.reserve(options.workers.size());
    std::vector<const aotpack_pipeline_worker*> pointers;
    for (const PipelineWorker& given : options.workers) {
      aotpack_pipeline_worker& worker = workers.emplace_back();
      worker.struct_size = sizeof worker;
      worker.stage = given.stage;
      worker.cpus = given.cpus.data();
      worker.cpu_count = given.cpus.size();
      worker.num_threads = given.num_threads;
      pointers.push_back(&worker);
    }
    aotpack_pipeline_options raw{};
    raw.struct_size = sizeof raw;
    raw.entry = options.entry;
    raw.workers = pointers.data();
    raw.worker_count = pointers.size();
    raw.max_in_flight = options.max_in_flight;
    raw.seed = options.seed.value_or(0);
    raw.seeded = options.seed.has_value();
    aotpack_pipeline* handle = nullptr;
    detail::check(aotpack_pipeline_create(model.handle(), &raw, &handle));
    handle_.reset(handle);
  }

  const Model& model() const noexcept { return model_; }

  // Starts a call when there is room. Inputs are copied, except those that the model writes to: MutableTensorViews,
  // whose memory must not be used otherwise until the call has ended.
  PendingCall submit(const std::vector<TensorView>& inputs) {
    detail::check_written(model_, inputs, entry_);
    const detail::Pointers given(inputs);
    aotpack_call* call = nullptr;
    detail::check(aotpack_pipeline_submit(handle_.get(), given.data(), given.size(), &call));
    return PendingCall(call, model_.output_count(entry_));
  }
  // Accepts no more calls; returns when all have ended. With `cancel`, those that wait for a stage fail.
  void close(bool cancel = false) { detail::check(aotpack_pipeline_close(handle_.get(), cancel)); }

  // Copies of the state after all calls that were submitted before.
  NamedTensors state() {
    NamedTensors state;
    size_t index = 0;
    for (const aotpack_weight_info& info : model_.state()) {
      DLManagedTensorVersioned* tensor = nullptr;
      detail::check(aotpack_pipeline_get_state(handle_.get(), index++, &tensor));
      Tensor owner(tensor);
      state.emplace_back(info.name, std::move(owner));
    }
    return state;
  }
  void load_state(const NamedViews& state) {
    const detail::NamedPointers given(state);
    detail::check(aotpack_pipeline_load_state(handle_.get(), given.names(), given.tensors(), given.size()));
  }
  void reset() { detail::check(aotpack_pipeline_reset(handle_.get())); }

  aotpack_pipeline* handle() const noexcept { return handle_.get(); }

 private:
  struct Deleter {
    void operator()(aotpack_pipeline* pipeline) const noexcept { aotpack_pipeline_release(pipeline); }
  };
  Model model_;
  size_t entry_;
  std::unique_ptr<aotpack_pipeline, Deleter> handle_;
};

}  // namespace aotpack
