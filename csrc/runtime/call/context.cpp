#include "call/context.h"

#include <algorithm>
#include <charconv>

#include "base/bytes.h"
#include "base/status.h"
#include "call/busy.h"
#include "call/finite.h"
#include "call/outputs.h"
#include "call/tensor.h"
#include "call/tensor_copy.h"
#include "host/process.h"
#include "host/team.h"
#include "host/thread_team.h"

namespace aotpack::runtime {
namespace {

// Where files of states keep the random generator: its seed is all there is to it, as it advances by addition.
constexpr char kSeedKey[] = "aotpack.seed";

uint64_t next_id() noexcept {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

uint64_t seed_of(const SafetensorsReader& file, const std::string& text) {
  uint64_t seed = 0;
  const char* end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, seed);
  if (error != std::errc() || at != end) {
    fail(AOTPACK_INVALID_ARGUMENT, "%s: the metadata '%s' is not an unsigned number of 64 bits", file.path().c_str(),
         kSeedKey);
  }
  return seed;
}

}  // namespace

class Context::Cleanup {
 public:
  Cleanup(EntryScratch& scratch, Stream& stream) noexcept : scratch_(scratch), stream_(stream) {}
  ~Cleanup() {
    if (!finished_) {
      // Work that is still going on reads and writes what is given back here.
      try {
        stream_.wait();
      } catch (...) {  // the call fails for another reason already
      }
    }
    if (adopted_) {
      for (aotpack_module_tensor& output : scratch_.outputs) {
        if (output.block != nullptr) Allocator::release_block(output.block);
      }
    }
    if (steps_ != nullptr) steps_->release();
    scratch_.inputs.release();
  }
  Cleanup(const Cleanup&) = delete;
  Cleanup& operator=(const Cleanup&) = delete;

  // From now on every block in the outputs is one reference to release.
  void adopted() noexcept { adopted_ = true; }
  // Before steps whose outputs are adopted one by one.
  void begin(Steps* steps) noexcept {
    for (aotpack_module_tensor& output : scratch_.outputs) output.block = nullptr;
    adopted_ = true;
    steps_ = steps;
  }
  // The end of a call that succeeds.
  void finish() {
    stream_.finish();
    finished_ = true;
  }

 private:
  EntryScratch& scratch_;
  Stream& stream_;
  Steps* steps_ = nullptr;
  bool adopted_ = false;
  bool finished_ = false;
};

Context::EntryScratch::EntryScratch(const ModelEntry& entry)
    : inputs(entry.plan), outputs(entry.plan.record().outputs.size()), variants(entry.variants.size()) {
  for (size_t i = 0; i < variants.size(); ++i) {
    for (const Step& step : entry.variants[i].steps) variants[i].tables.emplace_back(step.num_outputs);
  }
}

Context::Context(Model* model, int32_t num_threads, Allocator::Keep keep, CpuSet cpus)
    : model_(model),
      id_(next_id()),
      workspace_(model->device(), keep),
      replays_(model->device(), keep == Allocator::Keep::kFree ? model->graphs() : 0),
      scratch_(model->entries().size()),
      state_(*model) {
  if (!cpus.empty()) bind_to(std::move(cpus));
  set_num_threads(num_threads);
  call_.seed = random_seed();
  call_.allocator = workspace_.allocator();
  model_->retain();
}

Context::~Context() {
  replays_.clear();
  state_.reset();
  model_->release();
}

void Context::set_num_threads(int32_t num_threads) {
  if (num_threads < 0 || num_threads > kMaxThreads) {
    fail(AOTPACK_INVALID_ARGUMENT, "num_threads must be in [0, %d], got %d", kMaxThreads, num_threads);
  }
  int32_t usable = usable_cores();
  if (!cpus_.empty()) usable = std::min(usable, static_cast<int32_t>(cpus_.size()));
  num_threads_ = possible_threads(num_threads == 0 ? std::min(usable, kMaxThreads) : num_threads);
}

void Context::bind_to(CpuSet cpus) {
  if (!workspace_.is_host())
    fail(AOTPACK_INVALID_ARGUMENT, "the model does not run on the CPU: it has no CPUs to choose");
  std::sort(cpus.begin(), cpus.end());
  cpus.erase(std::unique(cpus.begin(), cpus.end()), cpus.end());
  const BoundThread bound(cpus);
  if (!bound.is_bound()) {
    fail(AOTPACK_INVALID_ARGUMENT, "the context cannot run on the CPUs %s: this thread has %s", cpus_text(cpus).c_str(),
         cpus_text(cpus_of_thread()).c_str());
  }
  team_ = std::make_unique<ThreadTeam>(cpus);
  cpus_ = std::move(cpus);
}

void Context::set_stream(void* stream) {
  const Busy busy(&busy_);
  workspace_.set_stream(stream);
}

void Context::synchronize() {
  const Busy busy(&busy_);
  workspace_.stream().wait();
}

void Context::set_profiling(bool enabled) {
  const Busy busy(&busy_);
  profile_ = enabled ? std::make_unique<Profile>() : nullptr;
  call_.profile = profile_.get();
}

void Context::set_choices(const aotpack_choice* choices, size_t count, bool records) {
  const Busy busy(&busy_);
  trial_ = std::make_unique<Trial>(choices, count, records);
}

void Context::clear_choices() {
  const Busy busy(&busy_);
  trial_ = nullptr;
}

void Context::set_atomic(bool enabled) {
  const Busy busy(&busy_);
  atomic_ = enabled;
}

void Context::set_check_finite(bool enabled) {
  const Busy busy(&busy_);
  check_finite_ = enabled;
}

Context::EntryScratch& Context::prepare(size_t entry, size_t num_outputs) {
  if (entry >= scratch_.size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "there is no entry %zu; the model has %zu", entry, scratch_.size());
  }
  const ModelEntry& model_entry = model_->entries()[entry];
  const EntryRecord& record = model_entry.plan.record();
  if (num_outputs != record.outputs.size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "entry '%s' has %zu outputs, room was given for %zu", record.name.c_str(),
         record.outputs.size(), num_outputs);
  }
  if (scratch_[entry] == nullptr) scratch_[entry] = std::make_unique<EntryScratch>(model_entry);
  return *scratch_[entry];
}

