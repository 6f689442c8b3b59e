#include "pipeline/pipeline.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/status.h"
#include "call/context.h"
#include "host/blocked_signals.h"
#include "host/process.h"
#include "host/team.h"

namespace aotpack::runtime {
namespace {

constexpr char kClosed[] = "the pipeline is closed";
constexpr char kCancelled[] = "the call was cancelled: the pipeline was closed before it had ended";

// splitmix64 (Steele, Lea, Flood 2014): seeds of neighbouring calls have nothing in common.
uint64_t mixed(uint64_t value) noexcept {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

const ModelEntry& entry_of(const Model& model, size_t entry) {
  if (entry >= model.entries().size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "there is no entry %zu; the model has %zu", entry, model.entries().size());
  }
  return model.entries()[entry];
}

}  // namespace

size_t count_stages(const ModelEntry& entry) noexcept {
  size_t most = 1;
  for (const Variant& variant : entry.variants) most = std::max(most, variant.steps.size());
  return most;
}

Pipeline::Pipeline(Model* model, PipelineOptions options)
    : model_(model),
      entry_(options.entry),
      process_(::getpid()),
      max_in_flight_(options.max_in_flight),
      seed_(options.seed),
      workspace_(model->device(), Allocator::Keep::kFree),
      state_(*model) {
  check(&options);
  const ModelEntry& entry = model->entries()[entry_];
  if (max_in_flight_ == 0) max_in_flight_ = 2 * options.workers.size();
  for (size_t stage = 0; stage < count_stages(entry); ++stage) {
    stages_.push_back(std::make_unique<Stage>());
    stages_.back()->waiting.resize(max_in_flight_);
  }
  idle_.reserve(max_in_flight_);
  flights_.reserve(max_in_flight_);
  for (const PipelineWorker& wanted : options.workers) {
    workers_.push_back(std::make_unique<Worker>(wanted, entry, model->device()));
  }
  model_->retain();
  try {
    start();
  } catch (...) {
    stop();
    state_.reset();
    model_->release();
    throw;
  }
}

Pipeline::~Pipeline() {
  close(true);
  stop();
  flights_.clear();
  state_.reset();
  model_->release();
}

void Pipeline::check(PipelineOptions* options) const {
  const ModelEntry& entry = entry_of(*model_, entry_);
  if (!model_->device().is_host()) {
    fail(AOTPACK_INVALID_ARGUMENT, "a pipeline runs a model on the CPU; this one is on another device");
  }
  if (options->max_in_flight > kMostInFlight) {
    fail(AOTPACK_INVALID_ARGUMENT, "max_in_flight must be at most %zu, got %zu", kMostInFlight, options->max_in_flight);
  }
  std::vector<size_t> counts(count_stages(entry));
  std::vector<PipelineWorker>& workers = options->workers;
  if (workers.empty()) {
    workers.resize(counts.size());
    for (size_t i = 0; i < workers.size(); ++i) workers[i].stage = i;
  }
  if (workers.size() > kMostWorkers) {
    fail(AOTPACK_INVALID_ARGUMENT, "a pipeline has at most %zu workers, got %zu", kMostWorkers, workers.size());
  }
  size_t sharing = 0;
  for (PipelineWorker& worker : workers) {
    if (worker.stage >= counts.size()) {
      fail(AOTPACK_INVALID_ARGUMENT, "there is no stage %zu; entry '%s' has %zu", worker.stage,
           entry.plan.record().name.c_str(), counts.size());
    }
    if (worker.num_threads < 0 || worker.num_threads > Context::kMaxThreads) {
      fail(AOTPACK_INVALID_ARGUMENT, "num_threads must be in [0, %d], got %d", Context::kMaxThreads,
           worker.num_threads);
    }
    ++counts[worker.stage];
    sharing += worker.cpus.empty() ? 1 : 0;
    std::sort(worker.cpus.begin(), worker.cpus.end());
    worker.cpus.erase(std::unique(worker.cpus.begin(), worker.cpus.end()), worker.cpus.end());
  }
  for (size_t stage = 0; stage < counts.size(); ++stage) {
    if (counts[stage] == 0) fail(AOTPACK_INVALID_ARGUMENT, "stage %zu has no worker", stage);
  }
  check_state(counts);
  std::vector<CpuSet> shares = split_cpus(cpus_of_thread(), sharing);
  for (auto worker = workers.rbegin(); worker != workers.rend(); ++worker) {
    if (!worker->cpus.empty()) continue;
    worker->cpus = std::move(shares.back());
    shares.pop_back();
  }
}

// One thread at a time uses a tensor that calls write to, in the order of the calls: that of its stage.
void Pipeline::check_state(const std::vector<size_t>& workers_by_stage) const {
  const std::vector<ConstantRecord>& records = model_->archive().manifest().constants;
  std::vector<size_t> stages(records.size(), SIZE_MAX);
  for (const Variant& variant : model_->entries()[entry_].variants) {
    for (size_t stage = 0; stage < variant.steps.size(); ++stage) {
      if (!variant.steps[stage].mutates_constants) continue;
      for (const uint32_t constant : variant.steps[stage].module->constants) {
        if (!records[constant].mutated) continue;
        const char* name = records[constant].name.c_str();
        if (workers_by_stage[stage] > 1) {
          fail(AOTPACK_INVALID_ARGUMENT, "stage %zu uses the state '%s', so it can have one worker only, got %zu",
               stage, name, workers_by_stage[stage]);
        }
        if (stages[constant] != SIZE_MAX && stages[constant] != stage) {
          fail(AOTPACK_INVALID_ARGUMENT, "stages %zu and %zu use the state '%s'; a pipeline needs it in one stage",
               std::min(stages[constant], stage), std::max(stages[constant], stage), name);
        }
        stages[constant] = stage;
      }
    }
  }
}

void Pipeline::start() {
  {
    const BlockedSignals blocked;
    for (const std::unique_ptr<Worker>& worker : workers_) {
      try {
        worker->thread = std::thread([this, &worker = *worker] { serve(&worker); });
      } catch (const std::system_error& error) {
        fail(AOTPACK_IO_ERROR, "cannot create a thread for the pipeline: %s", error.what());
      }
    }
  }
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return started_ == workers_.size(); });
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->status == nullptr) continue;
    const Error error(worker->status->code, worker->status->message);
    for (const std::unique_ptr<Worker>& each : workers_) release_status(std::exchange(each->status, nullptr));
    throw error;
  }
}

