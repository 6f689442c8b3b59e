// Runs the steps of an entry on threads of its own: several calls are under way, each in another stage.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "call/state.h"
#include "call/workspace.h"
#include "host/cpus.h"
#include "model/model.h"
#include "pipeline/flight.h"
#include "pipeline/pending_call.h"

namespace aotpack::runtime {

struct PipelineWorker {
  size_t stage = 0;
  CpuSet cpus;              // empty: a share of those of the thread that makes the pipeline
  int32_t num_threads = 0;  // 0: one per CPU
};

struct PipelineOptions {
  size_t entry = 0;
  std::vector<PipelineWorker> workers;  // empty: one per stage
  size_t max_in_flight = 0;             // 0: two per worker
  uint64_t seed = 0;
};

// How many stages the pipeline of an entry has: the steps of the variant that has most.
size_t count_stages(const ModelEntry& entry) noexcept;

// Thread-safe; keeps its model alive. A stage starts calls in the order in which they were submitted, also behind a
// stage of several workers. Its threads do not exist in the child of a fork: what would need them throws there.
class Pipeline {
 public:
  static constexpr size_t kMostWorkers = 4096;
  static constexpr size_t kMostInFlight = 1 << 16;

  // Throws INVALID_ARGUMENT for workers that cannot be, or IO_ERROR where the system grants no threads.
  Pipeline(Model* model, PipelineOptions options);
  // Cancels, and waits for what is running. In a child process its memory stays: see is_foreign().
  ~Pipeline();
  Pipeline(const Pipeline&) = delete;
  Pipeline& operator=(const Pipeline&) = delete;

  // Whether this process is a child of the one that made the pipeline: it must not be destroyed there.
  bool is_foreign() const noexcept;
  size_t num_workers() const noexcept { return workers_.size(); }
  size_t max_in_flight() const noexcept { return max_in_flight_; }

  // Waits for room. Throws what Context::run throws for inputs, and CANCELLED once the pipeline is closed.
  std::shared_ptr<PendingCall> submit(const DLTensor* const* inputs, size_t num_inputs);
  // No more calls; returns when all have ended. `cancel`: those that wait for their next stage fail with CANCELLED.
  void close(bool cancel);

  // When all calls have ended that were submitted before. See Context.
  DLManagedTensorVersioned* get_state(size_t index);
  void load_state(const char* const* names, const DLTensor* const* tensors, size_t count);
  void reset();

 private:
  // Calls that wait for a stage.
  struct Stage {
    std::vector<Flight*> waiting;  // by sequence, modulo its size
    uint64_t next = 0;             // of the call that starts next
    std::condition_variable ready;
  };
  struct Worker {
    Worker(const PipelineWorker& options, const ModelEntry& entry, Device& device)
        : wanted(options), tools(entry, options.stage, device) {}
    const PipelineWorker wanted;
    StageTools tools;
    aotpack_status* status = nullptr;  // why it did not start
    std::thread thread;
  };

  void check(PipelineOptions* options) const;
  void check_state(const std::vector<size_t>& workers_by_stage) const;
  void start();
  void stop() noexcept;
  void serve(Worker* worker) noexcept;
  void prepare(Worker* worker);
  Flight* reserve();
  void give_back(Flight* flight) noexcept;
  // Under the mutex.
  void enqueue(size_t stage, Flight* flight) noexcept;
  Flight* dequeue(size_t stage) noexcept;
  template <typename Body>
  decltype(auto) when_idle(Body&& body);
  void refuse_foreign() const;

  Model* model_;
  const size_t entry_;
  const pid_t process_;
  size_t max_in_flight_;
  uint64_t seed_;
  Workspace workspace_;  // of submitting threads, under submit_mutex_
  State state_;          // changes under submit_mutex_ while no call is under way, or for the first
  std::vector<std::unique_ptr<Worker>> workers_;

  std::mutex submit_mutex_;  // held while a call is submitted: their order is that of their inputs
  uint64_t submitted_ = 0;
  std::mutex mutex_;  // of all below
  std::vector<std::unique_ptr<Flight>> flights_;
  std::vector<Flight*> idle_;
  size_t in_flight_ = 0;
  size_t started_ = 0;
  bool closed_ = false;
  bool stopping_ = false;
  std::condition_variable room_;     // a flight is idle, or the pipeline is closed
  std::condition_variable changed_;  // in_flight_ or started_
  std::atomic<bool> cancelled_{false};
  std::vector<std::unique_ptr<Stage>> stages_;
};

}  // namespace aotpack::runtime