const aotpack_module_tensor* Context::constants_of(const Step& step, const WeightSet& weights,
                                                   const std::vector<aotpack_module_tensor>& shared, StepTable* table) {
  if (!step.mutates_constants) return shared.data();
  if (step.trains && workspace_.is_host()) {
    state_.ensure_trained(weights, workspace_, num_threads_);
  } else {
    state_.ensure(weights, workspace_);
  }
  return constants_with_state(*model_, step, weights, shared, state_, table);
}

void Context::keep_if_captured(const WeightsInUse& weights) {
  if (weights.owner() == nullptr || !workspace_.stream().is_captured()) return;
  if (captured_.empty() || captured_.back() != weights.owner()) captured_.push_back(weights.owner());
}

const char* Context::variant(size_t entry) const noexcept {
  if (entry >= scratch_.size() || scratch_[entry] == nullptr || scratch_[entry]->variant == nullptr) return nullptr;
  return scratch_[entry]->variant->record->name.c_str();
}

void Context::execute(size_t entry, EntryScratch& scratch, const WeightSet& weights, const DLTensor* const* inputs,
                      size_t num_inputs, Undo& undo, Cleanup& cleanup) {
  ProfiledCall profiled(profile_.get());
  const ModelEntry& model_entry = model_->entries()[entry];
  const size_t index = scratch.inputs.bind(inputs, num_inputs, workspace_);
  const Variant& variant = model_entry.variants[index];
  scratch.variant = &variant;
  if (atomic_ || check_finite_) undo.keep(*model_, variant);
  VariantScratch& kept = scratch.variants[index];
  call_.reset();
  if (trial_ != nullptr) trial_->begin();
  const BoundThread bound(cpus_);
  const int32_t num_threads = begin_team(num_threads_);
  if (variant.is_direct) [[likely]] {
    const Step& step = variant.steps.front();
    StepTable& table = kept.tables.front();
    aotpack_module_call call = step.call.prepared();
    call.inputs = scratch.inputs.tensors();
    call.outputs = scratch.outputs.data();
    call.constants = constants_of(step, weights, weights.table(entry, index, 0), &table);
    call.stream = workspace_.stream_handle();
    call_.allocator = workspace_.allocator();
    {
      const ProfiledStep profiled_step(profile_.get(), 0);
      launch(model_entry.plan.record(), variant, step, &call, &table, weights.id(), num_threads);
    }
    adopt_outputs(&scratch.outputs);
    cleanup.adopted();
    check_output_devices(model_entry.plan.record(), step.call, table.output_devices.data());
    check_outputs(model_entry.plan, scratch.outputs, scratch.inputs.sizes());
    profiled.finish();
    return;
  }
  if (kept.steps == nullptr) kept.steps = std::make_unique<Steps>(model_entry.plan, variant, workspace_);
  Steps& steps = *kept.steps;
  cleanup.begin(&steps);
  steps.begin(&scratch.inputs, &scratch.outputs);
  for (size_t i = 0; i < variant.steps.size(); ++i) {
    const Step& step = variant.steps[i];
    StepTable& table = kept.tables[i];
    aotpack_module_call call = step.call.prepared();
    steps.prepare(i, &call, &call_);
    call.constants = constants_of(step, weights, weights.table(entry, index, i), &table);
    {
      const ProfiledStep profiled_step(profile_.get(), i);
      launch(model_entry.plan.record(), variant, step, &call, &table, weights.id(), num_threads);
    }
    steps.finish(i, table.output_devices.data());
  }
  profiled.finish();
}

