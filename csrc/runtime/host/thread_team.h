// The threads that share the parallel regions of a thread's calls.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "aotpack/module_abi.h"
#include "host/cpus.h"

namespace aotpack::runtime {

// Belongs to the thread that uses it. Regions of n parts need n - 1 workers.
//
// Each thread has a part of its own, so that it reads from its cache what it wrote there in the region before. A thread
// that is done with its part takes the next one that has not begun. So a region does not wait for a worker whose
// processor is busy with something else: the thread that calls computes that part itself. A worker whose processor the
// system gives to another thread in the middle of a part, so that the others wait for longer than they worked, gets no
// parts for a while.
//
// Idle workers wait for the next region in a loop, then they sleep: after 400 microseconds, or after 30 for
// a while once a worker has been interrupted so. OMP_WAIT_POLICY decides as it does for OpenMP: `passive` for no loop,
// `active` for a long one.
class ThreadTeam {
 public:
  // Workers are bound to `cpus`; by default they have those of the thread that creates them.
  explicit ThreadTeam(CpuSet cpus = {});
  // Ends the workers. They do not exist in the child of a fork.
  ~ThreadTeam();
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // See aotpack_module_team. A region of one part, or inside of another region, runs on the calling thread.
  void run(aotpack_module_body_fn body, void* argument, int32_t parts) noexcept;
  void meet() noexcept;

  // Of modules; lives as long as the team.
  const aotpack_module_team* table() const noexcept { return &table_; }
  // How many workers there are.
  size_t workers() const noexcept { return workers_.size(); }
  // Whether one of them gets no parts now.
  bool is_disturbed() const noexcept { return benched_ != 0; }

  // The team of the calling thread, made when it first asks; NULL where there is no memory, or the thread is ending.
  static ThreadTeam* of_thread() noexcept;

 private:
  struct Worker;

  static void* serve(void* worker) noexcept;
  void serve(Worker* self) noexcept;
  static void look_for_switches(Worker* self) noexcept;
  uint64_t wait_for_region(Worker* self, uint64_t seen) const noexcept;
  // Until there are so many workers, or the system has no more threads.
  void add_workers(size_t count) noexcept;
  void end_workers() noexcept;
  void leave_behind() noexcept;

  // On the thread that calls `run`.
  void publish() noexcept;
  void wake() noexcept;
  void let_all_work() noexcept;
  void wait_for_parts(uint32_t count, uint64_t own_ticks) noexcept;
  void bench_last() noexcept;
  // Lets workers have parts again, and wait for longer, when their time is over.
  void look_for_neighbour(uint64_t now) noexcept;

  bool claim(int32_t part, uint64_t region) noexcept;
  // Computes the parts that have not begun, from `first` on; how many they were.
  uint32_t work(uint64_t region, int32_t first) noexcept;

  const CpuSet cpus_;
  const aotpack_module_team table_;
  const uint64_t most_spin_ns_;
  std::atomic<uint64_t> spin_ns_;
  uint32_t forks_;
  std::vector<std::unique_ptr<Worker>> workers_;
  bool is_beside_neighbour_ = false;
  size_t benched_ = 0;         // how many workers are
  uint64_t hold_ns_ = 0;       // for how long the last one that was benched is
  uint64_t last_release_ = 0;  // when its time was over
  pthread_t caller_{};         // of the region
  bool inside_ = false;        // of a region
  bool is_published_ = false;  // workers know of the region
  int32_t parts_ = 1;          // of the region

  // Its number and its parts, in one word.
  alignas(64) std::atomic<uint64_t> region_{0};
  std::atomic<aotpack_module_body_fn> body_{nullptr};
  std::atomic<void*> argument_{nullptr};
  std::atomic<bool> is_stopping_{false};
  // By part, the last region in which it was begun. There are `places_`; more are made while there are no workers.
  std::unique_ptr<std::atomic<uint64_t>[]> claims_;
  size_t places_ = 0;

  alignas(64) std::atomic<uint32_t> done_{0};  // parts that workers have finished
  std::atomic<uint32_t> caller_sleeps_{0};
  std::atomic<uint32_t> last_{0};  // which worker finished one last

  alignas(64) std::atomic<uint32_t> arrived_{0};  // at the meeting
  std::atomic<uint32_t> meetings_{0};
  std::atomic<uint32_t> sleepers_{0};
};

// What a call with so many threads on the calling thread gets.
inline const aotpack_module_team* team_for(int32_t num_threads) noexcept {
  if (num_threads <= 1) return nullptr;
  const ThreadTeam* team = ThreadTeam::of_thread();
  return team != nullptr ? team->table() : nullptr;
}

}  // namespace aotpack::runtime