void Pipeline::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    for (const std::unique_ptr<Stage>& stage : stages_) stage->ready.notify_all();
  }
  for (const std::unique_ptr<Worker>& worker : workers_) {
    if (worker->thread.joinable()) worker->thread.join();
  }
}

// On the worker's thread.
void Pipeline::prepare(Worker* worker) {
  const PipelineWorker& wanted = worker->wanted;
  // Before the first parallel region: the threads of its team inherit the binding.
  if (!wanted.cpus.empty() && !bind_thread(wanted.cpus)) {
    fail(AOTPACK_INVALID_ARGUMENT, "the worker of stage %zu cannot run on the CPUs %s: this process has %s",
         wanted.stage, cpus_text(wanted.cpus).c_str(), cpus_text(cpus_of_thread()).c_str());
  }
  const int32_t threads = wanted.num_threads != 0 ? wanted.num_threads : std::min(usable_cores(), Context::kMaxThreads);
  worker->tools.num_threads = possible_threads(threads);
}

void Pipeline::serve(Worker* worker) noexcept {
  ::pthread_setname_np(::pthread_self(), "aotpack-stage");
  worker->status = guarded([&] { prepare(worker); });
  const size_t stage = worker->wanted.stage;
  std::unique_lock lock(mutex_);
  ++started_;
  changed_.notify_all();
  for (;;) {
    Flight* flight = nullptr;
    stages_[stage]->ready.wait(lock, [&] { return (flight = dequeue(stage)) != nullptr || stopping_; });
    if (flight == nullptr) return;
    lock.unlock();
    if (cancelled_.load(std::memory_order_relaxed)) flight->fail_with(AOTPACK_CANCELLED, kCancelled);
    flight->run(stage, &worker->tools, state_);
    const bool is_last = stage + 1 == stages_.size();
    if (is_last) flight->end(worker->tools.workspace);
    lock.lock();
    if (is_last) {
      give_back(flight);
    } else {
      enqueue(stage + 1, flight);
    }
  }
}