void Context::launch(const EntryRecord& entry, const Variant& variant, const Step& step, aotpack_module_call* call,
                     StepTable* table, uint64_t weights_id, int32_t num_threads) {
  call->runtime = &call_;
  call->num_threads = num_threads;
  call->team = team_ == nullptr ? team_for(num_threads) : num_threads > 1 ? team_->table() : nullptr;
  call->tuning = tuning_of(step, num_threads);
  call->output_devices = table->output_devices.data();
  call_.stream = &workspace_.stream();
  if (replays_.run(step, *call, weights_id, table->state_version, &call_, workspace_)) return;
  run_module(entry, variant, step, call, &call_);
}

const aotpack_module_tuning* Context::tuning_of(const Step& step, int32_t num_threads) {
  if (trial_ != nullptr && (workspace_.is_host() || step.on_host)) {
    trial_->begin_step(step.module->target.c_str());
    return trial_->tuning();
  }
  for (const TargetTuning* each : step.tunings) {
    if (each->threads == num_threads) return &each->tuning;
  }
  return nullptr;
}

void Context::finish(Undo& undo, Cleanup& cleanup) {
  // On a stream of the caller's a call may end before its work, which can still fail.
  if (atomic_ || check_finite_) workspace_.stream().wait();
  cleanup.finish();
  undo.commit();
}

// Of a direct variant; others have done it.
void Context::finish_output(const ValueRecord& value, const Variant& variant, aotpack_module_tensor& output) {
  if (!variant.is_direct) return;
  if (void* replaced = own_output(value, output, false, workspace_)) Allocator::release_block(replaced);
}

DLManagedTensorVersioned* Context::take_output(const ValueRecord& value, aotpack_module_tensor& output) {
  const bool on_host = value.device == kHostDevice && !workspace_.is_host();
  DLManagedTensorVersioned* tensor = make_tensor(workspace_, on_host, output.block, output.data, *value.dtype,
                                                 output.rank, output.sizes, output.strides);
  if (tensor == nullptr) fail(AOTPACK_OUT_OF_MEMORY, "out of memory for output '%s'", value.name.c_str());
  output.block = nullptr;  // the tensor has it now
  return tensor;
}

void Context::run(size_t entry, const DLTensor* const* inputs, size_t num_inputs, DLManagedTensorVersioned** outputs,
                  size_t num_outputs) {
  const Busy busy(&busy_);
  EntryScratch& scratch = prepare(entry, num_outputs);
  const StreamScope scope(workspace_.stream());
  if (outputs == nullptr && num_outputs > 0) fail(AOTPACK_INVALID_ARGUMENT, "out_outputs is NULL");
  const ModelEntry& model_entry = model_->entries()[entry];
  const EntryRecord& record = model_entry.plan.record();
  // Until the end: outputs may lie in constants.
  const WeightsInUse weights = model_->weights();
  keep_if_captured(weights);
  Undo undo(state_, call_, workspace_);  // after the cleanup, which waits
  Cleanup cleanup(scratch, workspace_.stream());
  with_memory_of(workspace_.device(), [&] { execute(entry, scratch, *weights, inputs, num_inputs, undo, cleanup); });
  if (check_finite_) with_memory_of(workspace_.device(), [&] { check_finite(record, scratch.outputs, workspace_); });
  size_t made = 0;
  try {
    for (; made < num_outputs; ++made) {
      finish_output(record.outputs[made], *scratch.variant, scratch.outputs[made]);
      outputs[made] = take_output(record.outputs[made], scratch.outputs[made]);
    }
    scratch.inputs.write_back(workspace_);
    finish(undo, cleanup);
  } catch (...) {
    for (; made-- > 0; outputs[made] = nullptr) outputs[made]->deleter(outputs[made]);
    throw;
  }
}

