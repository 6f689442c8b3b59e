// The functions of the C interface that concern pipelines.
#include "pipeline/pipeline.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>

#include "aotpack/aotpack.h"
#include "api/handles.h"
#include "base/status.h"
#include "host/process.h"

using aotpack::runtime::fail;
using aotpack::runtime::guarded;
using aotpack::runtime::Model;
using aotpack::runtime::PendingCall;
using aotpack::runtime::Pipeline;
using aotpack::runtime::PipelineOptions;
using aotpack::runtime::PipelineWorker;
using aotpack::runtime::require;
using aotpack::runtime::unwrap;

struct aotpack_call {
  std::shared_ptr<PendingCall> pending;
};

namespace {

Pipeline* unwrap(aotpack_pipeline* pipeline) { return reinterpret_cast<Pipeline*>(pipeline); }

PipelineWorker read_worker(const aotpack_pipeline_worker* given) {
  require(given != nullptr, "a worker is NULL");
  require(given->struct_size >= offsetof(aotpack_pipeline_worker, cpu_count) + sizeof given->cpu_count,
          "aotpack_pipeline_worker.struct_size is not set");
  aotpack_pipeline_worker all{};
  // A caller may know fewer members, or more.
  std::memcpy(&all, given, std::min(given->struct_size, sizeof all));
  require(all.cpus != nullptr || all.cpu_count == 0, "aotpack_pipeline_worker.cpus is NULL");
  PipelineWorker worker;
  worker.stage = all.stage;
  worker.cpus.assign(all.cpus, all.cpus + all.cpu_count);
  worker.num_threads = all.num_threads;
  return worker;
}

PipelineOptions read_options(const aotpack_pipeline_options* given) {
  PipelineOptions options;
  options.seed = aotpack::runtime::random_seed();
  if (given == nullptr) return options;
  require(given->struct_size >= offsetof(aotpack_pipeline_options, entry) + sizeof given->entry,
          "aotpack_pipeline_options.struct_size is not set");
  aotpack_pipeline_options all{};
  std::memcpy(&all, given, std::min(given->struct_size, sizeof all));
  options.entry = all.entry;
  require(all.workers != nullptr || all.worker_count == 0, "aotpack_pipeline_options.workers is NULL");
  require(all.worker_count <= Pipeline::kMostWorkers, "aotpack_pipeline_options.worker_count must be at most 4096");
  for (size_t i = 0; i < all.worker_count; ++i) options.workers.push_back(read_worker(all.workers[i]));
  options.max_in_flight = all.max_in_flight;
  if (all.seeded) options.seed = all.seed;
  return options;
}

}  // namespace

extern "C" {

size_t aotpack_model_stage_count(const aotpack_model* model, size_t entry) {
  if (model == nullptr || entry >= unwrap(model)->entries().size()) return 0;
  return aotpack::runtime::count_stages(unwrap(model)->entries()[entry]);
}

aotpack_status* aotpack_pipeline_create(aotpack_model* model, const aotpack_pipeline_options* options,
                                        aotpack_pipeline** out_pipeline) {
  if (out_pipeline != nullptr) *out_pipeline = nullptr;
  return guarded([&] {
    require(model != nullptr, "model is NULL");
    require(out_pipeline != nullptr, "out_pipeline is NULL");
    *out_pipeline = reinterpret_cast<aotpack_pipeline*>(new Pipeline(unwrap(model), read_options(options)));
  });
}

void aotpack_pipeline_release(aotpack_pipeline* pipeline) {
  // In a child process other threads may have held its locks when it was forked.
  if (pipeline != nullptr && !unwrap(pipeline)->is_foreign()) delete unwrap(pipeline);
}

aotpack_status* aotpack_pipeline_submit(aotpack_pipeline* pipeline, const DLTensor* const* inputs, size_t num_inputs,
                                        aotpack_call** out_call) {
  if (out_call != nullptr) *out_call = nullptr;
  return guarded([&] {
    require(pipeline != nullptr, "pipeline is NULL");
    require(out_call != nullptr, "out_call is NULL");
    // Before the call: nothing may fail once it is under way.
    auto call = std::make_unique<aotpack_call>();
    call->pending = unwrap(pipeline)->submit(inputs, num_inputs);
    *out_call = call.release();
  });
}

aotpack_status* aotpack_pipeline_close(aotpack_pipeline* pipeline, bool cancel) {
  return guarded([&] {
    require(pipeline != nullptr, "pipeline is NULL");
    unwrap(pipeline)->close(cancel);
  });
}

aotpack_status* aotpack_call_wait(aotpack_call* call, int64_t timeout_ns, bool* out_ended) {
  if (out_ended != nullptr) *out_ended = false;
  return guarded([&] {
    require(call != nullptr, "call is NULL");
    const bool ended = call->pending->wait(timeout_ns);
    if (out_ended != nullptr) *out_ended = ended;
  });
}

aotpack_status* aotpack_call_take(aotpack_call* call, DLManagedTensorVersioned** out_outputs, size_t num_outputs) {
  if (out_outputs != nullptr) std::fill_n(out_outputs, num_outputs, nullptr);
  return guarded([&] {
    require(call != nullptr, "call is NULL");
    call->pending->take(out_outputs, num_outputs);
  });
}

void aotpack_call_release(aotpack_call* call) {
  if (call == nullptr || call->pending->is_foreign()) return;
  if (call->pending->borrows()) call->pending->wait(-1);
  delete call;
}

aotpack_status* aotpack_pipeline_get_state(aotpack_pipeline* pipeline, size_t index,
                                           DLManagedTensorVersioned** out_tensor) {
  if (out_tensor != nullptr) *out_tensor = nullptr;
  return guarded([&] {
    require(pipeline != nullptr, "pipeline is NULL");
    require(out_tensor != nullptr, "out_tensor is NULL");
    *out_tensor = unwrap(pipeline)->get_state(index);
  });
}

aotpack_status* aotpack_pipeline_load_state(aotpack_pipeline* pipeline, const char* const* names,
                                            const DLTensor* const* tensors, size_t count) {
  return guarded([&] {
    require(pipeline != nullptr, "pipeline is NULL");
    unwrap(pipeline)->load_state(names, tensors, count);
  });
}

aotpack_status* aotpack_pipeline_reset(aotpack_pipeline* pipeline) {
  return guarded([&] {
    require(pipeline != nullptr, "pipeline is NULL");
    unwrap(pipeline)->reset();
  });
}

}  // extern "C"