// Calls that wait for a stage have not overtaken one that has yet to come there, so those in flight bound how far apart
// they are.
void Pipeline::enqueue(size_t stage, Flight* flight) noexcept {
  Stage& queue = *stages_[stage];
  queue.waiting[flight->sequence % queue.waiting.size()] = flight;
  if (flight->sequence == queue.next) queue.ready.notify_one();
}

Flight* Pipeline::dequeue(size_t stage) noexcept {
  Stage& queue = *stages_[stage];
  Flight*& place = queue.waiting[queue.next % queue.waiting.size()];
  if (place == nullptr) return nullptr;
  Flight* flight = std::exchange(place, nullptr);
  ++queue.next;
  if (queue.waiting[queue.next % queue.waiting.size()] != nullptr) queue.ready.notify_one();
  return flight;
}

Flight* Pipeline::reserve() {
  std::unique_lock lock(mutex_);
  room_.wait(lock, [this] { return closed_ || in_flight_ < max_in_flight_; });
  if (closed_) fail(AOTPACK_CANCELLED, "%s", kClosed);
  if (idle_.empty()) {
    flights_.push_back(std::make_unique<Flight>(*model_, entry_));
    idle_.push_back(flights_.back().get());
  }
  Flight* flight = idle_.back();
  idle_.pop_back();
  ++in_flight_;
  return flight;
}

void Pipeline::give_back(Flight* flight) noexcept {
  idle_.push_back(flight);
  --in_flight_;
  room_.notify_one();
  changed_.notify_all();
}

bool Pipeline::is_foreign() const noexcept { return ::getpid() != process_; }

void Pipeline::refuse_foreign() const {
  if (is_foreign()) {
    fail(AOTPACK_INVALID_ARGUMENT, "the pipeline's threads run in the parent of this process; make one after the fork");
  }
}

std::shared_ptr<PendingCall> Pipeline::submit(const DLTensor* const* inputs, size_t num_inputs) {
  refuse_foreign();
  const std::lock_guard submitting(submit_mutex_);
  auto call = std::make_shared<PendingCall>(model_->entries()[entry_].plan.has_mutated_inputs());
  Flight* flight = reserve();
  try {
    flight->begin(inputs, num_inputs, workspace_, &state_, mixed(seed_ ^ mixed(submitted_)), call);
  } catch (...) {
    const std::lock_guard lock(mutex_);
    give_back(flight);
    throw;
  }
  flight->sequence = submitted_++;
  const std::lock_guard lock(mutex_);
  enqueue(0, flight);
  return call;
}

void Pipeline::close(bool cancel) {
  refuse_foreign();
  std::unique_lock lock(mutex_);
  closed_ = true;
  // Of calls that were accepted before: a cancelled one makes room, which nothing takes any more.
  if (cancel) cancelled_.store(true, std::memory_order_relaxed);
  room_.notify_all();
  changed_.wait(lock, [this] { return in_flight_ == 0; });
}

template <typename Body>
decltype(auto) Pipeline::when_idle(Body&& body) {
  refuse_foreign();
  const std::lock_guard submitting(submit_mutex_);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return in_flight_ == 0; });
  }
  return body();
}

DLManagedTensorVersioned* Pipeline::get_state(size_t index) {
  if (index >= model_->state().size()) {
    fail(AOTPACK_INVALID_ARGUMENT, "there is no state tensor %zu; the model has %zu", index, model_->state().size());
  }
  return when_idle([&] { return state_.get(index, *model_->weights(), workspace_); });
}

void Pipeline::load_state(const char* const* names, const DLTensor* const* tensors, size_t count) {
  when_idle([&] { state_.load(names, tensors, count, *model_->weights(), workspace_); });
}

void Pipeline::reset() {
  when_idle([&] { state_.reset(); });
}

}  // namespace aotpack::runtime