void Context::run_into(size_t entry, const DLTensor* const* inputs, size_t num_inputs, const DLTensor* const* outputs,
                       size_t num_outputs) {
  const Busy busy(&busy_);
  EntryScratch& scratch = prepare(entry, num_outputs);
  const StreamScope scope(workspace_.stream());
  const ModelEntry& model_entry = model_->entries()[entry];
  const EntryRecord& record = model_entry.plan.record();
  check_destinations(record, outputs, num_outputs, workspace_.device_id());
  // Until the end: outputs may lie in constants.
  const WeightsInUse weights = model_->weights();
  keep_if_captured(weights);
  Undo undo(state_, call_, workspace_);  // after the cleanup, which waits
  Cleanup cleanup(scratch, workspace_.stream());
  with_memory_of(workspace_.device(), [&] { execute(entry, scratch, *weights, inputs, num_inputs, undo, cleanup); });
  if (check_finite_) with_memory_of(workspace_.device(), [&] { check_finite(record, scratch.outputs, workspace_); });
  check_destination_sizes(record, scratch.outputs, outputs);
  // An output that aliases an input must not change while results are written over that input.
  for (size_t i = 0; i < num_outputs; ++i) {
    aotpack_module_tensor& output = scratch.outputs[i];
    if (output.block == nullptr && touches_any(record.outputs[i], output, outputs, num_outputs)) {
      finish_output(record.outputs[i], *scratch.variant, output);
    }
  }
  for (size_t i = 0; i < num_outputs; ++i)
    copy_out(record.outputs[i], scratch.outputs[i], *outputs[i], workspace_.stream());
  scratch.inputs.write_back(workspace_);
  finish(undo, cleanup);
}

DLManagedTensorVersioned* Context::to_device(const DLTensor& tensor) {
  const Busy busy(&busy_);
  return with_memory_of(workspace_.device(), [&] { return copy_to_device(tensor, workspace_); });
}

void Context::check_state_index(size_t index) const {
  if (index < model_->state().size()) return;
  fail(AOTPACK_INVALID_ARGUMENT, "there is no state tensor %zu; the model has %zu", index, model_->state().size());
}

DLManagedTensorVersioned* Context::get_state(size_t index) {
  const Busy busy(&busy_);
  check_state_index(index);
  return with_memory_of(workspace_.device(), [&] { return state_.get(index, *model_->weights(), workspace_); });
}

DLManagedTensorVersioned* Context::share_state(size_t index) {
  const Busy busy(&busy_);
  check_state_index(index);
  return with_memory_of(workspace_.device(), [&] { return state_.share(index, *model_->weights(), workspace_); });
}

void Context::load_state(const char* const* names, const DLTensor* const* tensors, size_t count) {
  const Busy busy(&busy_);
  with_memory_of(workspace_.device(), [&] { state_.load(names, tensors, count, *model_->weights(), workspace_); });
  ++state_generation_;
}

void Context::save_state_file(const std::string& path) {
  const Busy busy(&busy_);
  // "pt": safetensors.torch asks for it.
  const Metadata metadata{{"format", "pt"}, {kSeedKey, std::to_string(call_.seed)}};
  with_memory_of(workspace_.device(), [&] { state_.save_file(path, metadata, *model_->weights(), workspace_); });
}

void Context::load_state_file(const std::string& path, uint64_t flags) {
  const Busy busy(&busy_);
  const SafetensorsReader file(path);
  uint64_t seed = call_.seed;
  if (const auto found = file.metadata().find(kSeedKey); found != file.metadata().end())
    seed = seed_of(file, found->second);
  with_memory_of(workspace_.device(), [&] { state_.load_file(file, flags, *model_->weights(), workspace_); });
  call_.seed = seed;
  ++state_generation_;
}

void Context::reset() {
  const Busy busy(&busy_);
  if (state_.is_shared()) {
    with_memory_of(workspace_.device(), [&] { state_.restore(*model_->weights(), workspace_); });
  } else {
    state_.reset();
  }
  ++state_generation_;
}

}  // namespace aotpack::runtime
