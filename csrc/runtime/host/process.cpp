#include "host/process.h"

#include <sched.h>
#include <sys/random.h>
#include <time.h>

#include <algorithm>
#include <thread>

#include "host/cpu_quota.h"

namespace aotpack::runtime {

namespace {

// By the affinity.
int32_t cores_of_thread() noexcept {
  // Machines with more cores than a plain cpu_set_t has room for need a bigger set.
  for (int capacity = CPU_SETSIZE; capacity <= 1 << 16; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(capacity));
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(capacity));
    const int count = ::sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  const unsigned all = std::thread::hardware_concurrency();
  return all > 0 ? static_cast<int32_t>(all) : 1;
}

}  // namespace

int32_t usable_cores() {
  static const int32_t quota = cpu_quota();
  const int32_t cores = cores_of_thread();
  return quota > 0 ? std::min(quota, cores) : cores;
}

uint64_t random_seed() noexcept {
  uint64_t seed = 0;
  if (::getrandom(&seed, sizeof seed, GRND_NONBLOCK) == sizeof seed) return seed;
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000007u + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace aotpack::runtime
